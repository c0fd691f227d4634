#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/radix_search.hpp"
#include "tutti/kernels/selection_tiles.hpp"

/// How a device selects the largest magnitudes, in steps that blocks of threads take one after
/// another.
///
/// 1. A sample suggests a floor that a little more than k elements should reach.
/// 2. One read of the input collects these candidates, each tile's together, and counts them by
///    their first eleven bits. More than there is room for are counted all the same.
/// 3. Where they are fewer than k, the others are counted too.
/// 4. The candidates, or the input where they do not serve, are counted by their next eleven bits,
///    and by the last nine: now the threshold is exact.
/// 5. Each tile counts what it takes, and each writes behind those before it: what is above the
///    threshold and the first of what is equal to it, in order.
///
/// Whether a step has anything to do is known on the device alone, so all are always enqueued.
/// `Values` is where floats are read from: a pointer, or what counts the reads.
namespace tutti::kernels::steps {

// `min_blocks_per_sm`, as in __launch_bounds__: so many blocks have room on a multiprocessor, some
// of which load while others wait. It bounds the registers of each.

/// What steps leave to the next.
struct selecting {
  std::uint32_t count[rounds][bins];
  search known[rounds + 1];  // before each round, and at the end
  std::uint32_t floor;
  std::uint32_t found;  // candidates
};

/// Where the selected go, and the least element that was refused.
struct destination {
  std::uint32_t* indices;
  float* values;
  std::size_t room;
  unsigned long long* refused;
  std::uint64_t first_element;
};

/// Places of scratch that hold the tiles' numbers.
constexpr std::size_t table_places(std::size_t n) { return 2 * tiles_of(n) + blocks_of(n); }

/// The k largest of n, and room for candidates: `places` values and as many indices.
template <class Values>
struct job {
  Values input;
  const std::uint32_t* names;  // indices of the input's elements; null: they count up from 0
  std::size_t n;
  std::uint32_t k;
  sample sampled;
  selecting* state;
  std::size_t capacity;
  float* values;
  std::uint32_t* indices;
  // Of each tile: where its candidates begin and how many they are, and what is taken before it in
  // its block of warps; of each block, what is taken.
  std::uint32_t* begins;
  std::uint32_t* holds;
  std::uint32_t* above;
  std::uint32_t* equal;

  job(Values its_input, std::size_t elements, std::size_t selected, float* its_values,
      std::uint32_t* its_indices, std::size_t places, selecting* its_state,
      const std::uint32_t* its_names = nullptr)
      : input(its_input),
        names(its_names),
        n(elements),
        k(static_cast<std::uint32_t>(selected)),
        sampled(its_names == nullptr ? sample_for(elements, selected) : sample{}),
        state(its_state),
        capacity(places - table_places(elements)),
        values(its_values),
        indices(its_indices),
        begins(reinterpret_cast<std::uint32_t*>(values + capacity)),
        holds(indices + capacity),
        above(begins + tiles_of(elements)),
        equal(holds + tiles_of(elements)) {}

  /// Whether the k largest can be had from the candidates: enough of them, and room for all.
  TUTTI_HD bool have_candidates() const { return state->found >= k && state->found <= capacity; }

  TUTTI_HD source<Values> whole() const {
    return have_candidates() ? source<Values>{Values(values), indices, 0, state->found}
                             : source<Values>{input, names, 0, n};
  }
  TUTTI_HD source<Values> part(std::size_t number) const {
    if (have_candidates()) {
      const std::uint32_t begin = begins[number];
      return {Values(values + begin), indices + begin, 0, holds[number]};
    }
    const std::size_t first = number * tile;
    return {input + first, names == nullptr ? nullptr : names + first, first,
            n - first < tile ? n - first : tile};
  }

  TUTTI_HD tally table(std::size_t i) const { return {above[i], equal[i]}; }
  TUTTI_HD void put_in_table(std::size_t i, tally counted) const {
    above[i] = counted.above;
    equal[i] = counted.equal;
  }
};

/// One block.
template <class Values>
struct suggest_floor {
  job<Values> of;

  static constexpr unsigned min_blocks_per_sm = 1;

  struct memory {
    std::uint32_t key[sample::most];
    std::uint32_t count[bins];
    bin_sums sums;
    search known;
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < rounds * bins; i += threads) {
        of.state->count[i / bins][i % bins] = 0;
      }
      for (std::size_t i = thread; i < of.sampled.size; i += threads) {
        shared.key[i] = key_of(of.input[of.sampled.place(i)]);
      }
      if (thread == 0) {
        of.state->known[0] = {0, of.k};
        of.state->floor = ~0u;
        of.state->found = 0;
        shared.known = {0, of.sampled.rank};
      }
    });
    for (unsigned round = 0; of.sampled.size != 0 && round < rounds; ++round) {
      clear_bins(block, shared.count);
      block.each([&](std::uint32_t thread) {
        for (std::size_t i = thread; i < of.sampled.size; i += threads) {
          std::uint32_t bin = 0;
          if (counts(shared.key[i], shared.known, round, bin)) {
            add_atomically(shared.count + bin, 1);
          }
        }
      });
      narrow(block, shared.known, round, shared.count, shared.sums, shared.known);
    }
    block.each([&](std::uint32_t thread) {
      if (thread == 0 && of.sampled.size != 0) {  // of a sparse input the zeros are no candidates
        of.state->floor = shared.known.prefix == 0 ? 1 : shared.known.prefix;
      }
    });
  }
};

