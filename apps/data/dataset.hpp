#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace data {

/// The extent of one sample. A batch is stored sample by sample, channel by channel, row by row.
struct shape {
  std::size_t channels{1};
  std::size_t height{1};
  std::size_t width{1};

  constexpr std::size_t size() const { return channels * height * width; }
  bool operator==(const shape&) const = default;
};

/// The input of a model in one step: `labels.size()` images, one after the other.
struct batch {
  std::span<const float> images{};
  std::span<const std::uint8_t> labels{};
};

/// Labelled images as bytes. They are converted to floats batch by batch. The ranks of one process
/// can therefore share a data set, and a rank in a process of its own needs a quarter of the
/// memory.
struct dataset {
  shape image{};
  std::size_t classes{};
  float mean{};           ///< of the pixels in [0, 1]
  float deviation{1.0F};  ///< likewise
  std::vector<std::uint8_t> pixels{};
  std::vector<std::uint8_t> labels{};

  std::size_t size() const { return labels.size(); }

  /// Writes image `which` to `out` as pixels of zero mean and unit deviation.
  void standardise(std::size_t which, std::span<float> out) const {
    const float scale = 1.0F / (255.0F * deviation);
    const float offset = -mean / deviation;
    const std::uint8_t* from = pixels.data() + which * image.size();
    for (std::size_t i = 0; i < image.size(); ++i) {
      out[i] = static_cast<float>(from[i]) * scale + offset;
    }
  }
};

/// The training and the test images of a data set.
struct splits {
  dataset train{};
  dataset test{};
};

}  // namespace data
