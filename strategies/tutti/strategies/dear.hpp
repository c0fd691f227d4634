#pragma once

#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/schedule/split_phase.hpp"

namespace tutti::strategies {

/// Reduce-scatters under the backward pass, all-gathers under the next forward pass, in groups of
/// 25 MB: Zhang et al., "DeAR", ICDCS 2023. Here `wait()` flushes what the last step has left.
struct DeAR {
  static constexpr std::string_view name = "DeAR";
  using strategy = compose<fusion::up_to, schedule::split_phase, architecture::all_reduce<>>;
  static constexpr policy_options<strategy> defaults() { return {.fusion = {.bytes = 25'000'000}}; }
};

}  // namespace tutti::strategies
