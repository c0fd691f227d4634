#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/signs.hpp"
#include "tutti/kernels/widest.hpp"

// Majority votes over words of signs. The votes of a word's 32 elements are counted together, in 32
// binary counters. Bit p of all of these counters lies in one word, the plane p, so that adding a
// ballot is a carry through the planes.
namespace tutti::kernels {

namespace element {

struct draw_word {
  counted_random random;
  std::uint32_t* out;
  TUTTI_HD void operator()(std::size_t i) const {
    out[i] = static_cast<std::uint32_t>(random.bits(i) >> 32);
  }
};

/// Counts the votes of words in counters of `Planes` bits, and finds the majority. There must be
/// fewer than 2^Planes voters.
template <unsigned Planes>
struct count_words {
  const std::byte* first;
  std::size_t stride;
  std::uint32_t voters;
  std::uint32_t* out;

  template <int Width>
  TUTTI_HD void pack(std::size_t i) const {
    words_of<Width> votes[Planes] = {};
    for (std::size_t voter = 0; voter < voters; ++voter) {
      auto carry = reinterpret_cast<const words_of<Width>*>(first + voter * stride)[i];
      for (words_of<Width>& plane : votes) {
        for (int each = 0; each < Width; ++each) {
          const std::uint32_t before = plane.value[each];
          plane.value[each] = before ^ carry.value[each];
          carry.value[each] &= before;
        }
      }
    }
    const std::uint32_t half_of_them = voters / 2;
    words_of<Width> above{};
    for (int each = 0; each < Width; ++each) {
      std::uint32_t equal = ~0u;
      for (unsigned p = Planes; p-- > 0;) {
        const std::uint32_t half = (half_of_them >> p & 1) != 0 ? ~0u : 0u;
        above.value[each] |= equal & votes[p].value[each] & ~half;
        equal &= ~(votes[p].value[each] ^ half);
      }
    }
    reinterpret_cast<words_of<Width>*>(out)[i] = above;
  }
};

}  // namespace element

namespace detail {

/// Counters for a block of words: `votes_[p]` holds bit p of the 32 counters of every word.
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

  /// Writes which counters are above half of the voters. Compares them from the highest bit down.
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

/// Sets each bit of `out` to 1 if more than half of the ballots have a 1 there, so that a tie is
/// positive. `out` may be one of the ballots.
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

/// Sets out[i] to the 32 random bits of place i.
template <host_queue Queue>
void draw_words(Queue& queue, std::span<std::uint32_t> out, counted_random random) {
  queue.run([=] {
    for (std::size_t i = 0; i < out.size(); ++i) {
      element::draw_word{random, out.data()}(i);
    }
  });
}
void draw_words(cuda::stream& queue, std::span<std::uint32_t> out, counted_random random);

}  // namespace tutti::kernels
