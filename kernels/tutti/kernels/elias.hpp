#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::kernels {

/// Bits one after the other, the first in the most significant bit of the first byte.
class bit_writer {
 public:
  explicit bit_writer(std::byte* to) : begin_(to), to_(to) {}

  /// The lowest `count` bits of `bits`, the most significant first; at most 32, nothing above them.
  void write(std::uint64_t bits, int count) {
    pending_ = (pending_ << count) | bits;
    waiting_ += count;
    while (waiting_ >= 8) {
      waiting_ -= 8;
      *to_++ = static_cast<std::byte>(pending_ >> waiting_);
    }
  }
  /// Fills the last byte with zeros; how many bytes there are.
  std::size_t finish() {
    if (waiting_ > 0) {
      write(0, 8 - waiting_);
    }
    return static_cast<std::size_t>(to_ - begin_);
  }

 private:
  std::byte* begin_;
  std::byte* to_;
  std::uint64_t pending_ = 0;
  int waiting_ = 0;
};

/// Reads what a bit_writer wrote; behind the end there are zeros.
class bit_reader {
 public:
  explicit bit_reader(std::span<const std::byte> from) : from_(from) {}

  /// The next `count` bits, at most 32.
  std::uint64_t read(int count) {
    while (waiting_ < count) {
      const std::byte next = place_ < from_.size() ? from_[place_] : std::byte{};
      ++place_;
      pending_ = (pending_ << 8) | std::to_integer<std::uint64_t>(next);
      waiting_ += 8;
    }
    waiting_ -= count;
    return (pending_ >> waiting_) & ((std::uint64_t{1} << count) - 1);
  }

 private:
  std::span<const std::byte> from_;
  std::size_t place_ = 0;
  std::uint64_t pending_ = 0;
  int waiting_ = 0;
};

// Elias' recursive code (omega) of a positive number: a 0 ends it; before that stands the number in
// binary, before that how many digits those are less one, and so on down to 1, of which nothing is
// written. 1 is "0", 2 "100", 4 "101000". After: Elias, "Universal codeword sets", 1975.

/// Digits of a positive number.
constexpr int digits_of(std::uint64_t number) { return static_cast<int>(std::bit_width(number)); }

/// Bits of the code; the longer the larger the number.
constexpr int elias_length(std::uint64_t number) {
  int length = 1;
  for (; number > 1; number = static_cast<std::uint64_t>(digits_of(number)) - 1) {
    length += digits_of(number);
  }
  return length;
}

/// Writes the code of a number from 1 to 2^32 - 1.
inline void write_elias(bit_writer& out, std::uint64_t number) {
  std::uint64_t groups[5];
  int count = 0;
  for (; number > 1; number = static_cast<std::uint64_t>(digits_of(number)) - 1) {
    groups[count++] = number;
  }
  while (count-- > 0) {
    out.write(groups[count], digits_of(groups[count]));
  }
  out.write(0, 1);
}

/// Reads a number; 0 where what is there is no code of less than 2^32.
inline std::uint64_t read_elias(bit_reader& in) {
  std::uint64_t number = 1;
  while (in.read(1) != 0) {
    if (number > 31) {
      return 0;
    }
    const auto digits = static_cast<int>(number);
    number = (std::uint64_t{1} << digits) | in.read(digits);
  }
  return number;
}

}  // namespace tutti::kernels
