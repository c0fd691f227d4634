#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

inline namespace literals {
// constexpr and not consteval: clang 14 loses a consteval literal in a default member initialiser.
constexpr std::size_t operator""_B(unsigned long long n) { return n; }
constexpr std::size_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr std::size_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr std::size_t operator""_GiB(unsigned long long n) { return n << 30; }
}  // namespace literals

/// Seconds, on whichever clock the transport keeps.
using seconds = double;

/// Smallest multiple of `unit` that is not below `n`.
constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

/// First element of part `index` when `n` elements are cut evenly in `parts`; part `index` ends
/// where part `index + 1` begins. The first `n % parts` parts are one element longer.
constexpr std::size_t part_begin(std::size_t n, std::size_t parts, std::size_t index) {
  return n / parts * index + (index < n % parts ? index : n % parts);
}
/// First element of part `index` of a run of `n` elements, which begins at element `first` of a
/// whole that is cut in several runs. Which parts are longer depends on `first`, so that a run's
/// parts, with those of all other runs, are as long as the whole's: part `index` has as many
/// elements as there are numbers i in [first, first + n) with i % parts == index.
constexpr std::size_t part_begin(std::size_t n, std::size_t parts, std::size_t index,
                                 std::size_t first) {
  return part_begin(first + n, parts, index) - part_begin(first, parts, index);
}

}  // namespace tutti
