#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/elements.hpp"

/// How a device selects the largest magnitudes, step by step. Threads work together in groups of 32
/// that do everything at once; a `Group` calls a function for each of its lanes, so that a host can
/// stand for one and the same text is tested without a device.
///
/// 1. Count the keys' first eleven bits; the bin where the k-th largest lies gives a floor.
/// 2. Of a long input, collect what reaches the floor, in order, if it serves.
/// 3. Count the next eleven bits and the last nine of those: now the threshold is exact.
/// 4. Write what is above it and the first of what is equal to it, in order.
///
/// Collecting and writing are one thing: each tile counts what it takes, the counts are summed up,
/// and each tile writes behind those before it.
namespace tutti::kernels::steps {

// ---- a group of 32 lanes

TUTTI_HD inline std::uint32_t ones(std::uint32_t mask) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__popc(mask));
#else
  return static_cast<std::uint32_t>(std::popcount(mask));
#endif
}

inline constexpr std::uint32_t lanes = 32;

/// Set bits of `mask` below `lane`: where its element goes among the group's.
TUTTI_HD inline std::uint32_t before_lane(std::uint32_t mask, std::uint32_t lane) {
  return ones(mask & ((1u << lane) - 1));
}

/// A host that stands for a group: one lane after another.
struct host_group {
  /// A key for each lane.
  using keys = std::array<std::uint32_t, lanes>;

  template <class F>
  void load(keys& into, const F& f) const {
    each([&](std::uint32_t lane) { into[lane] = f(lane); });
  }
  template <class F>
  std::uint32_t ballot(const F& f) const {
    std::uint32_t mask = 0;
    each([&](std::uint32_t lane) { mask |= (f(lane) ? 1u : 0u) << lane; });
    return mask;
  }
  template <class F>
  void each(const F& f) const {
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      f(lane);
    }
  }
};

// ---- the threshold

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
  std::uint32_t prefix{};
  std::uint32_t left{};
};

/// Whether a key counts in this round; then `bin` is where.
TUTTI_HD inline bool counts(std::uint32_t key, search known, unsigned round, std::uint32_t& bin) {
  bin = key >> shift_in(round) & digits_in(round);
  return (key & known_in(round)) == known.prefix;
}

/// Keys in the bins that `lane` looks after.
inline constexpr std::uint32_t bins_a_lane = bins / lanes;
TUTTI_HD inline std::uint32_t counted_by(std::uint32_t lane, const std::uint32_t* count) {
  std::uint32_t total = 0;
  for (std::uint32_t i = 0; i < bins_a_lane; ++i) {
    total += count[lane * bins_a_lane + i];
  }
  return total;
}

/// The search after a round, from its counts and the lanes' sums of them: from the top down.
TUTTI_HD inline search narrowed(search before, unsigned round, const std::uint32_t* count,
                                const std::uint32_t* of_lanes) {
  std::uint32_t left = before.left;
  std::uint32_t lane = lanes - 1;
  for (; of_lanes[lane] < left; --lane) {
    left -= of_lanes[lane];
  }
  std::uint32_t bin = lane * bins_a_lane + bins_a_lane - 1;
  for (; count[bin] < left; --bin) {
    left -= count[bin];
  }
  return {before.prefix | bin << shift_in(round), left};
}

/// What a first round makes of the floor that candidates reach: all above a key, and no equals. A
/// floor of 0 leaves out zeros, and too few candidates show that they were needed.
TUTTI_HD inline search floor_of(search first) {
  return {first.prefix == 0 ? 0 : first.prefix - 1, 0};
}

// ---- collecting in order

/// What is selected from; `indices` is null where an element's place is its index.
struct source {
  const float* values{};
  const std::uint32_t* indices{};
  std::size_t n{};

  TUTTI_HD std::uint32_t index(std::size_t i) const {
    return indices == nullptr ? static_cast<std::uint32_t>(i) : indices[i];
  }
};

