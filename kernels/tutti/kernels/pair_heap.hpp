#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/elements.hpp"

namespace tutti::kernels {

/// An element of a payload, and its index in the array.
struct index_pair {
  std::uint32_t index;
  float value;
};

/// Pairs as a binary heap whose root has the smallest magnitude. Every pair lies where libstdc++'s
/// push_heap and pop_heap would leave it, because BytePS sends the pairs in that order.
struct pair_heap {
  index_pair* pairs;
  std::size_t count;

  TUTTI_HD std::uint32_t smallest() const { return key_of(pairs[0].value); }

  /// Adds a pair to a heap that so far holds the `place` pairs before it.
  TUTTI_HD void push(std::size_t place, index_pair pair) const { settle(place, pair); }

  /// Removes the root and adds `pair`.
  TUTTI_HD void replace_smallest(index_pair pair) const {
    const std::size_t last = count - 1;  // its pair moves to the place that becomes free
    const index_pair moved = pairs[last];
    std::size_t free = 0;
    for (std::size_t right = 2; right <= last; right = 2 * free + 2) {
      const bool left_is_less = right == last || key_at(right) > key_at(right - 1);
      const std::size_t child = left_is_less ? right - 1 : right;
      pairs[free] = pairs[child];
      free = child;
    }
    settle(free, moved);
    settle(last, pair);
  }

 private:
  TUTTI_HD std::uint32_t key_at(std::size_t place) const { return key_of(pairs[place].value); }

  /// Puts `pair` on the way from a free place to the root, after moving down the pairs there that
  /// are larger.
  TUTTI_HD void settle(std::size_t place, index_pair pair) const {
    while (place > 0 && key_at((place - 1) / 2) > key_of(pair.value)) {
      pairs[place] = pairs[(place - 1) / 2];
      place = (place - 1) / 2;
    }
    pairs[place] = pair;
  }
};

namespace steps {

/// Fills a heap with the pairs of largest magnitude, on one block of threads. All threads look for
/// elements that are larger than the root, and one thread lets these enter in the order of their
/// indices. The root only grows, so an element that was no larger once need not be looked at again.
struct fill_heap {
  const float* input;
  std::size_t elements;
  pair_heap heap;
  unsigned long long* refused;
  std::uint64_t first_element;

  static constexpr unsigned min_blocks_per_sm = 1;
  static constexpr std::uint32_t words = 128;

  /// The result of one look at `words * lanes` elements: a bit for every element that is larger
  /// than the root, and a bit for every word that holds such a bit.
  struct memory {
    std::uint32_t larger[words];
    std::uint32_t holding[words / lanes];
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    block.each([&](std::uint32_t thread) {
      for (std::size_t i = 0; i < heap.count && thread == 0; ++i) {
        heap.push(i, taken(i));
      }
    });
    constexpr std::size_t look = std::size_t{words} * lanes;
    for (std::size_t begin = heap.count; begin < elements; begin += look) {
      block.each([&](std::uint32_t thread) {
        if (thread < words) {
          shared.larger[thread] = 0;
          shared.holding[thread / lanes] = 0;
        }
      });
      block.each([&](std::uint32_t thread) { mark(thread, begin, shared); });
      block.each([&](std::uint32_t thread) {
        for (std::uint32_t group = 0; group < words / lanes && thread == 0; ++group) {
          for_each_bit(shared.holding[group], [&](std::uint32_t bit) {
            const std::uint32_t word = group * lanes + bit;
            for_each_bit(shared.larger[word], [&](std::uint32_t lane) {
              let_in(begin + std::size_t{word} * lanes + lane);
            });
          });
        }
      });
    }
  }

 private:
  TUTTI_HD void mark(std::uint32_t thread, std::size_t begin, memory& shared) const {
    const std::uint32_t root = heap.smallest();
    const std::uint32_t lane = thread % lanes;
    for (std::uint32_t word = thread / lanes; word < words; word += warps) {
      const std::size_t i = begin + std::size_t{word} * lanes + lane;
      if (i < elements && key_of(input[i]) > root &&
          add_atomically(&shared.larger[word], 1u << lane) == 0) {
        add_atomically(&shared.holding[word / lanes], 1u << word % lanes);
      }
    }
  }

  TUTTI_HD void let_in(std::size_t i) const {
    if (key_of(input[i]) > heap.smallest()) {
      heap.replace_smallest(taken(i));
    }
  }

  TUTTI_HD index_pair taken(std::size_t i) const {
    if (key_of(input[i]) > infinity_key) {
      lower_atomically(refused, first_element + i);
    }
    return {static_cast<std::uint32_t>(i), input[i]};
  }
};

}  // namespace steps

}  // namespace tutti::kernels
