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

/// Seconds on the transport's clock, which may be a virtual one.
using seconds = double;

/// The smallest multiple of `unit` that is not below `n`.
constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

/// The first element of part `index` when `n` elements are cut evenly in `parts`. Part `index` ends
/// where part `index + 1` begins. The first `n % parts` parts are one element longer.
constexpr std::size_t part_begin(std::size_t n, std::size_t parts, std::size_t index) {
  return n / parts * index + (index < n % parts ? index : n % parts);
}
/// The first element of part `index` of a run of `n` elements, relative to the run, which begins at
/// element `first` of a whole that is cut in several runs. Part `index` has as many elements as
/// there are numbers i in [first, first + n) with i % parts == index. So the parts `index` of all
/// runs are together as long as part `index` of the whole.
constexpr std::size_t part_begin(std::size_t n, std::size_t parts, std::size_t index,
                                 std::size_t first) {
  return part_begin(first + n, parts, index) - part_begin(first, parts, index);
}

}  // namespace tutti
