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
      "DeepSpeed cuts the whole model in p runs, here each bucket is, in runs that come to as "
      "much a rank; it gathers all parameters before a step ends, here they come in forward order "
      "under the next forward pass, and `wait()` flushes what the last step has left; its "
      "buckets hold 5e8 elements, these 25 MiB, so that there is something to overlap; its "
      "ranks divide their gradients before they are added, here the owner divides the sum. "
      "Everything is fp32.";
  using strategy = compose<fusion::up_to, schedule::split_phase, architecture::sharded<>>;
  static constexpr policy_options<strategy> defaults() { return {.fusion = {.bytes = 25_MiB}}; }
};

/// ZeRO1, but after their reduce-scatter at most a p-th of the gradients is kept. It saves memory
/// only if the model has no memory of its own for gradients (`engine::gradient`).
struct ZeRO2 {
  static constexpr std::string_view name = "ZeRO2";
  static constexpr std::string_view after = "Rajbhandari et al., \"ZeRO\", SC 2020, stage 2";
  static constexpr std::string_view deviations =
      "As ZeRO1's; and there a rank keeps its share of the mean until the step ends, here the "
      "share is used up at once; there each of several accumulated passes is reduced, here "
      "their sum.";
  using strategy =
      compose<fusion::up_to, schedule::split_phase,
              architecture::sharded<collective::ring, architecture::gradients::given_back>>;
  static constexpr policy_options<strategy> defaults() { return {.fusion = {.bytes = 25_MiB}}; }
};

}  // namespace tutti::strategies
