#pragma once

#include <string_view>

#include "tutti/architecture/sharded_by_owners.hpp"
#include "tutti/base/units.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/remembering_answers.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/schedule/split_phase.hpp"

namespace tutti::strategies {

/// Sends gradients to their owners, and parameters back from them, in blocks of int8. A parameter
/// in full precision is what ranks have plus what its owner remembers.
struct ZeROPlusPlus {
  static constexpr std::string_view name = "ZeROPlusPlus";
  static constexpr std::string_view after = "Wang et al., \"ZeRO++\", 2023";
  static constexpr std::string_view deviations =
      "There gradients have four bits and cross hosts in a second hop, and parameters are sharded, "
      "too, with a copy in each host; here gradients have eight, go in one hop, and every rank "
      "keeps all parameters. There values are halves, in blocks of some 8000 parameters or of a "
      "row or column of gradients, and a scale is a 128th of the largest magnitude, which loses "
      "one where it is positive; here they are floats in blocks of 256, and it is a 127th.";
  using strategy = compose<fusion::up_to, schedule::split_phase, architecture::sharded_by_owners,
                           compression::remembering_answers<compression::block_int8>>;
  static constexpr policy_options<strategy> defaults() { return {.fusion = {.bytes = 25_MiB}}; }
};

}  // namespace tutti::strategies
