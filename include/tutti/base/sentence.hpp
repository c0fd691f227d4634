#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tutti {

/// A text, which it refers to and does not copy, or a number.
class word {
 public:
  word(const char* text) : text_(text) {}
  word(const std::string& text) : text_(text) {}
  word(std::string_view text) : text_(text) {}
  word(std::signed_integral auto number) {
    const auto bits = static_cast<std::uint64_t>(number);
    if (number < 0) {
      digits_[length_++] = '-';
    }
    write(number < 0 ? 0 - bits : bits);
  }
  word(std::unsigned_integral auto number) { write(std::uint64_t{number}); }
  word(double number) { write(number); }

  std::string_view text() const {
    return length_ == 0 ? text_ : std::string_view(digits_.data(), length_);
  }

 private:
  template <class Number>
  [[gnu::cold, gnu::noinline]] void write(Number number) {
    const auto written =
        std::to_chars(digits_.data() + length_, digits_.data() + digits_.size(), number);
    length_ = static_cast<std::size_t>(written.ptr - digits_.data());
  }

  std::string_view text_{};
  std::array<char, 24> digits_{};
  std::size_t length_ = 0;  // of the number; 0 for a text
};

/// Composes an error message: `sentence({"rank ", rank, " has left"})`. There is one function for
/// any number of words, and no temporary string is destroyed in between, because compilers take
/// long over both.
[[gnu::cold, gnu::noinline]] inline std::string sentence(std::initializer_list<word> words) {
  std::string all;
  for (const word& each : words) {
    all += each.text();
  }
  return all;
}

/// Appends an item to a list, whose items are separated by commas.
[[gnu::cold, gnu::noinline]] inline void add_to_list(std::string& list, std::string_view item) {
  if (!list.empty()) {
    list += ", ";
  }
  list += item;
}

}  // namespace tutti
