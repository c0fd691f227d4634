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
      "ZeRO++ sends gradients in four bits and across hosts in a second hop, and shards "
      "parameters, too, with a copy in each host; tutti sends gradients in eight bits in one hop, "
      "and every rank keeps all parameters. ZeRO++'s values are halves, in blocks of some 8000 "
      "parameters or of a row or column of gradients, and its scale is a 128th of the largest "
      "magnitude, which is clipped if positive; tutti's are floats in blocks of 256, and its scale "
      "is a 127th.";
  using strategy = compose<fusion::up_to, schedule::split_phase, architecture::sharded_by_owners,
                           compression::remembering_answers<compression::block_int8>>;
  static constexpr policy_options<strategy> defaults() { return {.fusion = {.bytes = 25_MiB}}; }
};

}  // namespace tutti::strategies
