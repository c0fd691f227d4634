#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/radix_search.hpp"
#include "tutti/kernels/selection.hpp"

/// The steps in which a device selects the k largest magnitudes, exactly and without making the
/// host wait.
///
/// For a large input a sample suggests a floor that a little more than k elements should reach. One
/// read of the input marks the elements that do, the candidates, and these are listed, in order.
/// All later steps look at the list, or at all elements if there are fewer than k candidates or
/// more than there is room for. Every block finds out which when it begins.
///
/// Histograms find the threshold. Then each block counts how many elements of its share are above
/// the threshold and equal to it, and writes those that are selected behind those of the blocks
/// before it.
namespace tutti::kernels::radix {

inline constexpr std::size_t most_blocks = 512;

/// Returns how many blocks share n elements.
constexpr std::size_t blocks_sharing(std::size_t n) {
  return std::min(most_blocks, block_count(n, piece));
}

/// How many elements are above the threshold, and how many are equal to it.
struct tally {
  std::uint32_t above;
  std::uint32_t equal;
};

/// What each step of a selection leaves for later steps.
struct record {
  std::uint32_t floor;
  std::uint32_t candidates;           // how many elements reach the floor
  std::uint32_t marked[most_blocks];  // how many of them are in each block's share
  std::uint32_t count[rounds][bins];  // the histogram of each round
  search found[rounds + 1];           // the search before each round, and its end
  tally tallies[most_blocks];
};

/// Elements to select from.
struct elements {
  const float* values;
  const std::uint32_t* names;  // the elements' indices; null: 0, 1, 2, …
  std::size_t n;
};

/// All elements, and the list of candidates; `room` is 0 if there is none.
struct source {
  elements all;
  std::uint32_t k;
  std::uint32_t* indices;
  float* values;
  std::size_t room;

  /// Whether the list holds all candidates, and these are at least k.
  TUTTI_HD bool list_serves(const record& at) const {
    return room != 0 && at.candidates >= k && at.candidates <= room;
  }
  /// Returns the elements to look at: the list if it serves, otherwise all.
  TUTTI_HD elements looked_at(const record& at) const {
    return list_serves(at) ? elements{values, indices, at.candidates} : all;
  }
};

// ---- to list candidates

/// Returns the bytes of the marks of n elements: a bit each, rounded up to whole pieces.
constexpr std::size_t mark_bytes(std::size_t n) { return block_count(n, piece) * piece / 8; }

/// Begins a new record, and finds the floor that a sample suggests, if there is a sample. It runs
/// on one block. Two rounds find the floor's first 21 bits.
struct begin_selection {
  const float* input;
  detail::sample which;
  std::uint32_t k;
  record* at;

  static constexpr unsigned min_blocks_per_sm = 1;

  struct memory {
    std::uint32_t keys[detail::sample::most];
    std::uint32_t count[bins];
    sums counted;
    search found[rounds];
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    for (auto& count : at->count) {
      clear(block, count);
    }
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        at->candidates = 0;
        at->found[0] = {0, k};
        shared.found[0] = {0, which.rank};
      }
      load_sample(thread, shared.keys);
    });
    if (which.size == 0) {
      return;
    }
    for (unsigned round = 0; round + 1 < rounds; ++round) {
      clear(block, shared.count);
      block.each([&](std::uint32_t thread) {
        digit_counter digits(shared.count, shared.found[round], round);
        for (std::size_t i = thread; i < which.size; i += steps::threads) {
          digits.add(shared.keys[i]);
        }
        digits.flush();
      });
      narrow(block, shared.count, shared.found[round], round, shared.counted,
             [&](const search& after) { shared.found[round + 1] = after; });
    }
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {  // zeros of a sparse input are no candidates
        const std::uint32_t floor = shared.found[rounds - 1].prefix;
        at->floor = floor > 0 ? floor : 1;
      }
    });
  }

 private:
  /// Loads a thread's part of the sample: all of it before the first value is used, because the
  /// elements lie far apart.
  TUTTI_HD void load_sample(std::uint32_t thread, std::uint32_t* keys) const {
    constexpr std::size_t most = detail::sample::most / steps::threads;
    std::uint32_t loaded[most];
    for (std::size_t j = 0; j < most; ++j) {
      const std::size_t i = j * steps::threads + thread;
      loaded[j] = i < which.size ? key_of(input[which.place(i)]) : 0;
    }
    for (std::size_t j = 0; j < most; ++j) {
      keys[j * steps::threads + thread] = loaded[j];
    }
  }
};

/// Marks the elements that reach the floor and counts them. Each thread writes a byte of marks at a
/// time.
struct mark_candidates {
  const float* input;
  std::size_t n;
  std::uint8_t* marks;
  record* at;

  static constexpr unsigned min_blocks_per_sm = 3;

