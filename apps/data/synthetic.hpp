#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "data/dataset.hpp"

namespace data {

struct synthetic_options {
  shape image{1, 28, 28};
  std::size_t classes{10};
  std::size_t train{6000};
  std::size_t test{1000};
  std::uint64_t seed{1};
};

/// Makes images that need no download and can be learnt: each class is a random picture under
/// noise. The same options give the same bytes.
inline splits synthetic(const synthetic_options& options = {}) {
  std::mt19937_64 random(options.seed);
  const auto byte = [&] { return static_cast<std::uint8_t>(random() >> 56); };
  std::vector<std::uint8_t> pictures(options.classes * options.image.size());
  std::generate(pictures.begin(), pictures.end(), byte);

  const auto draw = [&](std::size_t count) {
    dataset made{.image = options.image,
                 .classes = options.classes,
                 .mean = 0.5F,
                 .deviation = 0.204F,  // of the mean of two uniform bytes
                 .pixels = std::vector<std::uint8_t>(count * options.image.size()),
                 .labels = std::vector<std::uint8_t>(count)};
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t kind = i % options.classes;
      made.labels[i] = static_cast<std::uint8_t>(kind);
      for (std::size_t p = 0; p < options.image.size(); ++p) {
        const unsigned picture = pictures[kind * options.image.size() + p];
        made.pixels[i * options.image.size() + p] =
            static_cast<std::uint8_t>((picture + byte()) / 2U);
      }
    }
    return made;
  };
  dataset train = draw(options.train);
  return {.train = std::move(train), .test = draw(options.test)};
}

}  // namespace data
