#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/units.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

// One bit an element, 1 where it is below zero: zeros of either sign and NaN count as positive.
//
// n elements, padded with zeros to a multiple of 32, are seen as 32 rows of n / 32. A word takes
// one bit from each row, the first row in its most significant bit, so that both ways are a shift
// of a whole vector of words and never a shuffle.

/// 32-bit words that hold the signs of n elements.
constexpr std::size_t sign_words(std::size_t n) { return round_up(n, 32) / 32; }

namespace detail {

/// Calls `f(element, tile index, count)` for the runs of neighbouring elements whose signs sit in
/// words [begin, begin + count), first row first; a run that reaches into the padding is cut.
template <class F>
void for_each_row(std::size_t elements, std::size_t begin, std::size_t count, const F& f) {
  const std::size_t words = sign_words(elements);
  for (unsigned row = 0; row < 32; ++row) {
    const std::size_t first = row * words + begin;
    f(row, first, first < elements ? std::min(count, elements - first) : 0);
  }
}

// Words that stay in the first-level cache while the rows pass by.
inline constexpr std::size_t tile = 4096;

/// Packs tile by tile; `visit(element, negative)` sees every element as it is packed.
template <class Visit>
void pack(std::span<const float> input, std::uint32_t* words, const Visit& visit) {
  const std::size_t total = sign_words(input.size());
  for (std::size_t begin = 0; begin < total; begin += tile) {
    const std::size_t count = std::min(tile, total - begin);
    std::uint32_t* const packed = words + begin;
    std::fill_n(packed, count, 0u);
    for_each_row(input.size(), begin, count, [&](unsigned row, std::size_t first, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) {
        const bool negative = input[first + i] < 0;
        packed[i] |= std::uint32_t{negative} << (31 - row);
        visit(first + i, negative);
      }
    });
  }
}

/// `magnitude` with the sign that `row` has in `word`.
TUTTI_HD inline float signed_like(std::uint32_t word, unsigned row, float magnitude) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) ^
                              ((word << row) & 0x8000'0000u));
}

}  // namespace detail

/// Writes sign_words(input.size()) words.
template <host_queue Queue>
void pack_signs(Queue& queue, std::span<const float> input, std::uint32_t* words) {
  queue.run([=] { widest([=] { detail::pack(input, words, [](std::size_t, bool) {}); }); });
}
void pack_signs(cuda::stream& queue, std::span<const float> input, std::uint32_t* words);

/// The same, and what each sign stands for is taken off: input[i] -= ±*magnitude.
template <host_queue Queue>
void pack_signs_and_subtract(Queue& queue, std::span<float> input, const float* magnitude,
                             std::uint32_t* words) {
  queue.run([=] {
    const float positive = *magnitude;
    widest([=] {
      detail::pack(input, words, [=](std::size_t i, bool negative) {
        input[i] -= negative ? -positive : positive;
      });
    });
  });
}
void pack_signs_and_subtract(cuda::stream& queue, std::span<float> input, const float* magnitude,
                             std::uint32_t* words);

/// sum[i] += ±*magnitude; a null `magnitude` is 1.
template <host_queue Queue>
void add_signs(Queue& queue, const std::uint32_t* words, const float* magnitude,
               std::span<float> sum) {
  queue.run([=] {
    const float positive = magnitude == nullptr ? 1 : *magnitude;
    widest([=] {
      const std::size_t total = sign_words(sum.size());
      for (std::size_t begin = 0; begin < total; begin += detail::tile) {
        detail::for_each_row(sum.size(), begin, std::min(detail::tile, total - begin),
                             [&](unsigned row, std::size_t first, std::size_t n) {
                               for (std::size_t i = 0; i < n; ++i) {
                                 sum[first + i] +=
                                     detail::signed_like(words[begin + i], row, positive);
                               }
                             });
      }
    });
  });
}
void add_signs(cuda::stream& queue, const std::uint32_t* words, const float* magnitude,
               std::span<float> sum);

namespace element {

// A device's thread has a word: its elements lie in 32 rows, and in each the threads of a group
// read neighbours. Some rows are loaded before the first is written: memory is far away, and what
// is written might be what is read next, for all that a compiler knows.
inline constexpr unsigned rows_at_once = 8;

/// Rows [row, row + 8) of word `i`; 0 where the padding begins.
struct rows_of_word {
  float value[rows_at_once];

  TUTTI_HD rows_of_word(const float* input, std::size_t n, std::size_t words, std::size_t i,
                        unsigned row)
      : value{} {
    for (unsigned r = 0; r < rows_at_once; ++r) {
      const std::size_t element = (row + r) * words + i;
      if (element < n) {
        value[r] = input[element];
      }
    }
  }
};

/// Packs word `i` of the signs of n elements.
struct pack_word {
  const float* input;
  std::size_t n;
  std::size_t words;
  std::uint32_t* out;

  TUTTI_HD void operator()(std::size_t i) const {
    std::uint32_t word = 0;
    for (unsigned row = 0; row < 32; ++row) {
      const std::size_t element = row * words + i;
      const bool negative = element < n && input[element] < 0;
      word |= std::uint32_t{negative} << (31 - row);
    }
    out[i] = word;
  }
};

struct pack_word_and_subtract {
  float* input;
  std::size_t n;
  std::size_t words;
  const float* magnitude;
  std::uint32_t* out;

