#pragma once

#include <string_view>

#include "tutti/compression/none.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti::strategies {

/// Sends matrices as products of rank 2 and remembers what that loses. Vectors are sent as they
/// are.
struct PowerSGD {
  static constexpr std::string_view name = "PowerSGD";
  static constexpr std::string_view after = "Vogels et al., \"PowerSGD\", NeurIPS 2019";
  static constexpr std::string_view deviations =
      "A tensor's declared shape says whether it is a matrix. PyTorch's hook begins with 1000 "
      "dense steps (`start`), compresses a matrix only if that halves it, and keeps as the "
      "residual of other tensors how much they differ from the mean, which cancels in the sum over "
      "all ranks.";
  using strategy =
      compose<fusion::up_to,
              compression::select<matrices, compression::power_sgd, compression::none>>;
  static constexpr policy_options<strategy> defaults() {
    return {.compression = {.chosen = {.rank = 2}}};
  }
};

}  // namespace tutti::strategies