  struct memory {
    std::uint32_t count;
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const share_of mine(block, n);
    if (mine.empty()) {
      return;
    }
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        shared.count = 0;
      }
    });
    block.each([&](std::uint32_t thread) {
      const std::uint32_t floor = at->floor;
      std::uint32_t count = 0;
      for (std::size_t begin = mine.begin; begin < mine.end; begin += piece) {
        const std::size_t first = begin + thread * keys_a_thread;
        const neighbours some(input, first, mine.end);
        std::uint32_t reaching = 0;
        for (std::uint32_t i = 0; i < keys_a_thread; ++i) {  // past the last element keys are 0
          reaching |= some.key[i] >= floor ? 1u << i : 0;
        }
        marks[first / keys_a_thread] = static_cast<std::uint8_t>(reaching);
        count += steps::count_bits(reaching);
      }
      if (count != 0) {
        steps::add_atomically(&shared.count, count);
      }
    });
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        at->marked[block.number] = shared.count;
        steps::add_atomically(&at->candidates, shared.count);
      }
    });
  }
};
static_assert(keys_a_thread == 8);

/// Lists the marked elements, in order, if the list will serve.
struct list_candidates {
  source from;
  const std::uint8_t* marks;
  const record* at;

  static constexpr unsigned min_blocks_per_sm = 2;

  struct memory {
    sums counted;
    std::uint32_t listed;
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const share_of mine(block, from.all.n);
    if (mine.empty() || !from.list_serves(*at)) {
      return;
    }
    shared.counted.add_up(block, [&](std::uint32_t thread) {
      return thread < block.number ? at->marked[thread] : 0;
    });
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        shared.listed = shared.counted.of_all();
      }
    });
    for (std::size_t begin = mine.begin; begin < mine.end; begin += look) {
      shared.counted.add_up(block, [&](std::uint32_t thread) {
        std::uint32_t count = 0;
        for_each_word(thread, begin, mine.end,
                      [&](std::size_t, std::uint32_t word) { count += steps::count_bits(word); });
        return count;
      });
      block.each([&](std::uint32_t thread) {
        std::size_t to = std::size_t{shared.listed} + shared.counted.before(thread);
        for_each_word(thread, begin, mine.end, [&](std::size_t first, std::uint32_t word) {
          steps::for_each_bit(word, [&](std::uint32_t bit) {
            from.indices[to] = static_cast<std::uint32_t>(first + bit);
            from.values[to] = from.all.values[first + bit];
            ++to;
          });
        });
      });
      block.each([&](std::uint32_t thread) {
        if (thread == 0) {
          shared.listed += shared.counted.of_all();
        }
      });
    }
  }

 private:
  static constexpr std::uint32_t words_a_thread = 4;
  static constexpr std::size_t look = std::size_t{words_a_thread} * 32 * steps::threads;

  /// Calls `f(first element, marks)` for each word of marks that a thread looks at, of elements
  /// from `begin` on.
  template <class F>
  TUTTI_HD void for_each_word(std::uint32_t thread, std::size_t begin, std::size_t end,
                              const F& f) const {
    for (std::uint32_t i = 0; i < words_a_thread; ++i) {
      const std::size_t first = begin + (std::size_t{thread} * words_a_thread + i) * 32;
      if (first < end) {
        f(first, word_of_marks(first));
      }
    }
  }
  TUTTI_HD std::uint32_t word_of_marks(std::size_t first) const {
    using pack = detail::pack_of<std::uint8_t, 4>;
    const pack bytes = reinterpret_cast<const pack*>(marks)[first / 32];
    std::uint32_t word = 0;
    for (unsigned i = 0; i < 4; ++i) {
      word |= std::uint32_t{bytes.value[i]} << 8 * i;
    }
    return word;
  }
};
static_assert(most_blocks <= steps::threads);

// ---- to select

/// Every block computes what the rounds before `round` have found; the first block writes it to the
/// record.
template <class Block>
TUTTI_HD void learn(const Block& block, record& at, unsigned round, sums& counted, search& found) {
  if (round == 0) {
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        found = at.found[0];
      }
    });
    return;
  }
  narrow(block, at.count[round - 1], at.found[round - 1], round - 1, counted,
         [&](const search& after) {
           found = after;
           if (block.number == 0) {
             at.found[round] = after;
           }
         });
}

/// Adds each block's histogram of a round to the record's.
struct count_digits {
  source from;
  record* at;
  unsigned round;

  static constexpr unsigned min_blocks_per_sm = 3;

