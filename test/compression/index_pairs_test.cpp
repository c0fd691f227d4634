// Compares compression::byteps_topk and byteps_randomk with BytePS: with messages that BytePS's own
// functions made, and with plain loops.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compression/in_hex.hpp"
#include "compression/placed.hpp"
#include "support/errors.hpp"
#include "tutti/base/error.hpp"
#include "tutti/compression/byteps_randomk.hpp"
#include "tutti/compression/byteps_topk.hpp"
#include "tutti/compression/error_feedback.hpp"

namespace tutti {
namespace {

using compression::byteps_randomk;
using compression::byteps_topk;
using compression::error_feedback;

/// Returns seven different magnitudes at most, so that many are equal.
std::vector<float> of_few_values(std::size_t n, std::size_t step) {
  std::vector<float> made(n);
  for (std::size_t i = 0; i < n; ++i) {
    made[i] = static_cast<float>(static_cast<int>((i * 7919 + step * 104729) % 7) - 3) / 4;
  }
  return made;
}

template <class C>
void sends(placed<C> codec, const std::vector<std::vector<float>>& gradients,
           const std::vector<std::string>& words) {
  for (std::size_t step = 0; step < words.size(); ++step) {
    EXPECT_EQ(in_hex(codec.encode(gradients[step])), words[step]) << step;
    EXPECT_FALSE(codec.overran);
  }
}

std::vector<std::vector<float>> three_of_512ths(std::size_t n) {
  return {gradient_in_512ths(n, 0), gradient_in_512ths(n, 1), gradient_in_512ths(n, 2)};
}

// The messages were made by Compress and FastUpdateError of TopkCompressor and RandomkCompressor,
// and by VanillaErrorFeedbackCompressor at an unchanged rate, of BytePS'
// byteps/common/compressor/impl at commit f5df52fe, compiled alone with libstdc++.

TEST(topk, sends_what_byteps_sends) {
  constexpr std::size_t n = 50;  // a tenth of 64 is 6
  sends(placed<byteps_topk>(n, {.density = 0.1}),
        {of_few_values(n, 0), of_few_values(n, 1), of_few_values(n, 2)},
        {"07000000000040bf00000000000040bf0e000000000040bf030000000000403f0a0000000000403f"
         "110000000000403f",
         "090000000000403f020000000000403f100000000000403f06000000000040bf0d000000000040bf"
         "14000000000040bf",
         "080000000000403f05000000000040bf0f0000000000403f010000000000403f0c000000000040bf"
         "13000000000040bf"});
  sends(placed<error_feedback<byteps_topk>>(64, {.k = 5}), three_of_512ths(64),
        {"3000000000c0e63f170000000080eebf180000000080f03f000000000000fabf2f0000000040f8bf",
         "2e00000000600ec038000000006011400900000000a00f400800000000e024402000000000201b40",
         "1f0000000080d9bf270000000040e3bf100000000080ee3f3700000000c0f6bf3f000000004000c0"});
}

TEST(randomk, sends_what_byteps_sends) {
  sends(placed<byteps_randomk>(50, {.density = 0.2, .seed = 2020}), three_of_512ths(50),
        {"0a0000000000973e060000000080753f2a00000000008ebf1e0000000000623f030000000080ba3f"
         "0e0000000000bdbe2d00000000c0cdbf0b0000000000043e13000000008099bf2700000000801cbf"
         "1d0000000040863f10000000008033bf",
         "00000000008021bf220000000040c53f1000000000001f3f1f0000000040efbf050000000000bbbf"
         "060000000040d0bf0d00000000408f3f30000000008048bf050000000000bbbf1900000000805fbf"
         "0100000000004cbf0a0000000000cf3f",
         "1000000000c0f83f070000000000f1be1b0000000000f03d20000000008036bf20000000008036bf"
         "2c00000000009a3f1400000000c0a33f2300000000009bbf1800000000801d3f130000000000b93f"
         "1000000000c0f83f1d00000000005cbe"});
  sends(placed<error_feedback<byteps_randomk>>(20, {.k = 10, .seed = 7}), three_of_512ths(20),
        {"0b0000000000043e0b0000000000043e0a0000000000973e030000000080ba3f0700000000004b3f"
         "12000000004084bf000000000000fabf090000000000ec3e13000000008099bf0f000000000009bf",
         "0d00000000806a3f100000000000a4bd130000000000fc3d070000000080e5bf100000000000a4bd"
         "020000000000293f120000000000943e120000000000943e0d00000000806a3f090000000040e43f",
         "0b0000000000a23e1000000000c0f83f06000000000079bf0f000000008081bf0d00000000c0bbbf"
         "130000000000b93f1000000000c0f83f1100000000c0ae3f0c000000000058bd040000000000c03c"});
}

struct pair {
  std::uint32_t index;
  float value;
};
std::vector<pair> pairs_of(const std::vector<std::byte>& payload) {
  std::vector<pair> made(payload.size() / sizeof(pair));
  if (!made.empty()) {
    std::memcpy(made.data(), payload.data(), payload.size());
  }
  return made;
}

TEST(index_pairs, count_a_share_of_the_padded_length) {
  const std::pair<std::size_t, std::size_t> expected[] = {{0, 0},  {1, 1},      {7, 3},     {32, 3},
                                                          {33, 6}, {1000, 102}, {1024, 102}};
  for (const auto& [n, k] : expected) {
    EXPECT_EQ(byteps_topk({.density = 0.1}).wire_bytes(n), 8 * k) << n;
    EXPECT_EQ(byteps_randomk({.density = 0.1}).wire_bytes(n), 8 * k) << n;
  }
  EXPECT_EQ(byteps_topk({.k = 5}).wire_bytes(1000), 40u);
  EXPECT_EQ(byteps_topk({.k = 5}).wire_bytes(3), 24u);
}

TEST(index_pairs, refuse_what_cannot_be) {
  EXPECT_THROW(byteps_topk({.density = 0}), usage_error);
  EXPECT_THROW(byteps_randomk({.density = 1.5}), usage_error);
  EXPECT_THROW(byteps_randomk({.seed = 0}), usage_error);
  EXPECT_THROW(byteps_topk{}.wire_bytes(std::size_t{1} << 32), usage_error);
}

/// No unselected element is larger than a selected one, also over more than one block.
TEST(index_pairs, refuse_an_element_that_a_chunk_has_not) {
  placed<byteps_topk> codec(10, {.k = 2});
  auto payload = codec.encode(std::vector<float>{0, 0, 3, 0, 0, 0, 0, 0, 0, -4});
  const std::uint32_t beyond = 10;
  std::memcpy(payload.data() + 8, &beyond, sizeof beyond);
  inline_queue queue;
  std::vector<float> sum(12, 1.0f);
  try {
    codec.accumulate_on(queue, payload, std::span(sum).first(10));
    ADD_FAILURE() << "it was believed";
  } catch (const communication_error& refused) {
    EXPECT_STREQ(refused.what(),
                 "a payload names element 10 of a chunk that has 10 elements. Fix: give "
                 "every rank the same compression options");
  }
  EXPECT_EQ(sum, std::vector<float>(12, 1.0f));
}

TEST(topk, sends_the_largest) {
  for (const std::size_t n : {1u, 2u, 63u, 64u, 65u, 129u, 5000u}) {
    for (const double density : {0.01, 0.3, 1.0}) {
      const auto gradient = gradient_of(n, 4);
      placed<byteps_topk> codec(n, {.density = density});
      std::vector<char> sent(n, 0);
      float smallest = 1e9f;
      for (const pair& each : pairs_of(codec.encode(gradient))) {
        ASSERT_EQ(each.value, gradient[each.index]);
        ASSERT_EQ(sent[each.index], 0) << "twice";
        sent[each.index] = 1;
        smallest = std::min(smallest, std::fabs(each.value));
      }
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_TRUE(sent[i] != 0 || std::fabs(gradient[i]) <= smallest) << i << " of " << n;
      }
    }
  }
}

TEST(topk, names_a_nan) {
  for (const std::size_t place : {3u, 900u}) {
    auto gradient = gradient_of(1000, 1);
    gradient[place] = std::nanf("");
    placed<byteps_topk> codec(1000, {.k = 10});
    EXPECT_THROW(codec.encode(gradient), usage_error) << place;
  }
}

/// The random generator as its authors published it, beginning with its first number.
struct drawn {
  std::uint64_t a;
  std::uint64_t b;
  std::uint64_t operator()() {
    std::uint64_t t = a;
    a = b;
    t ^= t << 23;
    t ^= t >> 17;
    t ^= b ^ (b >> 26);
    b = t;
    return a + b;
  }
};

TEST(randomk, draws_on_from_step_to_step) {
  for (const std::size_t n : {1u, 33u, 1000u, 300000u}) {
    const std::size_t k = std::min<std::size_t>(n, 300);
    placed<byteps_randomk> codec(n, {.k = k, .seed = 12345});
    drawn random{12345, 12345};
    for (unsigned step = 0; step < 4; ++step) {
      const auto gradient = gradient_of(n, step);
      const auto payload = codec.encode(gradient);
      std::set<std::size_t> indices;
      for (const pair& each : pairs_of(payload)) {
        const std::size_t index = random() % n;
        indices.insert(index);
        ASSERT_EQ(each.index, index);
        ASSERT_EQ(each.value, gradient[index]);
      }
      const auto decoded = codec.decode(payload);
      for (std::size_t i = 0; i < n; ++i) {  // sent elements count once, and the others are lost
        ASSERT_EQ(decoded[i], indices.contains(i) ? gradient[i] : 0.0f) << i;
      }
    }
  }
}

TEST(xorshift, discards_as_it_draws) {
  for (const std::uint64_t count : {0u, 1u, 2u, 63u, 64u, 127u, 128u, 129u, 100003u}) {
    kernels::xorshift128_plus jumped(99);
    jumped.discard(count);
    drawn random{99, 99};
    for (std::uint64_t i = 0; i < count; ++i) {
      random();
    }
    EXPECT_EQ(jumped(), random()) << count;
    EXPECT_EQ(jumped(), random()) << count;
  }
  kernels::xorshift128_plus once(99);
  once.discard(0xfedc'ba98'7654'3210);
  kernels::xorshift128_plus twice(99);
  twice.discard(0xfedc'ba98'0000'0000);
  twice.discard(0x7654'3210);
  EXPECT_EQ(once(), twice());
}

/// Runs the parts that a device's threads would run, one after the other.
TEST(randomk, is_drawn_and_added_in_parts_as_on_a_host) {
  constexpr std::size_t n = 500;
  constexpr std::size_t k = 200;
  const auto gradient = gradient_of(n, 9);
  placed<byteps_randomk> codec(n, {.k = k, .seed = 5});
  const auto payload = codec.encode(gradient);
  std::vector<kernels::index_pair> pairs(k);
  const kernels::element::draw_some draw{gradient.data(), n, kernels::xorshift128_plus(5), 0,
                                         pairs.data(),    k};
  for (const std::size_t thread : {2u, 0u, 3u, 1u}) {
    draw(thread);
  }
  EXPECT_EQ(std::memcmp(pairs.data(), payload.data(), payload.size()), 0);
  std::vector<float> sum(n, 0.5f);
  for (std::size_t i = k; i-- > 0;) {
    kernels::element::add_new_pair{pairs.data(), sum.data(), sum.size()}(i);
  }
  EXPECT_EQ(sum, codec.decode(payload, 0.5f));
}

}  // namespace
}  // namespace tutti
