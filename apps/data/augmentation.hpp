#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "data/dataset.hpp"

namespace data {

/// Shows each image through a square window at a random position, mirrored in half of the cases.
/// Around the image lie `padding` pixels of the mean. The window is drawn from seed, epoch and
/// image, so that it changes with the epoch, but does not depend on which worker has the image and
/// is the same when a run resumes from a checkpoint. After: He et al., "Deep residual learning",
/// 2016, section 4.2.
struct augmentation {
  std::size_t side{};  ///< of the window; 0: images as they are
  std::size_t padding{};

  shape of(const shape& image) const {
    return side == 0 ? image : shape{image.channels, side, side};
  }

  /// Writes image `which`, through its window of this epoch, as pixels of zero mean and unit
  /// deviation.
  void standardise(const dataset& from, std::size_t which, std::uint64_t seed, std::uint64_t epoch,
                   std::span<float> out) const {
    if (side == 0) {
      from.standardise(which, out);
      return;
    }
    const std::uint64_t drawn = mixed(mixed(mixed(seed) + epoch) + which);
    const std::size_t rows = from.image.height + 2 * padding - side + 1;
    const std::size_t columns = from.image.width + 2 * padding - side + 1;
    show(from, which, (drawn >> 1) % rows, (drawn >> 32) % columns,
         (drawn & 1) == 0 ? facing::as_it_is : facing::turned_round, out);
  }

  /// Writes image `which` through a window in its middle and not mirrored, as test images are
  /// shown.
  void standardise_centre(const dataset& from, std::size_t which, std::span<float> out) const {
    if (side == 0) {
      from.standardise(which, out);
      return;
    }
    show(from, which, (from.image.height + 2 * padding - side) / 2,
         (from.image.width + 2 * padding - side) / 2, facing::as_it_is, out);
  }

 private:
  enum class facing { as_it_is, turned_round };

  /// Hashes 64 bits, as in Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
  /// 2014.
  static constexpr std::uint64_t mixed(std::uint64_t bits) {
    bits += 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    return bits ^ bits >> 31;
  }

  void show(const dataset& from, std::size_t which, std::size_t top, std::size_t left, facing how,
            std::span<float> out) const {
    const float scale = 1.0F / (255.0F * from.deviation);
    const float offset = -from.mean / from.deviation;
    const std::uint8_t* next = from.pixels.data() + which * from.image.size();
    std::size_t to = 0;
    for (std::size_t c = 0; c < from.image.channels; ++c) {
      for (std::size_t y = top; y < top + side; ++y) {
        for (std::size_t i = 0; i < side; ++i) {
          const std::size_t x = left + (how == facing::as_it_is ? i : side - 1 - i);
          const bool inside = y >= padding && y < padding + from.image.height && x >= padding &&
                              x < padding + from.image.width;
          out[to++] = inside ? static_cast<float>(
                                   next[(c * from.image.height + y - padding) * from.image.width +
                                        x - padding]) *
                                       scale +
                                   offset
                             : 0.0F;
        }
      }
    }
  }
};

}  // namespace data
