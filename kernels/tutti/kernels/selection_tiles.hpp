#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/radix_search.hpp"

/// How a device looks at an input that it selects from: a warp at a row at a time, a block at a
/// tile, with a mask of the lanes whose elements are meant.
namespace tutti::kernels::steps {

using pack = kernels::detail::pack_of<float, 4>;

TUTTI_HD inline bool begins_a_pack(const float* values) { return aligned_for<4>(values); }
TUTTI_HD inline pack pack_at(const float* values) { return *reinterpret_cast<const pack*>(values); }

inline constexpr std::uint32_t packs = 4;
/// Elements that a warp loads together, for memory is far away: packs of neighbouring lanes are
/// neighbours.
inline constexpr std::uint32_t row = packs * 4 * lanes;

struct row_of_lane {
  pack of[packs];
};

TUTTI_HD constexpr std::uint32_t place_in_row(std::uint32_t p, std::uint32_t lane) {
  return (p * lanes + lane) * 4;
}

/// What a lane has of the row at `from`, of which n elements are there, and zeros for the others.
template <class Values>
TUTTI_HD void load(row_of_lane& into, Values from, std::size_t n, std::uint32_t lane) {
  const bool together = begins_a_pack(from);
  for (std::uint32_t p = 0; p < packs; ++p) {
    const std::size_t place = place_in_row(p, lane);
    if (together && place + 4 <= n) {
      into.of[p] = pack_at(from + place);
    } else {
      for (std::uint32_t i = 0; i < 4; ++i) {
        into.of[p].value[i] = place + i < n ? from[place + i] : 0.0f;
      }
    }
  }
}

/// Which elements of a warp's packs are meant: a bit for each lane, of the first of the four, the
/// second and so on.
struct masks {
  std::uint32_t of[4];

  TUTTI_HD std::uint32_t total() const {
    return ones(of[0]) + ones(of[1]) + ones(of[2]) + ones(of[3]);
  }
  TUTTI_HD bool has(std::uint32_t lane, std::uint32_t i) const { return (of[i] >> lane & 1) != 0; }
  /// How many lie before a lane's i-th.
  TUTTI_HD std::uint32_t before(std::uint32_t lane, std::uint32_t i) const {
    std::uint32_t sum = 0;
    for (std::uint32_t each = 0; each < 4; ++each) {
      const std::uint32_t here = each < i ? 1 : 0;
      sum += ones(of[each] & ((1u << lane) - 1)) + (of[each] >> lane & here);
    }
    return sum;
  }
};

/// The elements of which `f(lane, i)` is true.
template <class Warp, class F>
TUTTI_HD masks masks_of(const Warp& warp, const F& f) {
  masks made;
  for (std::uint32_t i = 0; i < 4; ++i) {
    made.of[i] = warp.ballot([&](std::uint32_t lane) { return f(lane, i); });
  }
  return made;
}

/// Elements that a block looks at together, a row for each warp.
inline constexpr std::uint32_t tile = warps * row;
TUTTI_HD constexpr std::size_t tiles_of(std::size_t n) { return (n + tile - 1) / tile; }
/// Blocks with a tile for each warp.
TUTTI_HD constexpr std::size_t blocks_of(std::size_t n) {
  return (tiles_of(n) + warps - 1) / warps;
}

/// Elements above a threshold and equal to it.
struct tally {
  std::uint32_t above;
  std::uint32_t equal;

  friend TUTTI_HD tally operator+(tally a, tally b) {
    return {a.above + b.above, a.equal + b.equal};
  }
};

/// What is selected from, or a part of it.
template <class Values>
struct source {
  Values values;
  const std::uint32_t* indices;  // null: they count up from `first`
  std::size_t first;
  std::size_t n;

  TUTTI_HD std::uint32_t index(std::size_t i) const {
    return indices == nullptr ? static_cast<std::uint32_t>(first + i) : indices[i];
  }
};

/// Calls `f(first element, masks above, masks equal, value)` for the packs of every row;
/// `value(lane, i)` is a lane's i-th element of them.
template <class Warp, class Values, class F>
TUTTI_HD void for_each_pack(const Warp& warp, const source<Values>& from, search limit,
                            const F& f) {
  typename Warp::template of_lanes<row_of_lane> held;
  for (std::size_t begin = 0; begin < from.n; begin += row) {
    warp.each(
        [&](std::uint32_t lane) { load(held[lane], from.values + begin, from.n - begin, lane); });
    for (std::uint32_t p = 0; p < packs; ++p) {
      const auto value = [&](std::uint32_t lane, std::uint32_t i) {
        return held[lane].of[p].value[i];
      };
      const masks above = masks_of(warp, [&](std::uint32_t lane, std::uint32_t i) {
        return key_of(value(lane, i)) > limit.prefix;
      });
      const masks equal = masks_of(warp, [&](std::uint32_t lane, std::uint32_t i) {
        return key_of(value(lane, i)) == limit.prefix && begin + place_in_row(p, lane) + i < from.n;
      });
      f(begin + place_in_row(p, 0), above, equal, value);
    }
  }
}

}  // namespace tutti::kernels::steps
