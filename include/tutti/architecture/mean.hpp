#pragma once

namespace tutti::architecture {

/// When a sum of gradients becomes their mean over the ranks.
enum class mean {
  after,  ///< once it is made, as Horovod does
  /// Every rank divides its own, as PyTorch's DistributedDataParallel does: sums of 16 bits then
  /// overflow no sooner than their mean, and small gradients lose digits before they are added.
  before,
  none,  ///< never: the learning rate has to be for a sum; passes of a step are averaged still
};

/// What a state's `average()` is under that rule, of gradients.
template <mean When, class World>
float average_of_gradients(const World& world) {
  const int ranks = When == mean::none ? 1 : world.workers();
  return 1.0f / (static_cast<float>(ranks) * static_cast<float>(world.accumulation()));
}

}  // namespace tutti::architecture
