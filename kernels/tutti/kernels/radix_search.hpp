#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/selection.hpp"

/// How a device selects the k largest magnitudes, exactly and without the host's waiting.
///
/// A sample suggests a floor that a little more than k elements should reach, and one read of a
/// large input gathers these (CUB does). Everything after that reads what was gathered, or the
/// whole input where that turns out to be too little or more than there is room for, which each
/// block sees for itself when it begins.
///
/// A histogram of the keys' first bits says with which of them the k-th largest begins, one of the
/// next bits goes on from there, and after three rounds the threshold is known exactly. Each block
/// counts what its share has of it, and writes behind what the blocks before it have.
namespace tutti::kernels::radix {

inline constexpr unsigned rounds = 3;
inline constexpr std::uint32_t bins = 2048;
inline constexpr std::size_t most_blocks = 512;

TUTTI_HD constexpr unsigned shift_in(unsigned round) { return 20 - 10 * round; }
/// The bits that earlier rounds have found.
TUTTI_HD constexpr std::uint32_t found_in(unsigned round) {
  return round == 0 ? 0 : ~0u << shift_in(round - 1) & 0x7fff'ffffu;
}

/// The first bits of the k-th largest key, and how many of those that begin so are taken. In the
/// end the whole key, and how many of its equals.
struct search {
  std::uint32_t prefix;
  std::uint32_t ties;
};

/// How many elements of a share are above the threshold, in the upper half, and how many are equal
/// to it.
using tally = std::uint64_t;
TUTTI_HD constexpr tally tally_of(std::uint32_t above, std::uint32_t equal) {
  return tally{above} << 32 | equal;
}

/// What the steps of a selection leave for the next.
struct record {
  std::uint32_t floor;
  std::uint32_t gathered;  // elements that reach the floor, whether there was room for them or not
  std::uint32_t count[rounds][bins];
  search found[rounds + 1];  // before each round, and in the end
  tally share[most_blocks];
};

/// Elements to select from.
struct elements {
  const float* values;
  const std::uint32_t* names;  // their indices; null: they count up from 0
  std::size_t n;
};

/// All elements, and room for those that are gathered of them, which may be none.
struct source {
  elements all;
  elements gathered;
  std::uint32_t k;

  /// Where to look for the k largest.
  TUTTI_HD elements looked_at(const record& at) const {
    const bool serves = gathered.n != 0 && at.gathered >= k && at.gathered <= gathered.n;
    return serves ? elements{gathered.values, gathered.names, at.gathered} : all;
  }
};

// ---- to gather

inline constexpr std::uint32_t not_gathered = ~0u;  // no index: there are fewer than 2^32 elements

/// An element's index, if it reaches the floor.
struct index_if_reaching {
  const float* input;
  const std::uint32_t* floor;
  TUTTI_HD std::uint32_t operator()(std::size_t i) const {
    return key_of(input[i]) >= *floor ? static_cast<std::uint32_t>(i) : not_gathered;
  }
};

struct is_gathered {
  TUTTI_HD bool operator()(std::uint32_t index) const { return index != not_gathered; }
};

/// Keeps an element at its place, where there is room for it.
struct keep_gathered {
  const float* input;
  std::uint32_t* indices;
  float* values;
  std::size_t room;
  TUTTI_HD void operator()(std::ptrdiff_t place, std::uint32_t index) const {
    const auto to = static_cast<std::size_t>(place);
    if (to < room) {
      indices[to] = index;
      values[to] = input[index];
    }
  }
};

// ---- to select

inline constexpr std::size_t keys_a_thread = 8;  // loaded together, before any is looked at
inline constexpr std::size_t piece = keys_a_thread * steps::threads;

/// Blocks that share n elements.
constexpr std::size_t blocks_sharing(std::size_t n) {
  return std::min(most_blocks, block_count(n, piece));
}

/// What one block of several looks at: neighbours, in whole pieces. If it has none, nor has any
/// block after it.
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
};

