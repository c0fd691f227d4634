#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/base/host_device.hpp"
#include "tutti/kernels/elements.hpp"

/// How a device selects the k largest magnitudes: what is done to an element between histograms and
/// a scan, which are CUB's.
///
/// A histogram of the keys' first eight bits says with which of them the k-th largest begins, one
/// of the next eight bits goes on from there, and after four rounds the threshold is known exactly.
/// A scan counts what is taken before each element, which is the element's place among the
/// selected. All that is found stays on the device.
namespace tutti::kernels::radix {

inline constexpr unsigned rounds = 4;
inline constexpr std::uint32_t bins = 256;
inline constexpr std::uint32_t last_bin = bins - 1;

TUTTI_HD constexpr unsigned shift_in(unsigned round) { return round == 3 ? 0 : 23 - 8 * round; }
/// The bits that earlier rounds have found.
TUTTI_HD constexpr std::uint32_t found_in(unsigned round) {
  return round == 0 ? 0 : ~0u << shift_in(round - 1) & 0x7fff'ffffu;
}

/// What a round leaves: the first bits of the k-th largest key. In the end the whole key, and how
/// many of its equals are taken.
struct search {
  std::uint32_t prefix;
  std::uint32_t ties;
};

/// An element's digit in a round. A key that is above all that begin as the threshold does has the
/// largest digit, one that is below them the smallest, so that digits are ordered as keys are.
struct digit_of {
  const float* input;
  const search* before;  // null in the first round
  unsigned round;

  TUTTI_HD std::uint8_t operator()(std::size_t i) const {
    const std::uint32_t key = key_of(input[i]);
    const std::uint32_t first = key & found_in(round);
    const std::uint32_t wanted = round == 0 ? 0 : before->prefix;
    if (first != wanted) {
      return first > wanted ? static_cast<std::uint8_t>(last_bin) : std::uint8_t{0};
    }
    return static_cast<std::uint8_t>((key & ~found_in(round)) >> shift_in(round));
  }
};

/// Ends a round: the bin of the k-th largest digit goes behind the prefix. The last round's digits
/// have seven bits, so that its last bin holds just the keys that are above them.
struct narrow {
  const std::uint32_t* count;
  std::uint32_t k;
  const search* before;  // null in the first round
  search* after;
  unsigned round;

  TUTTI_HD void operator()(std::size_t bin) const {
    std::uint32_t above = 0;
    for (std::size_t larger = bin + 1; larger < bins; ++larger) {
      above += count[larger];
    }
    if (above < k && k - above <= count[bin]) {
      const std::uint32_t prefix = round == 0 ? 0 : before->prefix;
      *after = {prefix | static_cast<std::uint32_t>(bin) << shift_in(round), k - above};
    }
  }
};

/// Of an element, to be added up: one above the threshold in the upper half, one equal to it in the
/// lower half.
struct tally_of {
  const float* input;
  const search* threshold;

  TUTTI_HD std::uint64_t operator()(std::size_t i) const {
    const std::uint32_t key = key_of(input[i]);
    const std::uint64_t equal = key == threshold->prefix ? 1 : 0;
    return key > threshold->prefix ? std::uint64_t{1} << 32 : equal;
  }
};

/// Writes an element that is taken, from the tally of those before it: what is above the threshold,
/// and the first of what is equal to it. NaN is above every magnitude; the least element of those
/// that are taken is refused.
struct write_selected {
  const float* input;
  const std::uint32_t* names;  // indices of the input's elements; null: they count up from 0
  const search* threshold;
  std::uint32_t* indices;
  float* values;
  unsigned long long* refused;
  std::uint64_t first_element;

  TUTTI_HD void operator()(std::ptrdiff_t place, std::uint64_t before) const {
    const auto i = static_cast<std::size_t>(place);
    const float value = input[i];
    const std::uint32_t key = key_of(value);
    const auto [prefix, ties] = *threshold;
    const auto equals = static_cast<std::uint32_t>(before);
    if (key < prefix || (key == prefix && equals >= ties)) {
      return;
    }
    const std::size_t to = (before >> 32) + (equals < ties ? equals : ties);
    const std::uint32_t index = names == nullptr ? static_cast<std::uint32_t>(i) : names[i];
    indices[to] = index;
    values[to] = value;
    if (key > largest_number) {
      lower_atomically(refused, first_element + index);
    }
  }
};

}  // namespace tutti::kernels::radix
