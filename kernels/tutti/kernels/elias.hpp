#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tutti::kernels {

/// Writes bits one after the other, the first in the most significant bit of the first byte.
class bit_writer {
 public:
  explicit bit_writer(std::byte* to) : begin_(to), to_(to) {}

  /// Writes the lowest `count` bits of `bits`, the most significant first. `count` is at most 32,
  /// and all higher bits must be 0.
  void write(std::uint64_t bits, int count) {
    pending_ = (pending_ << count) | bits;
    waiting_ += count;
    while (waiting_ >= 8) {
      waiting_ -= 8;
      *to_++ = static_cast<std::byte>(pending_ >> waiting_);
    }
  }
  /// Fills the last byte with zeros, and returns how many bytes there are.
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

/// Reads what a bit_writer wrote. Past the end it reads zeros.
class bit_reader {
 public:
  explicit bit_reader(std::span<const std::byte> from) : from_(from) {}

  /// Returns the next `count` bits, at most 32.
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

// Elias' recursive code (omega) of a positive number. Its last bit is a 0. Before that stands the
// number in binary, before that the number of its digits less one, in binary, and so on down to 1,
// which is not written. The code of 1 is "0", of 2 "100", of 4 "101000". After: Elias, "Universal
// codeword sets", 1975.

/// Returns how many binary digits a positive number has.
constexpr int digits_of(std::uint64_t number) { return static_cast<int>(std::bit_width(number)); }

/// Returns the length of a number's code, in bits. It grows with the number.
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

/// Reads a number. Returns 0 if the next bits are no code of a number below 2^32.
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

// Elias' delta code of a positive number ends with the number's digits less the first, in binary.
// Before that stands how many digits it has, in binary, and before that as many zeros as this count
// has digits less one. The code of 1 is "1", of 2 "0100", of 4 "01100".

/// A string of bits: the lowest `length` bits of `bits`, the most significant first.
struct bit_string {
  std::uint64_t bits{};
  int length{};

  constexpr bit_string then(bit_string other) const {
    return {bits << other.length | other.bits, length + other.length};
  }
};

/// Returns the code of a number from 1 to 2^32 - 1, at most 42 bits.
constexpr bit_string elias_delta(std::uint64_t number) {
  const int digits = digits_of(number);
  const auto count = static_cast<std::uint64_t>(digits);
  const bit_string without_the_first{number ^ std::uint64_t{1} << (digits - 1), digits - 1};
  return bit_string{count, 2 * digits_of(count) - 1}.then(without_the_first);
}

/// Writes bits into words of 32, the first in a word's most significant bit.
class word_writer {
 public:
  explicit word_writer(std::byte* to) : to_(to) {}

  /// Writes at most 32 bits.
  void write(bit_string what) {
    pending_ = pending_ << what.length | what.bits;
    waiting_ += what.length;
    if (waiting_ >= 32) {
      waiting_ -= 32;
      put(static_cast<std::uint32_t>(pending_ >> waiting_));
    }
  }
  /// Writes at most 64 bits.
  void write_long(bit_string what) {
    if (what.length > 32) {
      const int rest = what.length - 32;
      write({what.bits >> 32, rest});
      what = {what.bits & 0xffff'ffffu, 32};
    }
    write(what);
  }
  /// Fills the last word with zeros, and returns how many bits were written before these.
  std::size_t finish() {
    const std::size_t bits = 32 * words_ + static_cast<std::size_t>(waiting_);
    if (waiting_ > 0) {
      write({0, 32 - waiting_});
    }
    return bits;
  }

 private:
  void put(std::uint32_t word) {
    std::memcpy(to_ + words_ * sizeof word, &word, sizeof word);
    ++words_;
  }

  std::byte* to_;
  std::size_t words_ = 0;
  std::uint64_t pending_ = 0;
  int waiting_ = 0;
};

/// Reads what a word_writer wrote. Past the end it reads zeros.
class word_reader {
 public:
  explicit word_reader(std::span<const std::byte> from) : from_(from) {}

  /// Returns how many bits have been read.
  std::size_t bits() const { return 32 * words_ - static_cast<std::size_t>(waiting_); }

  /// Returns the next `count` bits, at most 32.
  std::uint64_t read(int count) {
    fill();
    waiting_ -= count;
    return pending_ >> waiting_ & ((std::uint64_t{1} << count) - 1);
  }
  /// Reads a number in Elias' delta code. Returns 0 if the next bits are no code of a number below
  /// 2^32.
  std::uint64_t read_elias_delta() {
    fill();
    const auto next = static_cast<std::uint32_t>(pending_ >> (waiting_ - 32));
    const int zeros = std::countl_zero(next);
    if (zeros > 5) {
      return 0;
    }
    const int digits = static_cast<int>(next >> (31 - 2 * zeros));
    waiting_ -= 2 * zeros + 1;
    return digits > 32 ? 0 : std::uint64_t{1} << (digits - 1) | read(digits - 1);
  }

 private:
  /// Reads another word if fewer than 32 bits wait.
  void fill() {
    if (waiting_ < 32) {
      std::uint32_t word = 0;
      if (words_ * sizeof word + sizeof word <= from_.size()) {
        std::memcpy(&word, from_.data() + words_ * sizeof word, sizeof word);
      }
      ++words_;
      pending_ = pending_ << 32 | word;
      waiting_ += 32;
    }
  }

  std::span<const std::byte> from_;
  std::size_t words_ = 0;
  std::uint64_t pending_ = 0;
  int waiting_ = 0;
};

}  // namespace tutti::kernels