/// Calls `f(i, load(i))` for what a thread of a block has of [begin, end).
template <class Load, class F>
TUTTI_HD void for_each_key(std::uint32_t thread, std::size_t begin, std::size_t end,
                           const Load& load, const F& f) {
  for (std::size_t first = begin + thread; first < end; first += piece) {
    std::uint32_t keys[keys_a_thread];
    for (std::size_t j = 0; j < keys_a_thread; ++j) {
      const std::size_t i = first + j * steps::threads;
      keys[j] = i < end ? load(i) : 0;
    }
    for (std::size_t j = 0; j < keys_a_thread; ++j) {
      const std::size_t i = first + j * steps::threads;
      if (i < end) {
        f(i, keys[j]);
      }
    }
  }
}

/// A thread's counts on the way to its block's: keys of one bin that follow each other are added at
/// once, so that threads do not wait for each other where all keys are alike.
class bin_counter {
 public:
  TUTTI_HD explicit bin_counter(std::uint32_t* count) : count_(count) {}

  TUTTI_HD void add(std::uint32_t bin) {
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
  std::uint32_t bin_ = 0;
  std::uint32_t length_ = 0;
};

/// Where a block adds up a histogram from above.
struct sums_of_bins {
  std::uint32_t of_thread[steps::threads];
  std::uint32_t of_warp[steps::warps];
};

/// Ends a round, of which `before` is what the rounds before it left: the bin of the k-th largest
/// digit goes behind the prefix. One thread finds it, and calls `found`.
template <class Block, class Found>
TUTTI_HD void narrow(const Block& block, const std::uint32_t* count, const search& before,
                     unsigned round, sums_of_bins& sums, const Found& found) {
  constexpr std::uint32_t bins_a_thread = bins / steps::threads;
  block.each([&](std::uint32_t thread) {
    sums.of_thread[thread] = 0;
    for (std::uint32_t i = 0; i < bins_a_thread; ++i) {
      sums.of_thread[thread] += count[thread * bins_a_thread + i];
    }
  });
  block.each([&](std::uint32_t thread) {
    if (thread < steps::warps) {
      sums.of_warp[thread] = 0;
      for (std::uint32_t i = 0; i < steps::lanes; ++i) {
        sums.of_warp[thread] += sums.of_thread[thread * steps::lanes + i];
      }
    }
  });
  block.each([&](std::uint32_t thread) {
    const std::uint32_t warp = thread / steps::lanes;
    std::uint32_t above = 0;
    for (std::uint32_t larger = warp + 1; larger < steps::warps; ++larger) {
      above += sums.of_warp[larger];
    }
    for (std::uint32_t larger = thread + 1; larger < (warp + 1) * steps::lanes; ++larger) {
      above += sums.of_thread[larger];
    }
    for (std::uint32_t bin = (thread + 1) * bins_a_thread; bin-- > thread * bins_a_thread;) {
      if (above < before.ties && before.ties - above <= count[bin]) {
        found(search{before.prefix | bin << shift_in(round), before.ties - above});
      }
      above += count[bin];
    }
  });
}

/// Adds the digits of a round to `count`, which is a block's own.
class digit_counter {
 public:
  TUTTI_HD digit_counter(std::uint32_t* count, const search& before, unsigned round)
      : counter_(count), prefix_(before.prefix), round_(round) {}

  TUTTI_HD void add(std::uint32_t key) {
    if ((key & found_in(round_)) == prefix_) {
      counter_.add((key & ~found_in(round_)) >> shift_in(round_));
    }
  }
  TUTTI_HD void flush() { counter_.flush(); }

 private:
  bin_counter counter_;
  std::uint32_t prefix_;
  unsigned round_;
};

/// One block: a new record, and the floor that a sample suggests, if there is one. Two rounds find
/// the floor's first 21 bits.
struct begin_selection {
  const float* input;
  detail::sample which;
  std::uint32_t k;
  record* at;

  static constexpr unsigned min_blocks_per_sm = 1;

