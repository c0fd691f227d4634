#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"

/// How blocks of threads find the k-th largest key: a histogram of the keys' first bits says with
/// which of them it begins, one of the next bits goes on from there, and after three rounds the
/// whole key is known.
namespace tutti::kernels::radix {

inline constexpr unsigned rounds = 3;
inline constexpr std::uint32_t bins = 2048;

TUTTI_HD constexpr unsigned shift_in(unsigned round) { return 20 - 10 * round; }
/// The bits that earlier rounds have found.
TUTTI_HD constexpr std::uint32_t found_in(unsigned round) {
  return round == 0 ? 0 : ~0u << shift_in(round - 1) & 0x7fff'ffffu;
}

/// The first bits of the k-th largest key, and how many of the keys that begin so are taken. In the
/// end the whole key, and how many of its equals.
struct search {
  std::uint32_t prefix;
  std::uint32_t ties;
};

// ---- who looks at what

/// Neighbours whose keys a thread loads together.
inline constexpr std::uint32_t keys_a_thread = 8;
/// What the threads of a block load together.
inline constexpr std::size_t piece = std::size_t{keys_a_thread} * steps::threads;

/// Keys of neighbours, some of which may be behind the last element.
struct neighbours {
  std::uint32_t key[keys_a_thread];
  std::uint32_t count;

  TUTTI_HD neighbours(const float* values, std::size_t first, std::size_t end)
      : key{},
        count(first >= end                   ? 0
              : end - first >= keys_a_thread ? keys_a_thread
                                             : static_cast<std::uint32_t>(end - first)) {
    constexpr std::uint32_t width = 4;
    using pack = kernels::detail::pack_of<float, width>;
    if (count == keys_a_thread && aligned_for<width>(values + first)) {
      const auto* packs = reinterpret_cast<const pack*>(values + first);
      for (std::uint32_t i = 0; i < keys_a_thread / width; ++i) {
        const pack loaded = packs[i];
        for (std::uint32_t lane = 0; lane < width; ++lane) {
          key[i * width + lane] = key_of(loaded.value[lane]);
        }
      }
    } else {
      for (std::uint32_t i = 0; i < keys_a_thread; ++i) {
        key[i] = i < count ? key_of(values[first + i]) : 0;
      }
    }
  }
};

/// What one block of several looks at of n elements: whole pieces that follow each other. If it has
/// none, nor has any block after it.
struct share_of {
  std::size_t begin;
  std::size_t end;

  template <class Block>
  TUTTI_HD share_of(const Block& block, std::size_t n) {
    const std::size_t length = block_count(block_count(n, piece), block.count) * piece;
    begin = block.number * length < n ? block.number * length : n;
    end = n - begin < length ? n : begin + length;
  }
  TUTTI_HD bool empty() const { return begin == end; }

  /// Calls `f(first, neighbours)` for all that a thread looks at.
  template <class F>
  TUTTI_HD void for_each(std::uint32_t thread, const float* values, const F& f) const {
    for (std::size_t first = begin + thread * keys_a_thread; first < end; first += piece) {
      f(first, neighbours(values, first, end));
    }
  }
};

/// What the threads of a block have each, added up.
struct sums {
  std::uint32_t of_thread[steps::threads];
  std::uint32_t of_warp[steps::warps];

  template <class Block, class F>
  TUTTI_HD void add_up(const Block& block, const F& f) {
    block.each([&](std::uint32_t thread) { of_thread[thread] = f(thread); });
    block.each([&](std::uint32_t thread) {
      if (thread < steps::warps) {
        of_warp[thread] = total(of_thread, thread * steps::lanes, (thread + 1) * steps::lanes);
      }
    });
  }
  TUTTI_HD std::uint32_t before(std::uint32_t thread) const {
    const std::uint32_t warp = thread / steps::lanes;
    return total(of_warp, 0, warp) + total(of_thread, warp * steps::lanes, thread);
  }
  TUTTI_HD std::uint32_t after(std::uint32_t thread) const {
    const std::uint32_t warp = thread / steps::lanes;
    return total(of_thread, thread + 1, (warp + 1) * steps::lanes) +
           total(of_warp, warp + 1, steps::warps);
  }
  TUTTI_HD std::uint32_t of_all() const { return total(of_warp, 0, steps::warps); }

 private:
  TUTTI_HD static std::uint32_t total(const std::uint32_t* terms, std::uint32_t begin,
                                      std::uint32_t end) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = begin; i < end; ++i) {
      sum += terms[i];
    }
    return sum;
  }
};

// ---- a round

template <class Block>
TUTTI_HD void clear(const Block& block, std::uint32_t* count) {
  block.each([&](std::uint32_t thread) {
    for (std::uint32_t bin = thread; bin < bins; bin += steps::threads) {
      count[bin] = 0;
    }
  });
}

/// Adds a thread's digits of a round to its block's histogram: those of one bin that follow each
/// other at once, so that threads do not wait for each other where all keys are alike.
class digit_counter {
 public:
  TUTTI_HD digit_counter(std::uint32_t* count, const search& before, unsigned round)
      : count_(count), prefix_(before.prefix), round_(round) {}

  TUTTI_HD void add(std::uint32_t key) {
    if ((key & found_in(round_)) != prefix_) {
      return;
    }
    const std::uint32_t bin = (key & ~found_in(round_)) >> shift_in(round_);
    if (bin != bin_) {
      flush();
      bin_ = bin;
    }
    ++length_;
  }
  TUTTI_HD void flush() {
    if (length_ != 0) {
      steps::add_atomically(count_ + bin_, length_);
    }
    length_ = 0;
  }

 private:
  std::uint32_t* count_;
  std::uint32_t prefix_;
  unsigned round_;
  std::uint32_t bin_ = 0;
  std::uint32_t length_ = 0;
};

/// Ends a round, of which `before` is what the rounds before it left: the bin of the k-th largest
/// digit goes behind the prefix. One thread finds it, and calls `found`.
template <class Block, class Found>
TUTTI_HD void narrow(const Block& block, const std::uint32_t* count, const search& before,
                     unsigned round, sums& counted, const Found& found) {
  constexpr std::uint32_t bins_a_thread = bins / steps::threads;
  counted.add_up(block, [&](std::uint32_t thread) {
    std::uint32_t mine = 0;
    for (std::uint32_t i = 0; i < bins_a_thread; ++i) {
      mine += count[thread * bins_a_thread + i];
    }
    return mine;
  });
  block.each([&](std::uint32_t thread) {
    std::uint32_t above = counted.after(thread);
    for (std::uint32_t bin = (thread + 1) * bins_a_thread; bin-- > thread * bins_a_thread;) {
      if (above < before.ties && before.ties - above <= count[bin]) {
        found(search{before.prefix | bin << shift_in(round), before.ties - above});
      }
      above += count[bin];
    }
  });
}

}  // namespace tutti::kernels::radix
