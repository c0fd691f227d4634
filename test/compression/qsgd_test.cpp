// Compares qsgd with the paper, in plain double and in strings of '0' and '1'.
#include "tutti/compression/qsgd.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compression/placed.hpp"
#include "tutti/compression/error_feedback.hpp"

namespace tutti {
namespace {

using options = compression::qsgd::options;

// ---- the oracle

/// Returns the paper's code by its definition: a 0 at the end, before it the number in binary,
/// before that the number of digits just written less one, and so on.
std::string elias(std::uint64_t number) {
  std::string code = "0";
  while (number > 1) {
    std::string digits;
    for (std::uint64_t rest = number; rest > 0; rest /= 2) {
      digits.insert(0, rest % 2 ? "1" : "0");
    }
    code.insert(0, digits);
    number = digits.size() - 1;
  }
  return code;
}

/// SplitMix64 as it was published: a state that advances, and a mix of it.
class split_mix {
 public:
  explicit split_mix(std::uint64_t state) : state_(state) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t number(std::uint64_t place) {
    state_ += place * 0x9e3779b97f4a7c15u;
    return next();
  }

 private:
  std::uint64_t state_;
};

struct coded {
  std::string bits;
  std::vector<double> values;
};

std::string binary(float value) {
  std::string bits;
  for (int bit = 31; bit >= 0; --bit) {
    bits += std::bit_cast<std::uint32_t>(value) >> bit & 1 ? '1' : '0';
  }
  return bits;
}

coded oracle(const std::vector<float>& gradient, const options& with, const chunk_context& where,
             std::uint64_t seed) {
  split_mix random(split_mix(split_mix(seed).number(where.rank)).number(where.step));
  for (std::uint64_t i = 0; i < where.first_element; ++i) {
    random.next();
  }
  coded made;
  for (std::size_t begin = 0; begin < gradient.size(); begin += with.block) {
    const std::size_t end = std::min(gradient.size(), begin + with.block);
    long double squares = 0;
    for (std::size_t i = begin; i < end; ++i) {
      squares += static_cast<long double>(gradient[i]) * gradient[i];
    }
    const long double exact = std::sqrt(squares);
    auto norm = static_cast<float>(exact);
    if (norm < exact) {
      norm = std::nextafter(norm, std::numeric_limits<float>::infinity());
    }
    made.bits += binary(norm);
    std::size_t before = begin;
    for (std::size_t i = begin; i < end; ++i) {
      const double draw = static_cast<double>(random.next() >> 11) / 9007199254740992.0;
      if (norm == 0) {
        made.values.push_back(0);
        continue;
      }
      const double place =
          std::fabs(gradient[i]) * static_cast<double>(with.levels) / static_cast<double>(norm);
      const double level = std::floor(place) + (draw < place - std::floor(place) ? 1 : 0);
      const auto number = static_cast<std::uint64_t>(level);
      const std::string sign = std::signbit(gradient[i]) ? "1" : "0";
      if (with.levels * with.levels >= with.block) {
        made.bits += elias(number + 1) + (number != 0 ? sign : "");
      } else if (number != 0) {
        made.bits += elias(i + 1 - before) + sign + elias(number);
        before = i + 1;
      }
      const double value = static_cast<double>(norm) * level / static_cast<double>(with.levels);
      made.values.push_back(std::signbit(gradient[i]) ? -value : value);
    }
    if (norm != 0 && with.levels * with.levels < with.block) {
      made.bits += elias(end + 1 - before);
    }
  }
  return made;
}

std::string bits_of(const std::vector<std::byte>& payload) {
  std::string bits;
  for (const std::byte each : payload) {
    for (int bit = 7; bit >= 0; --bit) {
      bits += (std::to_integer<int>(each) >> bit & 1) != 0 ? '1' : '0';
    }
  }
  return bits;
}

/// Few levels and many, so that both codes of the paper are used, with blocks of odd lengths among
/// them.
const options variants[] = {{.levels = 7, .block = 512},   {.levels = 1, .block = 64},
                            {.levels = 4, .block = 16},    {.levels = 255, .block = 512},
                            {.levels = 65535, .block = 7}, {.levels = 3, .block = 1}};

// ---- the code

TEST(elias_code, of_the_first_numbers_is_the_published_one) {
  const char* const published[] = {"0",      "100",     "110",     "101000",  "101010",  "101100",
                                   "101110", "1110000", "1110010", "1110100", "1110110", "1111000"};
  for (std::size_t number = 1; number <= std::size(published); ++number) {
    EXPECT_EQ(elias(number), published[number - 1]);
  }
}

TEST(elias_code, is_read_as_it_was_written) {
  std::vector<std::uint64_t> numbers;
  std::mt19937_64 random(1);
  for (std::uint64_t i = 1; i < 3000; ++i) {
    numbers.push_back(i);
    numbers.push_back(random() >> (32 + random() % 32) | 1);
  }
  for (const std::uint64_t last : {0x7fff'ffffu, 0x8000'0000u, 0xffff'ffffu}) {
    numbers.push_back(last);
  }
  std::vector<std::byte> room(8 * numbers.size());
  kernels::bit_writer to(room.data());
  std::string expected;
  for (const std::uint64_t each : numbers) {
    kernels::write_elias(to, each);
    expected += elias(each);
    ASSERT_EQ(kernels::elias_length(each), elias(each).size()) << each;
    ASSERT_LT(elias(each).size(), 2 * each) << "what most_bits() relies on";
  }
  room.resize(to.finish());
  expected.resize(8 * room.size(), '0');
  EXPECT_TRUE(bits_of(room) == expected);
  kernels::bit_reader from(room);
  for (const std::uint64_t each : numbers) {
    ASSERT_EQ(kernels::read_elias(from), each);
  }
}

TEST(counted_random, is_the_published_sequence_from_any_place) {
  split_mix published(1234567);
  const kernels::counted_random random(1234567);
  EXPECT_EQ(random.bits(0), 6457827717110365317u);
  EXPECT_EQ(random.bits(1), 3203168211198807973u);
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(random.from(i).bits(0), random.bits(i));
    EXPECT_EQ(random.bits(i), published.next());
    EXPECT_TRUE(random.uniform(i) >= 0 && random.uniform(i) < 1);
  }
}

// ---- the compressor

TEST(qsgd, writes_and_reads_the_papers_bits) {
  for (const options& with : variants) {
    for (const std::size_t n : {0u, 1u, 7u, 33u, 512u, 1000u, 4099u, 70'001u}) {
      placed<compression::qsgd> codec(n, with);
      for (unsigned step = 0; step < 3; ++step) {
        const auto gradient = gradient_of(n, step);
        const coded expected = oracle(gradient, with, codec.where(), with.seed);
        const auto payload = codec.encode(gradient);
        ASSERT_FALSE(codec.overran);
        ASSERT_EQ(payload.size(), (expected.bits.size() + 7) / 8) << "the coder's own bytes";
        std::string padded = expected.bits;
        padded.resize(8 * payload.size(), '0');
        ASSERT_TRUE(bits_of(payload) == padded) << n << " elements, " << with.levels << " levels";
        const auto decoded = codec.decode(payload);
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(decoded[i], static_cast<float>(expected.values[i])) << i;
        }
      }
    }
  }
}

TEST(qsgd, never_needs_more_than_its_capacity) {
  constexpr float most = std::numeric_limits<float>::max();
  constexpr float least = std::numeric_limits<float>::denorm_min();
  for (const options& with : variants) {
    const compression::qsgd policy(with);
    for (const std::size_t n : {0u, 1u, 2u, 15u, 16u, 17u, 511u, 512u, 1025u}) {
      EXPECT_LE(policy.expected(n), policy.capacity(n));
      const std::vector<float> zeros(n);
      const auto with_one = [&](float value, std::size_t place) {
        auto made = zeros;
        if (n != 0) {
          made[place % n] = value;
        }
        return made;
      };
      for (const auto& gradient :
           {zeros, std::vector<float>(n, 1.0f), std::vector<float>(n, -least),
            std::vector<float>(n, most), with_one(most, 0), with_one(-least, n - 1),
            with_one(std::nanf(""), 3), with_one(-std::numeric_limits<float>::infinity(), 3)}) {
        placed<compression::qsgd> codec(n, with);
        const auto payload = codec.encode(gradient);
        ASSERT_FALSE(codec.overran) << n;
        ASSERT_LE(payload.size(), policy.capacity(n));
        const bool finite = std::ranges::all_of(gradient, [](float x) { return std::isfinite(x); });
        const auto decoded = codec.decode(payload);
        for (std::size_t i = 0; i < n; ++i) {
          const std::size_t block = i / with.block;
          double squares = 0;
          for (std::size_t j = block * with.block; j < std::min(n, (block + 1) * with.block); ++j) {
            squares += double{gradient[j]} * double{gradient[j]};
          }
          const double norm = std::sqrt(squares);
          if (norm <= double{most}) {
            ASSERT_LE(std::fabs(double{decoded[i]} - double{gradient[i]}),
                      norm * 1.0000002 / static_cast<double>(with.levels) + double{least});
          } else {
            ASSERT_TRUE(std::isnan(decoded[i])) << (finite ? "norm" : "element");
          }
        }
      }
    }
  }
}

/// The mean over many steps is within five standard deviations of the element.
TEST(qsgd, is_unbiased) {
  constexpr std::size_t n = 96;
  constexpr int steps = 4000;
  for (const options& with :
       {options{.levels = 3, .block = 32}, options{.levels = 7, .block = 32}}) {
    const auto gradient = gradient_of(n, 9);
    placed<compression::qsgd> codec(n, with);
    std::vector<double> sum(n);
    for (int step = 0; step < steps; ++step) {
      const auto decoded = codec.decode(codec.encode(gradient));
      for (std::size_t i = 0; i < n; ++i) {
        sum[i] += decoded[i];
      }
    }
    for (std::size_t block = 0; block < n; block += with.block) {
      double squares = 0;
      for (std::size_t i = block; i < block + with.block; ++i) {
        squares += double{gradient[i]} * double{gradient[i]};
      }
      const double level = std::sqrt(squares) / static_cast<double>(with.levels);
      for (std::size_t i = block; i < block + with.block; ++i) {
        ASSERT_NEAR(sum[i] / steps, gradient[i], 5 * level / 2 / std::sqrt(steps)) << i;
      }
    }
  }
}

TEST(qsgd, rounds_otherwise_in_another_place_step_rank_seed_and_on_the_way_back) {
  constexpr std::size_t n = 512;
  const auto gradient = gradient_of(n, 4);
  placed<compression::qsgd> made(n);
  inline_queue queue;
  const auto payload_at = [&](const compression::qsgd& policy, const chunk_context& where) {
    std::vector<std::byte> payload(policy.capacity(n));
    std::size_t length = 0;
    encode(policy, queue, std::span<const float>(gradient), wire{payload.data(), payload.size()},
           where, &length);
    payload.resize(length);
    return payload;
  };
  const compression::qsgd policy;
  const chunk_context here = made.where();
  const auto first = payload_at(policy, here);
  EXPECT_EQ(payload_at(policy, here), first);
  chunk_context later = here;
  later.step += 1;
  chunk_context elsewhere = here;
  elsewhere.first_element += 1;
  chunk_context other_rank = here;
  other_rank.rank += 1;
  for (const auto& other :
       {payload_at(policy, later), payload_at(policy, elsewhere), payload_at(policy, other_rank),
        payload_at(compression::qsgd({.seed = 2}), here), payload_at(relay(policy), here)}) {
    EXPECT_NE(other, first);
  }
}

TEST(qsgd, expects_what_normal_gradients_make) {
  constexpr std::size_t n = 512 * 40;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.3f);
  std::vector<float> gradient(n);
  std::ranges::generate(gradient, [&] { return normal(random); });
  for (const options& with : {options{}, options{.levels = 1}, options{.levels = 255}}) {
    placed<compression::qsgd> codec(n, with);
    const auto bytes = static_cast<double>(codec.encode(gradient).size());
    EXPECT_NEAR(static_cast<double>(codec.policy.expected(n)), bytes, 0.03 * bytes) << with.levels;
  }
}

/// A payload from a peer may be anything; decoding it must not read or write outside its memory.
TEST(qsgd, survives_what_is_no_code) {
  std::mt19937 random(5);
  for (const options& with : variants) {
    for (std::size_t bytes = 0; bytes < 200; ++bytes) {
      std::vector<std::byte> noise(bytes);
      std::ranges::generate(noise, [&] { return static_cast<std::byte>(random()); });
      if (bytes >= 4) {  // a norm, so that codes are read
        noise[0] = std::byte{0x3f};
        noise[1] = std::byte{0x80};
      }
      noise.shrink_to_fit();
      placed<compression::qsgd> codec(600, with);
      codec.decode(noise);
    }
  }
}

TEST(qsgd, leaves_under_error_feedback_what_it_does_not_send) {
  const options short_blocks{.block = 128};
  for (const std::size_t n : awkward_sizes) {
    placed<compression::error_feedback<compression::qsgd>> codec(n, short_blocks);
    for (unsigned step = 0; step < 4; ++step) {
      const auto gradient = gradient_of(n, 20 + step);
      std::vector<float> input(codec.row(0).begin(), codec.row(0).end());
      for (std::size_t i = 0; i < n; ++i) {
        input[i] += gradient[i];
      }
      const coded expected = oracle(input, short_blocks, codec.where(), short_blocks.seed);
      const auto payload = codec.encode(gradient);
      ASSERT_EQ(payload.size(), (expected.bits.size() + 7) / 8);
      const auto sent = codec.decode(payload);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(sent[i], static_cast<float>(expected.values[i]));
        ASSERT_EQ(codec.row(0)[i], input[i] - sent[i]);
      }
    }
  }
}

