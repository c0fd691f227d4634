#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/block_of_threads.hpp"

/// The k-th largest key of 31 bits by a radix search: a round counts the keys that begin as the
/// threshold does by their next bits, and narrows it to one of the bins. Beside it the sample of an
/// input whose largest elements suggest where to begin.
namespace tutti::kernels::steps {

inline constexpr std::uint32_t largest_number = 0x7f80'0000u;

inline constexpr unsigned rounds = 3;
inline constexpr std::uint32_t bins = 2048;

TUTTI_HD constexpr unsigned shift_in(unsigned round) {
  return round == 0 ? 20 : round == 1 ? 9 : 0;
}
TUTTI_HD constexpr std::uint32_t digits_in(unsigned round) { return round == 2 ? 0x1ffu : 0x7ffu; }
/// The bits that earlier rounds have found.
TUTTI_HD constexpr std::uint32_t known_in(unsigned round) {
  return round == 0 ? 0 : ~0u << shift_in(round - 1) & 0x7fff'ffffu;
}

/// What is known of the k-th largest key: its first bits, and how many of those that begin with
/// them are still to be taken. In the end the whole key, and how many of its equals.
struct search {
  std::uint32_t prefix;
  std::uint32_t left;
};

/// Whether a key counts in this round; then `bin` is where.
TUTTI_HD inline bool counts(std::uint32_t key, search known, unsigned round, std::uint32_t& bin) {
  bin = key >> shift_in(round) & digits_in(round);
  return (key & known_in(round)) == known.prefix;
}

template <class Block>
TUTTI_HD void clear_bins(const Block& block, std::uint32_t* count) {
  block.each([&](std::uint32_t thread) {
    for (std::uint32_t i = thread; i < bins; i += threads) {
      count[i] = 0;
    }
  });
}

/// Adds what a block has counted to what all have.
template <class Block>
TUTTI_HD void add_bins(const Block& block, const std::uint32_t* counted, std::uint32_t* count) {
  block.each([&](std::uint32_t thread) {
    for (std::uint32_t i = thread; i < bins; i += threads) {
      if (counted[i] != 0) {
        add_atomically(count + i, counted[i]);
      }
    }
  });
}

/// What a block needs to add up bins.
struct bin_sums {
  std::uint32_t from[2][threads];  // each thread's bins and all that are larger
};

/// `after` becomes the search after a round, from its counts; it is left alone should those be
/// fewer than there are to take.
template <class Block>
TUTTI_HD void narrow(const Block& block, search before, unsigned round, const std::uint32_t* count,
                     bin_sums& sums, search& after) {
  constexpr std::uint32_t a_thread = bins / threads;
  block.each([&](std::uint32_t thread) {
    std::uint32_t total = 0;
    for (std::uint32_t i = 0; i < a_thread; ++i) {
      total += count[thread * a_thread + i];
    }
    sums.from[0][thread] = total;
  });
  unsigned last = 0;
  for (std::uint32_t reach = 1; reach < threads; reach *= 2) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t* const sum = sums.from[last];
      sums.from[1 - last][thread] =
          sum[thread] + (thread + reach < threads ? sum[thread + reach] : 0);
    });
    last = 1 - last;
  }
  block.each([&](std::uint32_t thread) {
    const std::uint32_t* const sum = sums.from[last];
    const std::uint32_t above = thread + 1 < threads ? sum[thread + 1] : 0;
    if (above < before.left && before.left <= sum[thread]) {
      std::uint32_t left = before.left - above;
      std::uint32_t bin = thread * a_thread + a_thread - 1;
      for (; count[bin] < left; --bin) {
        left -= count[bin];
      }
      after = {before.prefix | bin << shift_in(round), left};
    }
  });
}

/// Which elements suggest a floor, spread evenly and not in step with anything.
struct sample {
  static constexpr std::size_t most = 8192;

  std::size_t size{};  ///< 0 where a sample would not pay
  std::size_t stride{1};
  std::uint32_t rank{};  ///< of the largest in it, which is the floor

  TUTTI_HD std::size_t place(std::size_t i) const { return i * stride + i % stride; }
};

/// One whose floor somewhat more than k of n should reach.
inline sample sample_for(std::size_t n, std::size_t k) {
  if (n < 4096 || k > n / 4) {
    return {};
  }
  const std::size_t size = std::min(n / 64, sample::most);
  const double expected =
      static_cast<double>(size) * static_cast<double>(k) / static_cast<double>(n);
  const double generous = expected + 3 * std::sqrt(expected) + 3;  // three standard deviations
  return {size, n / size, static_cast<std::uint32_t>(generous)};
}

}  // namespace tutti::kernels::steps