  struct memory {
    std::uint32_t keys[detail::sample::most];
    std::uint32_t count[bins];
    sums_of_bins sums;
    search found[rounds];
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t bin = thread; bin < bins; bin += steps::threads) {
        for (auto& each : at->count) {
          each[bin] = 0;
        }
      }
      if (thread == 0) {
        at->found[0] = {0, k};
        at->gathered = 0;
        shared.found[0] = {0, which.rank};
      }
    });
    if (which.size == 0) {
      return;
    }
    block.each([&](std::uint32_t thread) {
      for_each_key(
          thread, 0, which.size, [&](std::size_t i) { return key_of(input[which.place(i)]); },
          [&](std::size_t i, std::uint32_t key) { shared.keys[i] = key; });
    });
    for (unsigned round = 0; round + 1 < rounds; ++round) {
      block.each([&](std::uint32_t thread) {
        for (std::uint32_t bin = thread; bin < bins; bin += steps::threads) {
          shared.count[bin] = 0;
        }
      });
      block.each([&](std::uint32_t thread) {
        digit_counter digits(shared.count, shared.found[round], round);
        for (std::size_t i = thread; i < which.size; i += steps::threads) {
          digits.add(shared.keys[i]);
        }
        digits.flush();
      });
      narrow(block, shared.count, shared.found[round], round, shared.sums,
             [&](const search& after) { shared.found[round + 1] = after; });
    }
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {  // of a sparse input the zeros are not gathered
        const std::uint32_t floor = shared.found[rounds - 1].prefix;
        at->floor = floor > 0 ? floor : 1;
      }
    });
  }
};

/// Every block learns what the rounds before `round` have found, and the first notes it.
template <class Block>
TUTTI_HD void learn(const Block& block, record& at, unsigned round, sums_of_bins& sums,
                    search& found) {
  if (round == 0) {
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        found = at.found[0];
      }
    });
    return;
  }
  narrow(block, at.count[round - 1], at.found[round - 1], round - 1, sums,
         [&](const search& after) {
           found = after;
           if (block.number == 0) {
             at.found[round] = after;
           }
         });
}

/// Adds each block's digits of a round to the record's.
struct count_digits {
  source from;
  record* at;
  unsigned round;

  static constexpr unsigned min_blocks_per_sm = 2;

  struct memory {
    std::uint32_t count[bins];
    sums_of_bins sums;
    search found;
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const elements in = from.looked_at(*at);
    const share_of mine(block, in.n);
    if (mine.empty()) {
      return;
    }
    learn(block, *at, round, shared.sums, shared.found);
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t bin = thread; bin < bins; bin += steps::threads) {
        shared.count[bin] = 0;
      }
    });
    block.each([&](std::uint32_t thread) {
      digit_counter digits(shared.count, shared.found, round);
      for_each_key(
          thread, mine.begin, mine.end, [&](std::size_t i) { return key_of(in.values[i]); },
          [&](std::size_t, std::uint32_t key) { digits.add(key); });
      digits.flush();
    });
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t bin = thread; bin < bins; bin += steps::threads) {
        if (shared.count[bin] != 0) {
          steps::add_atomically(&at->count[round][bin], shared.count[bin]);
        }
      }
    });
  }
};

/// Every block notes what its share has above the threshold, and equal to it.
struct tally_shares {
  source from;
  record* at;

  static constexpr unsigned min_blocks_per_sm = 2;

  struct memory {
    sums_of_bins sums;
    search found;
    std::uint32_t above;
    std::uint32_t equal;
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const elements in = from.looked_at(*at);
    const share_of mine(block, in.n);
    if (mine.empty()) {
      return;
    }
    learn(block, *at, rounds, shared.sums, shared.found);
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        shared.above = shared.equal = 0;
      }
    });
    block.each([&](std::uint32_t thread) {
      const std::uint32_t threshold = shared.found.prefix;
      std::uint32_t above = 0;
      std::uint32_t equal = 0;
      for_each_key(
          thread, mine.begin, mine.end, [&](std::size_t i) { return key_of(in.values[i]); },
          [&](std::size_t, std::uint32_t key) {
            above += key > threshold ? 1 : 0;
            equal += key == threshold ? 1 : 0;
          });
      if (above + equal != 0) {
        steps::add_atomically(&shared.above, above);
        steps::add_atomically(&shared.equal, equal);
      }
    });
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        at->share[block.number] = tally_of(shared.above, shared.equal);
      }
    });
  }
};

/// Every block writes what its share has, in order: what is above the threshold, and the first of
/// what is equal to it. NaN is above every magnitude; the least element of those that are taken is
/// refused.
struct write_selected {
  source from;
  const record* at;
  std::uint32_t* indices;
  float* values;
  unsigned long long* refused;
  std::uint64_t first_element;

