#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tutti {

/// Words of 32 signs each.
using packed_words = std::vector<std::uint32_t>;

inline packed_words words_of(const std::vector<std::byte>& payload, std::size_t skip = 0) {
  packed_words made((payload.size() - skip) / sizeof(std::uint32_t));
  if (!made.empty()) {
    std::memcpy(made.data(), payload.data() + skip, made.size() * sizeof(std::uint32_t));
  }
  return made;
}

/// Returns the published layout: pads with zeros to 32 rows of equal length and reads down the
/// columns.
inline packed_words published_layout(const std::vector<double>& values) {
  const std::size_t columns = (values.size() + 31) / 32;
  std::vector<double> padded(32 * columns);
  std::copy(values.begin(), values.end(), padded.begin());
  packed_words packed(columns);
  for (std::size_t column = 0; column < columns; ++column) {
    for (std::size_t row = 0; row < 32; ++row) {
      packed[column] = packed[column] * 2 + (padded[row * columns + column] < 0 ? 1 : 0);
    }
  }
  return packed;
}

inline std::vector<double> unpacked(const packed_words& packed, std::size_t n) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t word = packed[i % packed.size()];
    values[i] = word >> (31 - i / packed.size()) & 1 ? -1 : 1;
  }
  return values;
}

inline std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

}  // namespace tutti
