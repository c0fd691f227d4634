#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/pair_heap.hpp"
#include "tutti/kernels/xorshift.hpp"

namespace tutti::kernels {

namespace element {

/// Draws 64 random elements for each thread, one after the other.
struct draw_some {
  static constexpr std::size_t each = 64;

  const float* input;
  std::size_t n;
  xorshift128_plus random;
  std::size_t first_draw;
  index_pair* out;
  std::size_t count;

  TUTTI_HD void operator()(std::size_t thread) const {
    draw(thread * each, thread * each + each < count ? thread * each + each : count);
  }
  TUTTI_HD void draw(std::size_t begin, std::size_t end) const {
    xorshift128_plus mine = random;
    mine.discard(first_draw + begin);
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t index = mine() % n;
      out[i] = {static_cast<std::uint32_t>(index), input[index]};
    }
  }
};

struct clear_pair {
  float* data;
  const index_pair* pairs;
  TUTTI_HD void operator()(std::size_t i) const { data[pairs[i].index] = 0; }
};

/// Adds a pair unless a pair before it has the same index.
struct add_new_pair {
  const index_pair* pairs;
  float* sum;
  std::size_t n;
  TUTTI_HD void operator()(std::size_t i) const {
    for (std::size_t before = 0; before < i; ++before) {
      if (pairs[before].index == pairs[i].index) {
        return;
      }
    }
    if (pairs[i].index < n) {
      sum[pairs[i].index] += pairs[i].value;
    }
  }
};

}  // namespace element

/// Draws out.size() random elements: out[i] becomes the element of `input` whose index is random
/// number `first_draw` + i of those that follow `seed`, modulo the input's length, so some may
/// occur twice. `input` may be empty only if `out` is.
template <host_queue Queue>
void draw_pairs(Queue& queue, std::span<const float> input, std::uint64_t seed,
                std::size_t first_draw, std::span<index_pair> out) {
  queue.run([=] {
    if (!out.empty()) {
      element::draw_some{input.data(), input.size(), xorshift128_plus(seed),
                         first_draw,   out.data(),   out.size()}
          .draw(0, out.size());
    }
  });
}
/// Draws the same elements on a device, 64 in each thread.
void draw_pairs(cuda::stream& queue, std::span<const float> input, std::uint64_t seed,
                std::size_t first_draw, std::span<index_pair> out);

/// Selects the out.size() elements of largest magnitude, at most input.size(), as a heap whose root
/// has the smallest. A later element enters only if it is larger than the root, and takes the
/// root's place. Throws usage_error at a NaN, named by `first_element` + its index.
template <host_queue Queue>
void select_by_heap(Queue& queue, std::span<const float> input, std::uint64_t first_element,
                    std::span<index_pair> out) {
  queue.run([=] {
    const pair_heap heap{out.data(), out.size()};
    const auto at = [=](std::size_t i) {
      if (key_of(input[i]) > infinity_key) {
        refuse_nan(first_element + i);
      }
      return index_pair{static_cast<std::uint32_t>(i), input[i]};
    };
    for (std::size_t i = 0; i < out.size(); ++i) {
      heap.push(i, at(i));
    }
    constexpr std::size_t block = 64;  // most blocks hold nothing that enters, and end here
    for (std::size_t begin = out.size(); begin < input.size() && !out.empty(); begin += block) {
      const std::size_t end = std::min(begin + block, input.size());
      std::uint32_t largest = 0;
      for (std::size_t i = begin; i < end; ++i) {
        largest = std::max(largest, key_of(input[i]));
      }
      for (std::size_t i = begin; i < end && largest > heap.smallest(); ++i) {
        if (key_of(input[i]) > heap.smallest()) {
          heap.replace_smallest(at(i));
        }
      }
    }
  });
}
/// Selects the pairs that the host selects, in its order. What enters depends on all that has
/// entered before, so one block of threads reads the input and one of its threads keeps the heap.
/// NaN is refused as by select_largest.
void select_by_heap(cuda::stream& queue, std::span<const float> input, std::uint64_t first_element,
                    std::span<index_pair> out);

/// sum[index] += value; of several pairs with the same index only the first counts. Throws
/// communication_error, and adds nothing, if an index is not below sum.size(). A device, which
/// cannot throw, leaves that pair out.
template <host_queue Queue>
void add_pairs(Queue& queue, std::span<const index_pair> pairs, std::span<float> sum) {
  queue.run([=] {
    std::uint32_t last = 0;
    for (const index_pair& each : pairs) {
      last = std::max(last, each.index);
    }
    if (!pairs.empty() && last >= sum.size()) {
      refuse_element(last, sum.size());
    }
    constexpr std::size_t window = 262144;  // elements whose bits stay in the first-level cache
    std::array<std::uint64_t, window / 64> added;
    for (std::size_t begin = 0; begin < sum.size() && !pairs.empty(); begin += window) {
      added.fill(0);
      for (const index_pair& each : pairs) {
        const std::size_t place = each.index - begin;
        if (place < window) {
          const std::uint64_t bit = std::uint64_t{1} << place % 64;
          if ((added[place / 64] & bit) == 0) {
            added[place / 64] |= bit;
            sum[each.index] += each.value;
          }
        }
      }
    }
  });
}
/// Adds on a device, which compares each pair with all before it.
void add_pairs(cuda::stream& queue, std::span<const index_pair> pairs, std::span<float> sum);

/// data[index] = 0.
template <host_queue Queue>
void clear_pairs(Queue& queue, std::span<float> data, std::span<const index_pair> pairs) {
  queue.run([=] {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      element::clear_pair{data.data(), pairs.data()}(i);
    }
  });
}
void clear_pairs(cuda::stream& queue, std::span<float> data, std::span<const index_pair> pairs);

}  // namespace tutti::kernels
