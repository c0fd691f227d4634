#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tutti {

inline std::string in_hex(const std::vector<std::byte>& payload) {
  std::string digits;
  for (const std::byte each : payload) {
    for (const unsigned half :
         {std::to_integer<unsigned>(each) >> 4, std::to_integer<unsigned>(each) & 15}) {
      digits += "0123456789abcdef"[half];
    }
  }
  return digits;
}

/// Returns exact gradients of many different values, as used for the vectors that original programs
/// made.
inline std::vector<float> gradient_in_512ths(std::size_t elements, std::size_t step) {
  std::vector<float> made(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    made[i] = static_cast<float>(static_cast<int>((i * 7919 + step * 104729) % 2001) - 1000) / 512;
  }
  return made;
}

}  // namespace tutti
