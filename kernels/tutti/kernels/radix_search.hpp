#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"

/// How blocks of threads find the k-th largest key. A histogram of the keys' first bits says with
/// which of these the k-th largest begins, a histogram of the next bits goes on from there, and
/// after three rounds the whole key is known.
namespace tutti::kernels::radix {

inline constexpr unsigned rounds = 3;
inline constexpr std::uint32_t bins = 2048;

TUTTI_HD constexpr unsigned shift_in(unsigned round) { return 20 - 10 * round; }
/// Returns the mask of the bits that the rounds before `round` have found.
TUTTI_HD constexpr std::uint32_t found_in(unsigned round) {
  return round == 0 ? 0 : ~0u << shift_in(round - 1) & 0x7fff'ffffu;
}

/// What a search knows: the first bits of the k-th largest key, and how many of the keys that begin
/// with these bits are among the k largest. In the end `prefix` is the whole key, and `ties` is how
/// many keys equal to it are taken.
struct search {
  std::uint32_t prefix;
  std::uint32_t ties;
};

// ---- how threads divide the keys

/// How many neighbouring keys a thread loads together.
inline constexpr std::uint32_t keys_a_thread = 8;
/// How many keys the threads of a block load together.
inline constexpr std::size_t piece = std::size_t{keys_a_thread} * steps::threads;

/// The keys of neighbouring elements. Those past the last element are 0 and not in `count`.
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

/// The share of one of several blocks of threads in n elements: whole pieces that follow each
/// other. If a block's share is empty, so are those of all later blocks.
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

  /// Calls `f(first, neighbours)` for all elements of a thread.
  template <class F>
  TUTTI_HD void for_each(std::uint32_t thread, const float* values, const F& f) const {
    for (std::size_t first = begin + thread * keys_a_thread; first < end; first += piece) {
      f(first, neighbours(values, first, end));
    }
  }
};

/// A number of each thread of a block, and the sums of them over the threads before one, after one,
/// or over all.
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

/// Adds a thread's digits of one round to its block's histogram. Digits of one bin that follow each
/// other are added in one operation, so that threads do not wait for each other where all keys are
/// alike.
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

/// Ends a round: appends the digit of the k-th largest key to the prefix that the rounds before
/// have found (`before`). One thread finds it, and calls `found` with the result.
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