/// Each of n elements of one magnitude is at l / sqrt(n) of the first of l levels. Rounding leaves
/// on average sqrt(n) / l - 1 of the squared elements, which is the worst case.
TEST(qsgd, is_refused_under_error_feedback_where_it_may_leave_more_than_there_was) {
  constexpr int draws = 400;
  for (const std::size_t levels : {std::size_t{1}, std::size_t{2}, std::size_t{7}}) {
    const std::size_t limit = 4 * levels * levels;
    for (const std::size_t n : {limit / 2, limit - 1, limit, 2 * limit, std::size_t{512}}) {
      const double share = std::sqrt(static_cast<double>(n)) / static_cast<double>(levels) - 1;
      const std::vector<float> gradient(n, 0.5f);
      placed<compression::qsgd> codec(n, {.levels = levels});
      double left = 0;
      for (int draw = 0; draw < draws; ++draw) {
        for (const float each : codec.decode(codec.encode(gradient))) {
          left += (0.5 - double{each}) * (0.5 - double{each}) / draws;
        }
      }
      EXPECT_NEAR(left / (0.25 * static_cast<double>(n)), share, 0.1 + share / 20)
          << levels << ", " << n;

      const compression::error_feedback<compression::qsgd> remembering(options{.levels = levels});
      if (share < 1) {
        EXPECT_NO_THROW(remembering.capacity(n)) << levels << ", " << n;
      } else {
        EXPECT_THROW(remembering.capacity(n), usage_error) << levels << ", " << n;
      }
    }
  }
}

