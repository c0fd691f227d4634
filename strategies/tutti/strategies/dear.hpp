#pragma once

#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/excluding.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/by_modules.hpp"
#include "tutti/schedule/split_phase.hpp"

namespace tutti::strategies {

/// Overlaps reduce-scatters with the backward pass, and all-gathers with the next forward pass, in
/// groups of whole modules below 25 MiB.
struct DeAR {
  static constexpr std::string_view name = "DeAR";
  static constexpr std::string_view after = "Zhang et al., \"DeAR\", ICDCS 2023";
  static constexpr std::string_view deviations =
      "`wait()` completes what the last step left outstanding; buckets are not padded to a "
      "multiple of the number of ranks, so shares of a bucket may differ by one element.";
  using strategy = compose<fusion::by_modules, schedule::split_phase, architecture::all_reduce<>>;
};

/// DeAR with groups of four modules that follow each other (its NUM_NEARBY_LAYERS).
struct DeARNearby {
  static constexpr std::string_view name = "DeARNearby";
  static constexpr std::string_view after = "Zhang et al., \"DeAR\", ICDCS 2023, nearby layers";
  static constexpr std::string_view deviations = "The same as DeAR's.";
  using strategy = DeAR::strategy;
  static constexpr policy_options<strategy> defaults() { return {.fusion = {.modules = 4}}; }
};

/// DeAR with one of its phases left out, for a breakdown of its time. The result is not a mean.
/// These are the original's `--exclude-parts reducescatter` and `allgather`.
template <collective::phase Excluded>
struct DeARExcluding {
  static constexpr std::string_view name =
      Excluded == collective::phase::all_gather ? "DeAR-allgather" : "DeAR-reducescatter";
  using strategy = compose<fusion::by_modules, schedule::split_phase,
                           architecture::all_reduce<collective::excluding<Excluded>>>;
};

}  // namespace tutti::strategies
