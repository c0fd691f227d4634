#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/selection.hpp"

namespace tutti::kernels {

// Pairs of an index and a value, sorted by index. Several pairs may have the same index: then the
// first of them has the value, and the others have 0. Kernels never add a zero, so that no two
// threads of a device write to the same element.

namespace detail {

/// Returns how many of `n` sorted indices are below `index`.
TUTTI_HD inline std::size_t count_below(const std::uint32_t* indices, std::size_t n,
                                        std::uint64_t index) {
  std::size_t first = 0;
  while (n > 0) {
    const std::size_t half = n / 2;
    if (indices[first + half] < index) {
      first += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return first;
}

}  // namespace detail

namespace element {

/// Writes one pair to its place in the merged array: behind the pairs before it in its own array,
/// and the pairs of the other array with lower indices. At an index that both arrays have, the pair
/// of `mine` comes first and gets the sum.
struct merge_pairs {
  const std::uint32_t* my_indices;
  const float* my_values;
  std::size_t my_count;
  const std::uint32_t* their_indices;
  const float* their_values;
  std::size_t their_count;
  std::uint32_t* indices;
  float* values;

  TUTTI_HD void operator()(std::size_t i) const {
    if (i < my_count) {
      const std::uint32_t index = my_indices[i];
      const std::size_t below = detail::count_below(their_indices, their_count, index);
      const bool first = i == 0 || my_indices[i - 1] != index;
      const bool shared = below < their_count && their_indices[below] == index;
      indices[i + below] = index;
      values[i + below] = first && shared ? my_values[i] + their_values[below] : my_values[i];
    } else {
      const std::size_t j = i - my_count;
      const std::uint32_t index = their_indices[j];
      const std::size_t up_to = detail::count_below(my_indices, my_count, std::uint64_t{index} + 1);
      const bool shared = up_to > 0 && my_indices[up_to - 1] == index;
      indices[j + up_to] = index;
      values[j + up_to] = shared ? 0.0f : their_values[j];
    }
  }
};

struct add_absent {
  const std::uint32_t* indices;
  const float* values;
  const std::uint32_t* present;
  std::size_t present_count;
  float* sum;
  std::size_t n;

  TUTTI_HD void operator()(std::size_t i) const {
    const std::uint32_t index = indices[i];
    const std::size_t below = detail::count_below(present, present_count, index);
    const bool absent = below == present_count || present[below] != index;
    if (absent && values[i] != 0 && index < n) {
      sum[index] += values[i];
    }
  }
};

}  // namespace element

/// Merges the pairs of both, sorted, into `out`, which has room for them all. Values of the same
/// index are added, mine + theirs. Cost: a binary search a pair.
template <host_queue Queue>
void merge_pairs(Queue& queue, const pairs& mine, const pairs& theirs, selection out) {
  queue.for_each(
      mine.size() + theirs.size(),
      element::merge_pairs{mine.indices.data(), mine.values, mine.size(), theirs.indices.data(),
                           theirs.values, theirs.size(), out.indices.data(), out.values});
}
void merge_pairs(cuda::stream& queue, const pairs& mine, const pairs& theirs, selection out);

/// sum[index] += value for every pair whose index is not in `present`, which is sorted. Throws
/// communication_error if an index is not below sum.size(); a device leaves that pair out. Cost: a
/// binary search a pair.
template <host_queue Queue>
void add_absent(Queue& queue, const pairs& some, std::span<const std::uint32_t> present,
                std::span<float> sum) {
  queue.run([=] { detail::expect_elements(some.indices, sum.size()); });
  queue.for_each(some.size(), element::add_absent{some.indices.data(), some.values, present.data(),
                                                  present.size(), sum.data(), sum.size()});
}
void add_absent(cuda::stream& queue, const pairs& some, std::span<const std::uint32_t> present,
                std::span<float> sum);

}  // namespace tutti::kernels