/// A block for each tile, or fewer.
template <class Values>
struct collect_candidates {
  job<Values> of;

  static constexpr unsigned min_blocks_per_sm = 4;

  struct memory {
    std::uint32_t count[bins];
    std::uint32_t hits[warps];
    std::uint32_t begin;
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const std::uint32_t floor = of.state->floor;
    clear_bins(block, shared.count);
    for (std::size_t number = block.number; number < tiles_of(of.n); number += block.count) {
      collect(block, shared, number, floor);
    }
    add_bins(block, shared.count, of.state->count[0]);
  }

 private:
  template <class Block>
  TUTTI_HD void collect(const Block& block, memory& shared, std::size_t number,
                        std::uint32_t floor) const {
    using warp = typename Block::warp;
    typename Block::template of_threads<row_of_lane> held;
    const auto reach = [&](const warp& lanes_of, std::uint32_t g, std::uint32_t p) {
      return masks_of(lanes_of, [&](std::uint32_t lane, std::uint32_t i) {
        return key_of(held[g * lanes + lane].of[p].value[i]) >= floor;
      });
    };
    block.each_warp([&](const warp& lanes_of, std::uint32_t g) {
      const std::size_t first = number * tile + g * row;
      lanes_of.each([&](std::uint32_t lane) {
        load(held[g * lanes + lane], of.input + first, first < of.n ? of.n - first : 0, lane);
      });
      std::uint32_t hits = 0;
      for (std::uint32_t p = 0; p < packs; ++p) {
        hits += reach(lanes_of, g, p).total();
      }
      shared.hits[g] = hits;
    });
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        std::uint32_t hits = 0;
        for (const std::uint32_t each : shared.hits) {
          hits += each;
        }
        shared.begin = add_atomically(&of.state->found, hits);
        of.begins[number] = shared.begin;
        of.holds[number] = hits;
      }
    });
    block.each_warp([&](const warp& lanes_of, std::uint32_t g) {
      std::size_t place = shared.begin;
      for (std::uint32_t i = 0; i < g; ++i) {
        place += shared.hits[i];
      }
      for (std::uint32_t p = 0; p < packs; ++p) {
        const masks hit = reach(lanes_of, g, p);
        const std::size_t first = number * tile + g * row;
        lanes_of.each([&](std::uint32_t lane) {
          for (std::uint32_t i = 0; i < 4; ++i) {
            if (hit.has(lane, i)) {
              const float value = held[g * lanes + lane].of[p].value[i];
              const std::size_t at = place + hit.before(lane, i);
              if (at < of.capacity) {
                of.values[at] = value;
                of.indices[at] = static_cast<std::uint32_t>(first + place_in_row(p, lane) + i);
              }
              add_atomically(shared.count + (key_of(value) >> shift_in(0)), 1);
            }
          }
        });
        place += hit.total();
      }
    });
  }
};

/// The first round looks at what no candidate is, and only where they are too few.
template <class Values>
struct count_keys {
  job<Values> of;
  unsigned round;

  static constexpr unsigned min_blocks_per_sm = 4;

  struct memory {
    std::uint32_t count[bins];
    bin_sums sums;
    search known;
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const source<Values> from = of.whole();
    const std::size_t rows = (from.n + row - 1) / row;
    const bool nothing_to_do =
        round == 0 ? of.state->found >= of.k : block.number != 0 && block.number * warps >= rows;
    if (nothing_to_do) {
      return;
    }
    clear_bins(block, shared.count);
    if (round == 0) {
      block.each([&](std::uint32_t) { shared.known = of.state->known[0]; });
    } else {
      narrow(block, of.state->known[round - 1], round - 1, of.state->count[round - 1], shared.sums,
             shared.known);
    }
    const std::uint32_t below = round == 0 ? of.state->floor : ~0u;
    block.each_warp([&](const typename Block::warp& lanes_of, std::uint32_t g) {
      lanes_of.each([&](std::uint32_t lane) {
        for (std::size_t number = std::size_t{block.number} * warps + g; number < rows;
             number += std::size_t{block.count} * warps) {
          const std::size_t here = number * row;
          row_of_lane held;
          load(held, from.values + here, from.n - here, lane);
          for (std::uint32_t p = 0; p < packs; ++p) {
            for (std::uint32_t i = 0; i < 4; ++i) {
              const std::uint32_t key = key_of(held.of[p].value[i]);
              std::uint32_t bin = 0;
              if (here + place_in_row(p, lane) + i < from.n && key < below &&
                  counts(key, shared.known, round, bin)) {
                add_atomically(shared.count + bin, 1);
              }
            }
          }
        }
      });
    });
    add_bins(block, shared.count, of.state->count[round]);
    if (block.number == 0) {
      of.state->known[round] = shared.known;
    }
  }
};

