#pragma once

#include <string_view>

#include "tutti/compression/byteps_onebit.hpp"
#include "tutti/compression/byteps_randomk.hpp"
#include "tutti/compression/byteps_topk.hpp"
#include "tutti/compression/dense_below.hpp"
#include "tutti/compression/dithering.hpp"
#include "tutti/compression/nesterov_momentum.hpp"
#include "tutti/compression/rescaled_error_feedback.hpp"
#include "tutti/strategies/byteps.hpp"

namespace tutti::strategies {

/// BytePS whose pieces of 65,536 bytes or more are compressed both ways: servers decode what they
/// add, and encode the mean again. BytePS's momentum is a decorator around the whole compressor:
/// `BytePSCompressed<compression::nesterov_momentum<…>>`.
template <class Compression>
struct BytePSCompressed {
  using strategy = compose<partition::into, schedule::by_priority, Compression,
                           architecture::parameter_server<>>;
  static constexpr policy_options<strategy> defaults() {
    constexpr auto own = BytePS::defaults();
    return {.partition = own.partition, .schedule = own.schedule, .architecture = own.architecture};
  }
};

/// BytePS with `onebit` and `vanilla` error feedback: a bit an element, and the mean magnitude.
struct BytePSOneBit : BytePSCompressed<compression::dense_below<
                          compression::rescaled_error_feedback<compression::byteps_onebit>>> {
  static constexpr std::string_view name = "BytePSOneBit";
  static constexpr std::string_view after = "BytePS with `onebit`";
  static constexpr std::string_view deviations =
      "The same as BytePS's; in addition, a piece shorter than the limit is sent as it is, where "
      "BytePS asks for the length of the whole tensor; and with worth one, servers answer 1 or -1, "
      "which BytePS's workers divide by their number.";
};

/// BytePS with `topk` and `vanilla` error feedback.
struct BytePSTopK : BytePSCompressed<compression::dense_below<
                        compression::rescaled_error_feedback<compression::byteps_topk>>> {
  static constexpr std::string_view name = "BytePSTopK";
  static constexpr std::string_view after = "BytePS with `topk`";
  static constexpr std::string_view deviations =
      "The same as BytePS's; in addition, a piece shorter than the limit is sent as it is, where "
      "BytePS asks for the length of the whole tensor.";
};

/// BytePS with `randomk` and `vanilla` error feedback.
struct BytePSRandomK : BytePSCompressed<compression::dense_below<
                           compression::rescaled_error_feedback<compression::byteps_randomk>>> {
  static constexpr std::string_view name = "BytePSRandomK";
  static constexpr std::string_view after = "BytePS with `randomk`";
  static constexpr std::string_view deviations =
      "The same as BytePS's; in addition, a piece shorter than the limit is sent as it is, where "
      "BytePS asks for the length of the whole tensor.";
};

/// BytePS with `dithering`, which is unbiased and has no residual.
struct BytePSDithering : BytePSCompressed<compression::dense_below<compression::dithering>> {
  static constexpr std::string_view name = "BytePSDithering";
  static constexpr std::string_view after = "BytePS with `dithering`";
  static constexpr std::string_view deviations =
      "The same as BytePS's; in addition, a piece shorter than the limit is sent as it is, where "
      "BytePS asks for the length of the whole tensor; the number of bits and the norm precede the "
      "bits, where BytePS puts them at the end; and each rank's rounding draws other random "
      "numbers than BytePS's.";
};

}  // namespace tutti::strategies