/// The block lengths and levels that the error suggests are the smallest change that helps.
TEST(qsgd, under_error_feedback_says_which_blocks_and_levels_would_do) {
  using remembering = compression::error_feedback<compression::qsgd>;
  const auto said = [](const options& with, std::size_t n) -> std::string {
    try {
      remembering(with).capacity(n);
    } catch (const usage_error& refused) {
      return refused.what();
    }
    return "";
  };
  EXPECT_EQ(said({}, 30'000),
            "compression::qsgd: rounding may leave more of 512 elements behind in 7 levels than "
            "there was, and error feedback around it grows without bound. Fix: blocks of at most "
            "195 elements, or 12 levels");
  EXPECT_EQ(said({.block = 195}, 30'000), "");
  EXPECT_NE(said({.block = 196}, 30'000), "");
  EXPECT_EQ(said({.levels = 12}, 30'000), "");
  EXPECT_NE(said({.levels = 11}, 30'000), "");
  EXPECT_EQ(said({}, 195), "") << "a chunk that is no block";
}

TEST(qsgd, refuses_options_that_say_nothing) {
  EXPECT_THROW(compression::qsgd({.levels = 0}), usage_error);
  EXPECT_THROW(compression::qsgd({.levels = 65536}), usage_error);
  EXPECT_THROW(compression::qsgd({.block = 0}), usage_error);
}

}  // namespace
}  // namespace tutti