/// So many blocks that each warp has a tile.
template <class Values>
struct count_selected {
  job<Values> of;

  static constexpr unsigned min_blocks_per_sm = 3;

  struct memory {
    bin_sums sums;
    search limit;
    tally of_warp[warps];
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    using warp = typename Block::warp;
    constexpr unsigned last = rounds - 1;
    narrow(block, of.state->known[last], last, of.state->count[last], shared.sums, shared.limit);
    const std::size_t tiles = tiles_of(of.n);
    block.each_warp([&](const warp& lanes_of, std::uint32_t g) {
      const std::size_t number = std::size_t{block.number} * warps + g;
      tally total{0, 0};
      if (number < tiles) {
        for_each_pack(lanes_of, of.part(number), shared.limit,
                      [&](std::size_t, const masks& above, const masks& equal, const auto&) {
                        total = total + tally{above.total(), equal.total()};
                      });
      }
      shared.of_warp[g] = total;
    });
    block.each([&](std::uint32_t thread) {
      if (thread < warps) {
        const std::size_t number = std::size_t{block.number} * warps + thread;
        tally before{0, 0};
        for (std::uint32_t g = 0; g < thread; ++g) {
          before = before + shared.of_warp[g];
        }
        if (number < tiles) {
          of.put_in_table(number, before);
        }
        if (thread == warps - 1) {
          of.put_in_table(tiles + block.number, before + shared.of_warp[thread]);
        }
      }
    });
    if (block.number == 0) {
      of.state->known[rounds] = shared.limit;
    }
  }
};

/// So many blocks that each warp has a tile.
template <class Values>
struct write_selected {
  job<Values> of;
  destination out;

  static constexpr unsigned min_blocks_per_sm = 2;

  struct memory {
    tally before[threads];
  };

  template <class Block>
  TUTTI_HD void operator()(const Block& block, memory& shared) const {
    const std::size_t tiles = tiles_of(of.n);
    block.each([&](std::uint32_t thread) {
      tally sum{0, 0};
      for (std::uint32_t earlier = thread; earlier < block.number; earlier += threads) {
        sum = sum + of.table(tiles + earlier);
      }
      shared.before[thread] = sum;
    });
    for (std::uint32_t half = threads / 2; half > 0; half /= 2) {
      block.each([&](std::uint32_t thread) {
        if (thread < half) {
          shared.before[thread] = shared.before[thread] + shared.before[thread + half];
        }
      });
    }
    block.each_warp([&](const typename Block::warp& lanes_of, std::uint32_t g) {
      const std::size_t number = std::size_t{block.number} * warps + g;
      if (number < tiles) {
        write(lanes_of, of.part(number), shared.before[0] + of.table(number));
      }
    });
  }

 private:
  template <class Warp>
  TUTTI_HD void write(const Warp& warp, const source<Values>& from, tally before) const {
    const search limit = of.state->known[rounds];
    for_each_pack(
        warp, from, limit,
        [&](std::size_t first, const masks& above, const masks& equal, const auto& value) {
          warp.each([&](std::uint32_t lane) {
            for (std::uint32_t i = 0; i < 4; ++i) {
              const std::uint32_t ties = before.equal + equal.before(lane, i);
              const bool taken = above.has(lane, i) || (equal.has(lane, i) && ties < limit.left);
              const std::size_t place = std::size_t{before.above} + above.before(lane, i) +
                                        (ties < limit.left ? ties : limit.left);
              if (taken && place < out.room) {
                const std::uint32_t index = from.index(first + lane * 4 + i);
                out.indices[place] = index;
                out.values[place] = value(lane, i);
                if (key_of(value(lane, i)) > largest_number) {
                  lower_atomically(out.refused, out.first_element + index);
                }
              }
            }
          });
          before = before + tally{above.total(), equal.total()};
        });
  }
};

/// Enqueues all steps, each by `launch(blocks, step)`.
template <class Values, class Launch>
void select(const Launch& launch, const job<Values>& of, const destination& out) {
  constexpr std::size_t most_blocks = 2048;
  const std::size_t wanted = std::min(tiles_of(of.n), most_blocks);
  launch(1, suggest_floor<Values>{of});
  if (of.sampled.size != 0) {
    launch(wanted, collect_candidates<Values>{of});
  }
  for (unsigned round = 0; round < rounds; ++round) {
    launch(wanted, count_keys<Values>{of, round});
  }
  launch(blocks_of(of.n), count_selected<Values>{of});
  launch(blocks_of(of.n), write_selected<Values>{of, out});
}

}  // namespace tutti::kernels::steps