/// Whether the k largest can be had from so many candidates: enough of them, and room for all.
TUTTI_HD constexpr bool serve(std::uint32_t found, std::size_t room, std::size_t k) {
  return found >= k && found <= room;
}

/// The candidates where they serve, or the whole input.
TUTTI_HD inline source chosen(source input, source room, std::uint32_t found, std::size_t k) {
  if (!serve(found, room.n, k)) {
    return input;
  }
  room.n = found;
  return room;
}

/// Elements that one group collects, row by row.
inline constexpr std::size_t tile = 1024;
TUTTI_HD constexpr std::size_t tiles_of(std::size_t n) { return (n + tile - 1) / tile; }

/// Elements above a threshold and equal to it: of a tile, or of all before it.
struct tally {
  std::uint32_t above{};
  std::uint32_t equal{};

  friend TUTTI_HD tally operator+(tally a, tally b) {
    return {a.above + b.above, a.equal + b.equal};
  }
};

/// Rows whose keys are loaded before the first is looked at: memory is far away.
inline constexpr std::size_t rows_at_once = 4;

/// Calls `row(first element, lanes above, lanes equal)` for each row of a tile.
template <class Group, class Row>
TUTTI_HD void for_each_row(const Group& group, const source& from, std::size_t number, search limit,
                           const Row& row) {
  const std::size_t begin = number * tile;
  const std::size_t end = from.n - begin < tile ? from.n : begin + tile;
  for (std::size_t first = begin; first < end; first += rows_at_once * lanes) {
    typename Group::keys keys[rows_at_once];
    for (std::size_t r = 0; r < rows_at_once; ++r) {
      group.load(keys[r], [&](std::uint32_t lane) {
        const std::size_t i = first + r * lanes + lane;
        return i < end ? key_of(from.values[i]) : 0;
      });
    }
    for (std::size_t r = 0; r < rows_at_once; ++r) {
      const std::size_t here = first + r * lanes;
      const std::uint32_t above =
          group.ballot([&](std::uint32_t lane) { return keys[r][lane] > limit.prefix; });
      const std::uint32_t equal = group.ballot(
          [&](std::uint32_t lane) { return here + lane < end && keys[r][lane] == limit.prefix; });
      row(here, above, equal);
    }
  }
}

template <class Group>
TUTTI_HD tally count_tile(const Group& group, const source& from, std::size_t number,
                          search limit) {
  tally total;
  for_each_row(group, from, number, limit,
               [&](std::size_t, std::uint32_t above, std::uint32_t equal) {
                 total = total + tally{ones(above), ones(equal)};
               });
  return total;
}

/// Where the selected go; what does not fit in `room` is left out.
struct destination {
  std::uint32_t* indices{};
  float* values{};
  std::size_t room{};
};

/// Writes what a tile takes behind what those before it have; `refuse(index)` hears of NaN.
template <class Group, class Refuse>
TUTTI_HD void write_tile(const Group& group, const source& from, std::size_t number, search limit,
                         tally before, const destination& out, const Refuse& refuse) {
  for_each_row(group, from, number, limit,
               [&](std::size_t first, std::uint32_t above, std::uint32_t equal) {
                 group.each([&](std::uint32_t lane) {
                   const std::uint32_t ties = before.equal + before_lane(equal, lane);
                   const bool taken =
                       (above >> lane & 1) != 0 || ((equal >> lane & 1) != 0 && ties < limit.left);
                   const std::size_t place = std::size_t{before.above} + before_lane(above, lane) +
                                             (ties < limit.left ? ties : limit.left);
                   if (taken && place < out.room) {
                     const float value = from.values[first + lane];
                     out.indices[place] = from.index(first + lane);
                     out.values[place] = value;
                     if (key_of(value) > largest_number) {
                       refuse(from.index(first + lane));
                     }
                   }
                 });
                 before = before + tally{ones(above), ones(equal)};
               });
}

/// Nothing is refused among candidates: it is among the selected if it is anywhere.
struct refuse_nothing {
  TUTTI_HD void operator()(std::uint32_t) const {}
};

}  // namespace tutti::kernels::steps
