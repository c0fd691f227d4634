#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

// Devices have no twins of these yet: their queues say so, in `run`.
namespace tutti::kernels {

namespace detail {

/// The key of the largest magnitude; 0 if there are none.
inline std::uint32_t largest_bits(std::span<const float> input) {
  std::uint32_t largest = 0;
  for (const float each : input) {
    largest = std::max(largest, key_of(each));
  }
  return largest;
}

}  // namespace detail

/// *result becomes the sum of the squares of `input`, added in double in a fixed order, so that
/// every processor gives the same bits: a float's square is exact in double.
template <class Queue>
void sum_of_squares(Queue& queue, std::span<const float> input, double* result) {
  queue.run([=] {
    widest([=] {
      const auto square = [=](std::size_t i) {
        return static_cast<double>(input[i]) * static_cast<double>(input[i]);
      };
      *result = sum_in_lanes(input.size(), square);
    });
  });
}

/// *result becomes the largest |input[i]|: NaN if one of them is, 0 if there are none.
template <class Queue>
void largest_magnitude(Queue& queue, std::span<const float> input, float* result) {
  queue.run([=] { widest([=] { *result = std::bit_cast<float>(detail::largest_bits(input)); }); });
}

}  // namespace tutti::kernels
