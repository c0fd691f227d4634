#pragma once

#include <cstdint>

#include "tutti/base/host_device.hpp"

namespace tutti::kernels {

/// Random numbers without a state: each is a function of a key and a place alone, so that it does
/// not matter who draws it, when, or in which order.
/// After: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014 (`bits(n)`
/// is the n-th output of SplitMix64, counted from 0).
class counted_random {
 public:
  TUTTI_HD explicit constexpr counted_random(std::uint64_t key) : key_(key) {}

  /// Returns an independent sequence of numbers, a different one for each `number`.
  TUTTI_HD constexpr counted_random stream(std::uint64_t number) const {
    return counted_random(bits(number));
  }
  /// Returns this sequence from place `first` on: its place i is this one's place `first` + i.
  TUTTI_HD constexpr counted_random from(std::uint64_t first) const {
    return counted_random(key_ + first * step);
  }
  /// Returns the 64 bits at a place.
  TUTTI_HD constexpr std::uint64_t bits(std::uint64_t place) const {
    std::uint64_t mixed = key_ + (place + 1) * step;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58'476d'1ce4'e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d0'49bb'1331'11eb;
    return mixed ^ (mixed >> 31);
  }
  /// Returns the number at a place: at least 0 and below 1, a multiple of 2^-53.
  TUTTI_HD constexpr double uniform(std::uint64_t place) const {
    return static_cast<double>(bits(place) >> 11) * 0x1p-53;
  }

 private:
  static constexpr std::uint64_t step = 0x9e37'79b9'7f4a'7c15;
  std::uint64_t key_;
};

}  // namespace tutti::kernels
