#pragma once

namespace tutti::architecture {

/// When gradients are divided by the number of ranks, to make a mean of their sum.
enum class mean {
  after,  ///< after they are added, as Horovod does
  /// Every rank divides its own gradients before they are added, as PyTorch's
  /// DistributedDataParallel does. Sums in 16 bits then overflow no sooner than their mean, but
  /// small gradients lose digits.
  before,
  none,  ///< never: the learning rate must suit a sum (a step's passes are still averaged)
};

/// Returns a state's `average()` for gradients, under the rule `When`.
template <mean When, class World>
float average_of_gradients(const World& world) {
  const int ranks = When == mean::none ? 1 : world.workers();
  return 1.0f / (static_cast<float>(ranks) * static_cast<float>(world.accumulation()));
}

}  // namespace tutti::architecture