  static constexpr unsigned min_blocks_per_sm = 2;
  static constexpr std::uint32_t words = piece / steps::lanes;

  /// Of a piece: a bit for every element, and the tally of all that comes before a word.
  struct memory {
    std::uint32_t above[words];
    std::uint32_t equal[words];
    tally before[words];
    std::uint32_t above_so_far;
    std::uint32_t equal_so_far;

    TUTTI_HD tally of_word(std::uint32_t word) const {
      return tally_of(steps::count_bits(above[word]), steps::count_bits(equal[word]));
    }
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const elements in = from.looked_at(*at);
    const share_of mine(block, in.n);
    if (mine.empty()) {
      return;
    }
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        shared.above_so_far = shared.equal_so_far = 0;
      }
    });
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t other = thread; other < block.number; other += steps::threads) {
        steps::add_atomically(&shared.above_so_far,
                              static_cast<std::uint32_t>(at->share[other] >> 32));
        steps::add_atomically(&shared.equal_so_far, static_cast<std::uint32_t>(at->share[other]));
      }
    });
    const search threshold = at->found[rounds];
    for (std::size_t begin = mine.begin; begin < mine.end; begin += piece) {
      mark(block, in, begin, mine.end, threshold.prefix, shared);
      block.each([&](std::uint32_t thread) {
        if (thread < words) {
          tally before = tally_of(shared.above_so_far, shared.equal_so_far);
          for (std::uint32_t word = 0; word < thread; ++word) {
            before += shared.of_word(word);
          }
          shared.before[thread] = before;
        }
      });
      block.each([&](std::uint32_t thread) {
        for (std::uint32_t place = thread; place < piece; place += steps::threads) {
          const std::uint32_t word = place / steps::lanes;
          const std::uint32_t bit = 1u << place % steps::lanes;
          const std::uint32_t above = shared.above[word];
          const std::uint32_t equal = shared.equal[word];
          if (((above | equal) & bit) != 0) {
            const tally before =
                shared.before[word] + tally_of(steps::count_bits(above & (bit - 1)),
                                               steps::count_bits(equal & (bit - 1)));
            write(in, begin + place, (equal & bit) != 0, threshold.ties, before);
          }
        }
        if (thread == 0) {
          const tally after = shared.before[words - 1] + shared.of_word(words - 1);
          shared.above_so_far = static_cast<std::uint32_t>(after >> 32);
          shared.equal_so_far = static_cast<std::uint32_t>(after);
        }
      });
    }
  }

 private:
  template <class Block>
  TUTTI_HD static void mark(const Block& block, const elements& in, std::size_t begin,
                            std::size_t end, std::uint32_t threshold, memory& shared) {
    block.each_warp([&](const auto& warp, std::uint32_t number) {
      for (std::uint32_t word = number; word < words; word += steps::warps) {
        const std::size_t first = begin + std::size_t{word} * steps::lanes;
        const auto key = [&](std::uint32_t lane) {
          return first + lane < end ? key_of(in.values[first + lane]) : 0;
        };
        const std::uint32_t above =
            warp.ballot([&](std::uint32_t lane) { return key(lane) > threshold; });
        const std::uint32_t equal = warp.ballot(
            [&](std::uint32_t lane) { return first + lane < end && key(lane) == threshold; });
        warp.each([&](std::uint32_t lane) {
          if (lane == 0) {
            shared.above[word] = above;
            shared.equal[word] = equal;
          }
        });
      }
    });
  }

  TUTTI_HD void write(const elements& in, std::size_t i, bool equal, std::uint32_t ties,
                      tally before) const {
    const auto equals = static_cast<std::uint32_t>(before);
    if (equal && equals >= ties) {
      return;
    }
    const std::size_t to = (before >> 32) + (equals < ties ? equals : ties);
    const std::uint32_t index = in.names == nullptr ? static_cast<std::uint32_t>(i) : in.names[i];
    indices[to] = index;
    values[to] = in.values[i];
    if (key_of(in.values[i]) > largest_number) {
      lower_atomically(refused, first_element + index);
    }
  }
};

}  // namespace tutti::kernels::radix