  TUTTI_HD void operator()(std::size_t i) const {
    const float positive = *magnitude;
    std::uint32_t word = 0;
    for (unsigned row = 0; row < 32; row += rows_at_once) {
      const rows_of_word held(input, n, words, i, row);
      for (unsigned r = 0; r < rows_at_once; ++r) {
        const std::size_t element = (row + r) * words + i;
        if (element < n) {
          const bool negative = held.value[r] < 0;
          word |= std::uint32_t{negative} << (31 - row - r);
          input[element] = held.value[r] - (negative ? -positive : positive);
        }
      }
    }
    out[i] = word;
  }
};

struct add_word {
  const std::uint32_t* in;
  const float* magnitude;  // null: 1
  float* sum;
  std::size_t n;
  std::size_t words;

  TUTTI_HD void operator()(std::size_t i) const {
    const float positive = magnitude == nullptr ? 1 : *magnitude;
    const std::uint32_t word = in[i];
    for (unsigned row = 0; row < 32; row += rows_at_once) {
      const rows_of_word held(sum, n, words, i, row);
      for (unsigned r = 0; r < rows_at_once; ++r) {
        const std::size_t element = (row + r) * words + i;
        if (element < n) {
          sum[element] = held.value[r] + kernels::detail::signed_like(word, row + r, positive);
        }
      }
    }
  }
};

/// Counts the votes of word `i` in as many bits as `Planes` says: fewer than 2^Planes voters.
template <unsigned Planes>
struct count_word {
  const std::byte* first;
  std::size_t stride;
  std::uint32_t voters;
  std::uint32_t* out;

  TUTTI_HD void operator()(std::size_t i) const {
    std::uint32_t votes[Planes] = {};
    for (std::size_t voter = 0; voter < voters; ++voter) {
      std::uint32_t carry = reinterpret_cast<const std::uint32_t*>(first + voter * stride)[i];
      for (unsigned p = 0; p < Planes; ++p) {
        const std::uint32_t before = votes[p];
        votes[p] = before ^ carry;
        carry &= before;
      }
    }
    const std::uint32_t half_of_them = voters / 2;
    std::uint32_t above = 0;
    std::uint32_t equal = ~0u;
    for (unsigned p = Planes; p-- > 0;) {
      const std::uint32_t half = (half_of_them >> p & 1) != 0 ? ~0u : 0u;
      above |= equal & votes[p] & ~half;
      equal &= ~(votes[p] ^ half);
    }
    out[i] = above;
  }
};

}  // namespace element

namespace detail {

/// `votes[p]` holds bit p of 32 counters for every word of a block.
class vote_counters {
 public:
  static constexpr std::size_t block = 64;

  explicit vote_counters(std::size_t voters)
      : planes_(static_cast<std::size_t>(std::bit_width(voters))), half_(voters / 2) {
    std::fill_n(votes_.begin(), planes_, row{});
  }

  void add(const std::uint32_t* ballot, std::size_t n) {
    row carry{};
    std::copy_n(ballot, n, carry.begin());
    for (std::size_t p = 0; p < planes_; ++p) {
      for (std::size_t i = 0; i < block; ++i) {
        const std::uint32_t before = votes_[p][i];
        votes_[p][i] = before ^ carry[i];
        carry[i] &= before;
      }
    }
  }

  /// Compares all counters with one half, from the highest bit down.
  void above_half(std::uint32_t* out, std::size_t n) const {
    row above{};
    row equal;
    equal.fill(~0u);
    for (std::size_t p = planes_; p-- > 0;) {
      const std::uint32_t half = half_ >> p & 1 ? ~0u : 0u;
      for (std::size_t i = 0; i < block; ++i) {
        above[i] |= equal[i] & votes_[p][i] & ~half;
        equal[i] &= ~(votes_[p][i] ^ half);
      }
    }
    std::copy_n(above.begin(), n, out);
  }

 private:
  using row = std::array<std::uint32_t, block>;
  std::array<row, 32> votes_;
  std::size_t planes_;
  std::size_t half_;
};

}  // namespace detail

/// Each bit of `out` becomes 1 where more than half of the ballots have a 1: a tie is positive.
/// `out` may be one of the ballots.
template <host_queue Queue>
void majority(Queue& queue, std::span<std::uint32_t> out, payload_row ballots) {
  queue.run([=] {
    widest([=] {
      for (std::size_t begin = 0; begin < out.size(); begin += detail::vote_counters::block) {
        const std::size_t n = std::min(detail::vote_counters::block, out.size() - begin);
        detail::vote_counters votes(ballots.count);
        for (std::size_t i = 0; i < ballots.count; ++i) {
          votes.add(ballots[i].as<std::uint32_t>().data() + begin, n);
        }
        votes.above_half(out.data() + begin, n);
      }
    });
  });
}
void majority(cuda::stream& queue, std::span<std::uint32_t> out, payload_row ballots);

}  // namespace tutti::kernels
