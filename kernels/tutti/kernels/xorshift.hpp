#pragma once

#include <cstdint>

#include "tutti/base/host_device.hpp"

namespace tutti::kernels {

namespace detail {

/// A polynomial over bits: coefficient i is bit i. Arithmetic is modulo the characteristic
/// polynomial of a step of xorshift128_plus.
struct bit_polynomial {
  std::uint64_t low{};
  std::uint64_t high{};

  TUTTI_HD constexpr bool bit(int i) const {
    return ((i < 64 ? low >> i : high >> (i - 64)) & 1) != 0;
  }
  TUTTI_HD constexpr bit_polynomial times_x() const {
    const std::uint64_t carry = 0 - (high >> 63);
    return {low << 1 ^ (carry & 0xbd82'fd40'e017'30f9),
            (high << 1 | low >> 63) ^ (carry & 0x01f9'f801'f6fd'0098)};
  }
  TUTTI_HD constexpr bit_polynomial squared() const {
    bit_polynomial made;
    for (int i = 127; i >= 0; --i) {
      made = made.times_x().times_x();
      made.low ^= bit(i) ? 1U : 0U;
    }
    return made;
  }
};

}  // namespace detail

/// A sequential random number generator, for systems in which ranks and servers draw the same
/// numbers. `discard` skips numbers, so that a draw does not depend on who has drawn before. Its
/// cost is some thousand operations for each binary digit of `count`.
/// After: Vigna, "Further scramblings of Marsaglia's xorshift generators", 2017 (shifts 23, 17,
/// 26); how to jump: Haramoto et al., "Efficient Jump Ahead for F2-Linear Random Number
/// Generators", 2008. The polynomial is that of the generator's step, which is a matrix over bits.
class xorshift128_plus {
 public:
  /// The seed must not be 0, which only zeros would follow.
  TUTTI_HD explicit constexpr xorshift128_plus(std::uint64_t seed) : older_(seed), newer_(seed) {}

  TUTTI_HD constexpr std::uint64_t operator()() {
    std::uint64_t next = older_;
    older_ = newer_;
    next ^= next << 23;
    next ^= next >> 17;
    next ^= newer_ ^ newer_ >> 26;
    newer_ = next;
    return older_ + newer_;
  }

  /// Skips the next `count` numbers.
  TUTTI_HD constexpr void discard(std::uint64_t count) {
    detail::bit_polynomial power{1, 0};
    for (int digit = 63; digit >= 0; --digit) {
      if (count >> digit != 0) {
        power = power.squared();
        power = (count >> digit & 1) != 0 ? power.times_x() : power;
      }
    }
    std::uint64_t older = 0;
    std::uint64_t newer = 0;
    for (int i = 0; i < 128; ++i) {
      older ^= power.bit(i) ? older_ : 0;
      newer ^= power.bit(i) ? newer_ : 0;
      (*this)();
    }
    older_ = older;
    newer_ = newer;
  }

 private:
  std::uint64_t older_;
  std::uint64_t newer_;
};

}  // namespace tutti::kernels
