// Device kernels for a gradient in blocks or words, run on the host and compared with the host's
// kernels.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "kernels/values.hpp"
#include "tutti/kernels/block_codes.hpp"
#include "tutti/kernels/block_signs.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/powers.hpp"
#include "tutti/kernels/signs.hpp"

namespace tutti {
namespace {

namespace element = kernels::element;

/// Calls `f` for every block as a device does, in reverse order.
template <class F>
void on_lanes(std::size_t n, std::size_t block, const F& f) {
  for (std::size_t number = kernels::block_count(n, block); number-- > 0;) {
    f(kernels::host_lanes{}, number);
  }
}

/// Returns values with zeros of both signs, with NaN in one block and an infinity in another.
std::vector<float> odd_values(std::size_t n, unsigned seed) {
  auto made = normal_values(n, seed);
  for (std::size_t i = 0; i < n; i += 7) {
    made[i] = i % 2 == 0 ? -0.0f : 0.0f;
  }
  if (n > 4000) {
    made[1000] = std::numeric_limits<float>::quiet_NaN();
    made[3000] = -std::numeric_limits<float>::infinity();
  }
  return made;
}

template <class Code>
void codes_are_the_hosts() {
  using stored = typename Code::stored;
  inline_queue queue;
  for (const std::size_t n : sizes) {
    for (const std::size_t block : {1UL, 7UL, 64UL, 256UL, 4096UL}) {
      for (const std::size_t offset : {0UL, 1UL}) {  // elements four at a time, and one by one
        const std::size_t count = kernels::block_count(n, block);
        const auto from = odd_values(n + offset, 40);
        std::vector<float> scales_here(count, 7);
        std::vector<float> scales_there(count, 8);
        std::vector<stored> codes_here(n + offset, 7);
        std::vector<stored> codes_there(n + offset, 7);
        const float* const input = from.data() + offset;
        stored* const codes = codes_there.data() + offset;
        kernels::quantise_blocks<Code>(queue, std::span(input, n), block, scales_here.data(),
                                       codes_here.data() + offset);
        on_lanes(n, block,
                 element::quantise_block<Code>{input, n, block, scales_there.data(), codes});
        EXPECT_TRUE(same_bits(scales_here, scales_there)) << n << " in blocks of " << block;
        EXPECT_EQ(codes_here, codes_there) << n << " in blocks of " << block;

        auto here = odd_values(n + offset, 41);
        auto there = here;
        kernels::add_and_quantise_blocks<Code>(queue, std::span(here).subspan(offset),
                                               std::span(input, n), block, scales_here.data(),
                                               codes_here.data() + offset);
        on_lanes(n, block,
                 element::add_and_quantise_block<Code>{there.data() + offset, input, n, block,
                                                       scales_there.data(), codes});
        EXPECT_TRUE(same_bits(here, there)) << n << " in blocks of " << block;
        EXPECT_TRUE(same_bits(scales_here, scales_there)) << n << " in blocks of " << block;
        EXPECT_EQ(codes_here, codes_there) << n << " in blocks of " << block;

        kernels::add_dequantised<Code>(queue, scales_here.data(), codes_here.data() + offset, block,
                                       std::span(here).subspan(offset));
        on_lanes(n, block,
                 element::add_dequantised_block<Code>{scales_there.data(), codes,
                                                      there.data() + offset, n, block});
        EXPECT_TRUE(same_bits(here, there)) << n << " in blocks of " << block;
      }
    }
  }
}

TEST(device_blocks, codes_are_the_hosts) {
  codes_are_the_hosts<kernels::int8_code>();
  codes_are_the_hosts<kernels::scaled_code<kernels::e4m3>>();
  codes_are_the_hosts<kernels::scaled_code<kernels::e5m2>>();
}

TEST(device_blocks, signs_are_the_hosts) {
  inline_queue queue;
  for (const std::size_t n : sizes) {
    for (const std::size_t block : {32UL, 64UL, 512UL, 4096UL}) {
      const std::size_t count = kernels::block_count(n, block);
      const auto from = odd_values(n, 42);
      std::vector<float> means_here(count, 7);
      std::vector<float> means_there(count, 8);
      std::vector<std::uint32_t> words_here(kernels::sign_words(n), 77);
      std::vector<std::uint32_t> words_there(kernels::sign_words(n), 99);
      kernels::pack_block_signs(queue, from, block, means_here.data(), words_here.data());
      on_lanes(n, block,
               element::pack_block{from.data(), n, block, means_there.data(), words_there.data()});
      EXPECT_TRUE(same_bits(means_here, means_there)) << n << " in blocks of " << block;
      EXPECT_EQ(words_here, words_there) << n << " in blocks of " << block;

      auto here = odd_values(n, 43);
      auto there = here;
      kernels::add_and_pack_block_signs(queue, here, from, block, means_here.data(),
                                        words_here.data());
      on_lanes(n, block,
               element::add_and_pack_block{there.data(), from.data(), n, block, means_there.data(),
                                           words_there.data()});
      EXPECT_TRUE(same_bits(here, there)) << n << " in blocks of " << block;
      EXPECT_TRUE(same_bits(means_here, means_there)) << n << " in blocks of " << block;
      EXPECT_EQ(words_here, words_there) << n << " in blocks of " << block;

      kernels::add_block_signs(queue, means_here.data(), words_here.data(), block, here);
      const element::decode_signs<kernels::detail::added> decode{
          words_there.data(), means_there.data(), there.data(), n, block};
      auto one_by_one = there;
      auto in_packs_of_one = decode;
      in_packs_of_one.out = one_by_one.data();
      for (std::size_t i = 0; i < n; ++i) {
        in_packs_of_one.pack<1>(i);
      }
      for (std::size_t i = 0; i < kernels::block_count(n, 4); ++i) {
        decode.pack<4>(i);
      }
      EXPECT_TRUE(same_bits(here, there)) << n << " in blocks of " << block;
      EXPECT_TRUE(same_bits(here, one_by_one)) << n << " in blocks of " << block;
    }
  }
}

TEST(device_blocks, powers_are_the_hosts) {
  inline_queue queue;
  const kernels::counted_random random(5);
  for (const std::size_t n : sizes) {
    const auto from = odd_values(n, 44);
    const std::size_t words = kernels::sign_words(n);
    std::vector<std::uint32_t> words_here(words, 77);
    std::vector<std::uint32_t> words_there(words, 99);
    std::vector<std::uint8_t> powers_here(n, 7);
    std::vector<std::uint8_t> powers_there(n, 8);
    kernels::round_to_powers(queue, from, random, words_here.data(), powers_here.data());
    const element::round_to_powers round{from.data(), n, random, words_there.data(),
                                         powers_there.data()};
    auto here = odd_values(n, 45);
    auto there = here;
    kernels::add_powers(queue, words_here.data(), powers_here.data(), here);
    for (std::size_t word = words; word-- > 0;) {
      round(word);
      element::add_powers{words_there.data(), powers_there.data(), there.data(), n}(word);
    }
    EXPECT_EQ(words_here, words_there) << n;
    EXPECT_EQ(powers_here, powers_there) << n;
    EXPECT_TRUE(same_bits(here, there)) << n;
  }
}

}  // namespace
}  // namespace tutti
