#pragma once

#include <string_view>

#include "tutti/architecture/sharded.hpp"
#include "tutti/base/units.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/schedule/split_phase.hpp"

namespace tutti::strategies {

/// On p ranks, each rank has the optimizer state of a p-th of the parameters.
struct ZeRO1 {
  static constexpr std::string_view name = "ZeRO1";
  static constexpr std::string_view after = "Rajbhandari et al., \"ZeRO\", SC 2020, stage 1";
  static constexpr std::string_view deviations =
      "DeepSpeed cuts the whole model into p runs, tutti each bucket, so that every rank gets the "
      "same amount in all. DeepSpeed gathers all parameters before a step ends; in tutti they "
      "arrive in forward order during the next forward pass, and `wait()` completes what the last "
      "step left outstanding. DeepSpeed's buckets hold 5e8 elements, tutti's 25 MiB, so that there "
      "is something to overlap. DeepSpeed's ranks divide gradients before they are added; in tutti "
      "the owner divides the sum. Everything is fp32.";
  using strategy = compose<fusion::up_to, schedule::split_phase, architecture::sharded<>>;
  static constexpr policy_options<strategy> defaults() { return {.fusion = {.bytes = 25_MiB}}; }
};

/// ZeRO1, but after their reduce-scatter at most a p-th of the gradients is kept. It saves memory
/// only if the model has no memory of its own for gradients (`engine::gradient`).
struct ZeRO2 {
  static constexpr std::string_view name = "ZeRO2";
  static constexpr std::string_view after = "Rajbhandari et al., \"ZeRO\", SC 2020, stage 2";
  static constexpr std::string_view deviations =
      "The same as ZeRO1's; in addition, a DeepSpeed rank keeps its share of the mean until the "
      "step ends, where tutti uses it at once; DeepSpeed reduces each of several accumulated "
      "passes, tutti their sum.";
  using strategy =
      compose<fusion::up_to, schedule::split_phase,
              architecture::sharded<collective::ring, architecture::gradients::given_back>>;
  static constexpr policy_options<strategy> defaults() { return {.fusion = {.bytes = 25_MiB}}; }
};

}  // namespace tutti::strategies
