#pragma once

#include <cstddef>
#include <span>

#include "models/declaration.hpp"

namespace models {

/// Mean and variance of each channel of a batch_norm.
struct moments {
  std::span<float> mean{};
  std::span<float> variance{};
};

/// Returns a layer's part of all running statistics. `channels_before` channels of earlier layers
/// precede it.
inline moments running_part(std::span<float> statistics, std::size_t channels_before,
                            std::size_t channels) {
  return {statistics.subspan(channels_before, channels),
          statistics.subspan(statistics.size() / 2 + channels_before, channels)};
}

/// Updates running statistics with those of a batch of `count` values a channel. A batch is
/// normalised by its own variance, which divides by `count`. The running variance estimates that of
/// all images without bias, and so divides by `count - 1`.
inline void move_by(const moments& running, const moments& batch, std::size_t count) {
  constexpr auto share = static_cast<float>(batch_norm::momentum);
  const float unbiased =
      count > 1 ? static_cast<float>(count) / static_cast<float>(count - 1) : 1.0F;
  for (std::size_t c = 0; c < running.mean.size(); ++c) {
    running.mean[c] += share * (batch.mean[c] - running.mean[c]);
    running.variance[c] += share * (batch.variance[c] * unbiased - running.variance[c]);
  }
}

}  // namespace models