  struct memory {
    std::uint32_t count[bins];
    sums counted;
    search found;
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const elements in = from.looked_at(*at);
    const share_of mine(block, in.n);
    if (mine.empty()) {
      return;
    }
    learn(block, *at, round, shared.counted, shared.found);
    clear(block, shared.count);
    block.each([&](std::uint32_t thread) {
      digit_counter digits(shared.count, shared.found, round);
      mine.for_each(thread, in.values, [&](std::size_t, const neighbours& some) {
        for (std::uint32_t i = 0; i < keys_a_thread; ++i) {
          if (i < some.count) {
            digits.add(some.key[i]);
          }
        }
      });
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

TUTTI_HD inline tally tally_of(const neighbours& some, std::uint32_t threshold) {
  tally of{};
  for (std::uint32_t i = 0; i < keys_a_thread; ++i) {
    of.above += some.key[i] > threshold ? 1 : 0;  // past the last element keys are 0
    of.equal += i < some.count && some.key[i] == threshold ? 1 : 0;
  }
  return of;
}

/// Writes to the record how many elements of each block's share are above the threshold, and how
/// many are equal to it.
struct tally_shares {
  source from;
  record* at;

  static constexpr unsigned min_blocks_per_sm = 3;

  struct memory {
    sums counted;
    search found;
    tally mine;
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const elements in = from.looked_at(*at);
    const share_of mine(block, in.n);
    if (mine.empty()) {
      return;
    }
    learn(block, *at, rounds, shared.counted, shared.found);
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        shared.mine = {};
      }
    });
    block.each([&](std::uint32_t thread) {
      tally all{};
      mine.for_each(thread, in.values, [&](std::size_t, const neighbours& some) {
        const tally of = tally_of(some, shared.found.prefix);
        all.above += of.above;
        all.equal += of.equal;
      });
      if (all.above + all.equal != 0) {
        steps::add_atomically(&shared.mine.above, all.above);
        steps::add_atomically(&shared.mine.equal, all.equal);
      }
    });
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        at->tallies[block.number] = shared.mine;
      }
    });
  }
};

/// Writes the selected elements of each block's share, in order: those above the threshold, and the
/// first of those equal to it. NaN is above every magnitude. If NaN is among the selected elements,
/// `refused` becomes the least of their indices, counted from `first_element`.
struct write_selected {
  source from;
  const record* at;
  std::uint32_t* indices;
  float* values;
  unsigned long long* refused;
  std::uint64_t first_element;

  static constexpr unsigned min_blocks_per_sm = 2;

  struct memory {
    sums counted;
    tally before;  // how many elements come before the piece
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const elements in = from.looked_at(*at);
    const share_of mine(block, in.n);
    if (mine.empty()) {
      return;
    }
    for (const auto part : {&tally::above, &tally::equal}) {
      shared.counted.add_up(block, [&](std::uint32_t thread) {
        return thread < block.number ? at->tallies[thread].*part : 0;
      });
      block.each([&](std::uint32_t thread) {
        if (thread == 0) {
          shared.before.*part = shared.counted.of_all();
        }
      });
    }
    const search threshold = at->found[rounds];
    for (std::size_t begin = mine.begin; begin < mine.end; begin += piece) {
      const auto look = [&](std::uint32_t thread) {
        return neighbours(in.values, begin + thread * keys_a_thread, mine.end);
      };
      shared.counted.add_up(block, [&](std::uint32_t thread) {
        return packed(tally_of(look(thread), threshold.prefix));
      });
      block.each([&](std::uint32_t thread) {
        if (shared.counted.of_thread[thread] != 0) {
          write(in, begin + thread * keys_a_thread, look(thread), threshold,
                sum(shared.before, unpacked(shared.counted.before(thread))));
        }
      });
      block.each([&](std::uint32_t thread) {
        if (thread == 0) {
          shared.before = sum(shared.before, unpacked(shared.counted.of_all()));
        }
      });
    }
  }

 private:
  /// Packs the tally of a piece into one word, in which it fits.
  TUTTI_HD static std::uint32_t packed(tally of) { return of.above << 16 | of.equal; }
  TUTTI_HD static tally unpacked(std::uint32_t word) { return {word >> 16, word & 0xffffu}; }
  static_assert(piece < 1 << 16);

  TUTTI_HD static tally sum(tally one, tally other) {
    return {one.above + other.above, one.equal + other.equal};
  }

  TUTTI_HD void write(const elements& in, std::size_t first, const neighbours& some,
                      const search& threshold, tally before) const {
    for (std::uint32_t i = 0; i < keys_a_thread; ++i) {
      const bool above = some.key[i] > threshold.prefix;  // past the last element keys are 0
      const bool equal = i < some.count && some.key[i] == threshold.prefix;
      if (above || (equal && before.equal < threshold.ties)) {
        const std::uint32_t ties = before.equal < threshold.ties ? before.equal : threshold.ties;
        keep(in, first + i, std::size_t{before.above} + ties);
      }
      before.above += above ? 1 : 0;
      before.equal += equal ? 1 : 0;
    }
  }

  TUTTI_HD void keep(const elements& in, std::size_t i, std::size_t to) const {
    const std::uint32_t index = in.names == nullptr ? static_cast<std::uint32_t>(i) : in.names[i];
    indices[to] = index;
    values[to] = in.values[i];
    if (key_of(in.values[i]) > infinity_key) {
      lower_atomically(refused, first_element + index);
    }
  }
};

}  // namespace tutti::kernels::radix
