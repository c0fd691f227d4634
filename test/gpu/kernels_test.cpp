// Every kernel on a GPU, compared with its twin on the CPU: bit for bit, except for means, which
// may be neighbouring floats. The CPU's kernels are compared with oracles in test/kernels. One
// file, because every kernel is run over the same lengths and offsets.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <initializer_list>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/byteps_onebit.hpp"
#include "tutti/compression/e3m0.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp8.hpp"
#include "tutti/compression/natural.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/kernels/adam.hpp"
#include "tutti/kernels/adaptive_sum.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/clipping.hpp"
#include "tutti/kernels/compensation.hpp"
#include "tutti/kernels/copies.hpp"
#include "tutti/kernels/counted_random.hpp"
#include "tutti/kernels/descent.hpp"
#include "tutti/kernels/index_pairs.hpp"
#include "tutti/kernels/low_rank.hpp"
#include "tutti/kernels/momentum.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/signs.hpp"
#include "tutti/kernels/sparse_pairs.hpp"
#include "tutti/kernels/stratified.hpp"
#include "tutti/kernels/votes.hpp"

namespace tutti::test {
namespace {

constexpr std::size_t sizes[] = {0, 1, 3, 31, 33, 255, 257, 1025, 4097, 65537, 131'061, 200'003};
/// Elements before the arrays; 1 prevents that sixteen bytes are moved together.
constexpr std::size_t offsets[] = {0, 1, 4};

/// Returns the first `n` values of a seed. Each value is drawn once.
std::vector<float> normal_values(std::size_t n, unsigned seed) {
  struct drawn {
    std::mt19937 random;
    std::normal_distribution<float> normal{};
    std::vector<float> values{};
  };
  static std::map<unsigned, drawn> by_seed;
  auto& [random, normal, values] =
      by_seed.try_emplace(seed, drawn{std::mt19937(seed)}).first->second;
  while (values.size() < n) {
    const std::size_t i = values.size();
    const float value = normal(random);
    values.push_back(i % 97 != 0 ? value : i % 2 == 0 ? 0.0f : -0.0f);
  }
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n)};
}

/// A device has one NaN, while a host keeps the sign and the digits of those that it computes with.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size() || a.empty()) {
    return a.size() == b.size();
  }
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0 ||
         std::ranges::equal(a, b, [](T one, T other) {
           return std::memcmp(&one, &other, sizeof one) == 0 || (one != one && other != other);
         });
}

class Kernels : public needs_a_device {
 protected:
  /// Expects `run(queue, into, from)` on both queues to leave the same bits in `into`.
  template <class Run>
  void same_on_both(const Run& run) {
    cuda::stream queue;
    inline_queue host;
    for (const std::size_t n : sizes) {
      for (const std::size_t offset : offsets) {
        auto into = normal_values(n, 1);
        const auto from = normal_values(n, 2);
        const on_gpu there(queue, into, offset);
        const on_gpu input(queue, from, offset);
        run(queue, there.span(), input.input());
        run(host, std::span<float>(into), std::span<const float>(from));
        EXPECT_TRUE(same_bits(there.read(), into)) << n << " elements behind " << offset;
      }
    }
  }
};

}  // namespace

TEST_F(Kernels, Arithmetic) {
  same_on_both([](auto& queue, auto into, auto from) { kernels::add(queue, into, from); });
  same_on_both([](auto& queue, auto into, auto) { kernels::scale(queue, into, 0.3f); });
  same_on_both(
      [](auto& queue, auto into, auto from) { kernels::add_scaled(queue, into, from, 0.3f); });
  same_on_both(
      [](auto& queue, auto into, auto from) { kernels::blend(queue, into, from, 0.9f, 0.1f); });
  same_on_both([](auto& queue, auto into, auto) { kernels::negate(queue, into); });
  same_on_both([](auto& queue, auto into, auto) {
    kernels::swap(queue, into.first(into.size() / 2), into.last(into.size() / 2));
  });
  same_on_both([](auto& queue, auto into, auto from) {
    kernels::descend(queue, into, from, {0.1f, 0.0f, 0.01f});
  });
}

TEST_F(Kernels, SumsOfMany) {
  cuda::stream queue;
  inline_queue host;
  const auto agree = [&](std::size_t n, std::size_t count, std::size_t offset) {
    std::vector<std::vector<float>> inputs;
    std::vector<on_gpu<float>> there;
    std::vector<const float*> list;
    std::vector<const float*> list_there;
    for (std::size_t i = 0; i < count; ++i) {
      inputs.push_back(normal_values(n, static_cast<unsigned>(i)));
      there.emplace_back(queue, inputs.back(), offset);
    }
    for (std::size_t i = 0; i < count; ++i) {
      list.push_back(inputs[i].data());
      list_there.push_back(there[i].data());
    }
    std::vector<float> out(n);
    const on_gpu<float> out_there(queue, n);
    kernels::sum(host, std::span(out), list);
    kernels::sum(queue, out_there.span(), list_there);
    EXPECT_TRUE(same_bits(out_there.read(), out)) << count << " inputs behind " << offset;
  };
  for (const std::size_t count : {0UL, 1UL, 5UL, 300UL}) {
    agree(1025, count, 0);
    agree(1028, count, 0);
    agree(1028, count, 1);
  }
}

TEST_F(Kernels, DescentWithMomentum) {
  cuda::stream queue;
  inline_queue host;
  const kernels::descent values{0.1f, 0.9f, 0.01f};
  for (const std::size_t n : sizes) {
    auto x = normal_values(n, 1);
    auto m = normal_values(n, 2);
    const auto g = normal_values(n, 3);
    const on_gpu there_x(queue, x);
    const on_gpu there_m(queue, m);
    const on_gpu there_g(queue, g);
    kernels::descend_with_momentum(host, std::span(x), std::span(m), std::span(g), values);
    kernels::descend_with_momentum(queue, there_x.span(), there_m.span(), there_g.input(), values);
    kernels::descend_with_nesterov(host, std::span(x), std::span(m), std::span(g), values);
    kernels::descend_with_nesterov(queue, there_x.span(), there_m.span(), there_g.input(), values);
    EXPECT_TRUE(same_bits(there_x.read(), x)) << n;
    EXPECT_TRUE(same_bits(there_m.read(), m)) << n;
  }
}

TEST_F(Kernels, Adam) {
  cuda::stream queue;
  inline_queue host;
  const kernels::adam_step values{0.9f, 0.1f, 0.99f, 0.01f, 0.003f, 1.25f, 1e-6f, 0.02f, 0.999f};
  for (const std::size_t n : sizes) {
    auto x = normal_values(n, 1);
    auto m = normal_values(n, 2);
    std::vector<float> v(n, 0.5f);
    const auto g = normal_values(n, 3);
    const on_gpu there_x(queue, x);
    const on_gpu there_m(queue, m);
    const on_gpu there_v(queue, v);
    const on_gpu there_g(queue, g);
    kernels::adam(host, x, m, v, g, values);
    kernels::adam(queue, there_x.span(), there_m.span(), there_v.span(), there_g.input(), values);
    kernels::adam_along(host, x, m, v, values);
    kernels::adam_along(queue, there_x.span(), there_m.input(), there_v.input(), values);
    EXPECT_TRUE(same_bits(there_x.read(), x)) << n;
    EXPECT_TRUE(same_bits(there_m.read(), m)) << n;
    EXPECT_TRUE(same_bits(there_v.read(), v)) << n;
  }
}

TEST_F(Kernels, NesterovMomentum) {
  cuda::stream queue;
  inline_queue host;
  for (const std::size_t n : sizes) {
    auto m = normal_values(n, 1);
    std::vector<float> direction(n);
    const auto g = normal_values(n, 2);
    const on_gpu there_m(queue, m);
    const on_gpu there_direction(queue, direction);
    const on_gpu there_g(queue, g);
    kernels::add_nesterov(host, m, direction, g, 0.9f);
    kernels::add_nesterov(queue, there_m.span(), there_direction.span(), there_g.input(), 0.9f);
    EXPECT_TRUE(same_bits(there_m.read(), m)) << n;
    EXPECT_TRUE(same_bits(there_direction.read(), direction)) << n;
  }
}

TEST_F(Kernels, RandomWords) {
  cuda::stream queue;
  inline_queue host;
  for (const std::size_t n : sizes) {
    std::vector<std::uint32_t> words(n);
    const on_gpu there(queue, words);
    kernels::draw_words(host, words, kernels::counted_random(3));
    kernels::draw_words(queue, there.span(), kernels::counted_random(3));
    EXPECT_EQ(there.read(), words);
  }
}

TEST_F(Kernels, IndexPairs) {
  cuda::stream queue;
  inline_queue host;
  for (const std::size_t n : sizes) {
    const auto input = normal_values(n, 1);
    const on_gpu there(queue, input);
    std::vector<kernels::index_pair> pairs(std::min<std::size_t>(n / 2, 300));
    const on_gpu pairs_there(queue, pairs);
    kernels::draw_pairs(host, input, 7, 1000, pairs);
    kernels::draw_pairs(queue, there.input(), 7, 1000, pairs_there.span());
    auto sum = normal_values(n, 2);
    const on_gpu sum_there(queue, sum);
    kernels::add_pairs(host, pairs, sum);
    kernels::add_pairs(queue, pairs_there.input(), sum_there.span());
    EXPECT_TRUE(same_bits(sum_there.read(), sum)) << n;
    kernels::clear_pairs(host, sum, pairs);
    kernels::clear_pairs(queue, sum_there.span(), pairs_there.input());
    EXPECT_TRUE(same_bits(sum_there.read(), sum)) << n;
  }
}

TEST_F(Kernels, HeapsOfPairs) {
  cuda::stream queue;
  inline_queue host;
  const auto agree = [&](const std::vector<float>& input, std::size_t k) {
    const on_gpu there(queue, input);
    std::vector<kernels::index_pair> pairs(k);
    const on_gpu pairs_there(queue, pairs);
    kernels::select_by_heap(host, input, 0, pairs);
    kernels::select_by_heap(queue, there.input(), 0, pairs_there.span());
    const auto read = pairs_there.read();
    EXPECT_TRUE(k == 0 || std::memcmp(read.data(), pairs.data(), k * sizeof pairs[0]) == 0)
        << k << " of " << input.size();
  };
  for (const std::size_t n : sizes) {
    agree(normal_values(n, 8), n / 1000);
    agree(normal_values(n, 8), std::min<std::size_t>(n, 300));
  }
  std::vector<float> rising(9001);
  for (std::size_t i = 0; i < rising.size(); ++i) {
    rising[i] = (i % 2 == 0 ? 1e-38f : -1e-38f) * static_cast<float>(i / 3);
  }
  agree(rising, 1);
  agree(rising, rising.size());
}

TEST_F(Kernels, NaNIsRefusedAtAHeap) {
  cuda::stream queue;
  auto input = normal_values(5000, 9);
  input[60] = input[4000] = std::numeric_limits<float>::quiet_NaN();
  const on_gpu there(queue, input);
  const on_gpu<kernels::index_pair> pairs(queue, std::vector<kernels::index_pair>(5));
  kernels::select_by_heap(queue, there.input(), 1000, pairs.span());
  try {
    queue.synchronize();
    FAIL() << "nothing was refused";
  } catch (const usage_error& refused) {
    EXPECT_EQ(std::string(refused.what()).find("gradient element 1060 is not a number"), 0u)
        << refused.what();
  }
}

TEST_F(Kernels, MeansAreWithinOneUlp) {
  cuda::stream queue;
  inline_queue host;
  for (const std::size_t n : sizes) {
    const auto from = normal_values(n, 4);
    auto into = normal_values(n, 5);
    std::vector<float> here(4);
    const on_gpu<float> there(queue, 4);
    const on_gpu input(queue, from);
    const on_gpu sum(queue, into);
    kernels::mean_magnitude(host, from, here.data());
    kernels::add_and_mean_magnitude(host, std::span(into), from, here.data() + 1);
    kernels::mean_magnitude(queue, input.input(), there.data());
    kernels::add_and_mean_magnitude(queue, sum.span(), input.input(), there.data() + 1);
    kernels::root_mean_square(host, from, here.data() + 2);
    kernels::add_and_root_mean_square(host, std::span(into), from, here.data() + 3);
    kernels::root_mean_square(queue, input.input(), there.data() + 2);
    kernels::add_and_root_mean_square(queue, sum.span(), input.input(), there.data() + 3);
    const auto means = there.read();
    for (std::size_t i = 0; i < means.size(); ++i) {
      EXPECT_LE(means[i], std::nextafter(here[i], 1e9f)) << n;
      EXPECT_GE(means[i], std::nextafter(here[i], -1.0f)) << n;
    }
    EXPECT_TRUE(same_bits(sum.read(), into)) << n;
    kernels::mean_magnitude(queue, input.input(), there.data());
    EXPECT_EQ(there.read()[0], means[0]) << "a second run of " << n;
  }
}

/// A device's sums have one NaN, whose sign a small format keeps.
template <class Format>
bool same_numbers(std::vector<typename Format::bits> a, std::vector<typename Format::bits> b) {
  for (auto* const all : {&a, &b}) {
    std::ranges::replace_if(
        *all, [](auto each) { return std::isnan(Format::to_float(each)); },
        Format::to_bits(std::numeric_limits<float>::quiet_NaN()));
  }
  return same_bits(a, b);
}

template <class Format>
void casts_agree() {
  using bits = typename Format::bits;
  cuda::stream queue;
  inline_queue host;
  for (const std::size_t n : sizes) {
    for (const std::size_t offset : offsets) {
      auto input = normal_values(n, 6);
      for (std::size_t i = 0; i < n; ++i) {
        input[i] *= i % 3 == 0 ? 1e-7f : i % 3 == 1 ? 1.0f : 60000.0f;
      }
      if (n > 1000) {
        input[500] = std::numeric_limits<float>::infinity();
      }
      std::vector<bits> here(n);
      const on_gpu there_input(queue, input, offset);
      const on_gpu<bits> there(queue, std::vector<bits>(n, 99), 2 * offset);
      kernels::narrow<Format>(host, input, here.data());
      kernels::narrow<Format>(queue, there_input.input(), there.data());
      EXPECT_TRUE(same_bits(there.read(), here)) << n;
      kernels::add_narrow<Format>(host, std::span(here), std::vector(here).data());
      kernels::add_narrow<Format>(queue, there.span(), there.data());
      EXPECT_TRUE(same_numbers<Format>(there.read(), here)) << n;
      kernels::widen<Format>(host, here.data(), input);
      kernels::widen<Format>(queue, there.data(), there_input.span());
      EXPECT_TRUE(same_bits(there_input.read(), input)) << n;
      kernels::add_widened<Format>(host, here.data(), input);
      kernels::add_widened<Format>(queue, there.data(), there_input.span());
      EXPECT_TRUE(same_bits(there_input.read(), input)) << n;
    }
  }
}

TEST_F(Kernels, NormsAreTheirDefinitions) {
  cuda::stream queue;
  for (const std::size_t n : sizes) {
    const auto values = normal_values(n, 4);
    double squares = 0;
    float largest = 0;
    for (const float each : values) {
      squares += static_cast<double>(each) * static_cast<double>(each);
      largest = std::max(largest, std::abs(each));
    }
    const on_gpu there(queue, values);
    const on_gpu<double> sum(queue, 1);
    const on_gpu<float> most(queue, 1);
    kernels::sum_of_squares(queue, there.input(), sum.data());
    kernels::largest_magnitude(queue, there.input(), most.data());
    EXPECT_NEAR(sum.read().front(), squares, 1e-13 * squares) << n;
    EXPECT_EQ(most.read().front(), largest) << n;
  }
  const on_gpu odd(queue, std::vector<float>{3, std::nanf(""), -7});
  const on_gpu<float> most(queue, 1);
  kernels::largest_magnitude(queue, odd.input(), most.data());
  EXPECT_TRUE(std::isnan(most.read().front()));
}

TEST_F(Kernels, AdaptiveSums) {
  const auto products = [](auto& queue, auto one, auto other) {
    const on_gpu<double> there(queue, 3);
    auto* result = reinterpret_cast<kernels::inner_products*>(there.data());
    kernels::multiply(queue, one, other, result);
    kernels::add_products(queue, {result, 1}, {result, 1});
    return there.read();
  };
  cuda::stream queue;
  const on_gpu<double> known(queue, std::vector<double>{3, 2, 4});
  const auto* weights = reinterpret_cast<const kernels::inner_products*>(known.data());
  for (const std::size_t n : sizes) {
    const auto one = normal_values(n, 1);
    const auto other = normal_values(n, 2);
    const on_gpu there(queue, one);
    const on_gpu there_other(queue, other);
    const auto got = products(queue, there.input(), there_other.input());
    std::vector<double> expected(3);
    std::vector<float> sum(n);
    for (std::size_t i = 0; i < n; ++i) {
      const double a = one[i];
      const double b = other[i];
      expected[0] += 2 * a * b;
      expected[1] += 2 * a * a;
      expected[2] += 2 * b * b;
      sum[i] = static_cast<float>(0.625 * a + 0.25 * b);
    }
    for (std::size_t which = 0; which < 3; ++which) {
      EXPECT_NEAR(got[which], expected[which], 1e-12 * static_cast<double>(n + 1)) << n;
    }
    kernels::add_adaptively(queue, there.span(), there_other.input(), weights,
                            kernels::operand::second);
    EXPECT_TRUE(same_bits(there.read(), sum)) << n;
  }
}

TEST_F(Kernels, Casts) {
  casts_agree<kernels::half>();
  casts_agree<kernels::bfloat>();
  casts_agree<kernels::e4m3>();
  casts_agree<kernels::e5m2>();
}

TEST_F(Kernels, Signs) {
  cuda::stream queue;
  inline_queue host;
  const std::vector<float> scale = {0.3f};
  const on_gpu there_scale(queue, scale);
  const auto agree = [&](std::size_t n, std::size_t offset) {
    auto input = normal_values(n, 7);
    if (n > 100) {
      input[100] = -std::numeric_limits<float>::quiet_NaN();
    }
    const std::size_t words = kernels::sign_words(n);
    std::vector<std::uint32_t> here(words);
    const on_gpu<std::uint32_t> there(queue, words);
    const on_gpu there_input(queue, input, offset);
    kernels::pack_signs(host, input, here.data());
    kernels::pack_signs(queue, there_input.input(), there.data());
    EXPECT_EQ(there.read(), here) << n << " behind " << offset;
    kernels::add_signs(host, here.data(), scale.data(), input);
    kernels::add_signs(queue, there.data(), there_scale.data(), there_input.span());
    EXPECT_TRUE(same_bits(there_input.read(), input)) << n << " behind " << offset;
    for (const float worth : {1.0f, 0.7f}) {
      kernels::add_signs(host, here.data(), worth, input);
      kernels::add_signs(queue, there.data(), worth, there_input.span());
      EXPECT_TRUE(same_bits(there_input.read(), input)) << n << " behind " << offset;
    }
    auto unpacked = input;
    const on_gpu there_unpacked(queue, input, offset);
    kernels::unpack_signs(host, here.data(), scale.data(), unpacked);
    kernels::unpack_signs(queue, there.data(), there_scale.data(), there_unpacked.span());
    EXPECT_TRUE(same_bits(there_unpacked.read(), unpacked)) << n << " behind " << offset;
    kernels::pack_signs_and_subtract(host, input, scale.data(), here.data());
    kernels::pack_signs_and_subtract(queue, there_input.span(), there_scale.data(), there.data());
    EXPECT_EQ(there.read(), here) << n << " behind " << offset;
    EXPECT_TRUE(same_bits(there_input.read(), input)) << n << " behind " << offset;
    const auto more = normal_values(n, 8);
    const on_gpu there_more(queue, more, offset);
    kernels::add_and_pack_signs(host, input, more, 0.7f, here.data());
    kernels::add_and_pack_signs(queue, there_input.span(), there_more.input(), 0.7f, there.data());
    EXPECT_EQ(there.read(), here) << n << " behind " << offset;
    EXPECT_TRUE(same_bits(there_input.read(), input)) << n << " behind " << offset;
  };
  for (const std::size_t n : sizes) {
    for (const std::size_t offset : offsets) {
      agree(n, offset);
    }
  }
}

/// Compares a compressor of one code an element on both queues: the payload, what it decodes to
/// and, where the encoder leaves one, the residual.
template <class Compression>
void codes_agree(const options_of<Compression>& values) {
  cuda::stream queue;
  inline_queue host;
  const auto compression = make_policy<Compression>(values);
  for (const std::size_t n : sizes) {
    for (const std::size_t offset : offsets) {
      const auto gradient = normal_values(n, 13);
      auto residual = normal_values(n, 14);
      if (n > 1000) {
        residual[500] = std::numeric_limits<float>::infinity();
      }
      std::vector<std::byte> here(compression.wire_bytes(n), std::byte{7});
      const on_gpu there(queue, std::vector<std::byte>(here.size(), std::byte{9}), 4 * offset);
      const on_gpu there_gradient(queue, gradient, offset);
      const on_gpu there_residual(queue, residual, offset);
      const wire out{here.data(), here.size()};
      const wire out_there{there.data(), here.size()};
      tutti::encode(compression, host, std::span<const float>(gradient), out, {});
      tutti::encode(compression, queue, there_gradient.input(), out_there, {});
      EXPECT_EQ(there.read(), here) << n << " behind " << offset;
      compression.accumulate(host, out, residual);
      compression.accumulate(queue, out_there, there_residual.span());
      EXPECT_TRUE(same_bits(there_residual.read(), residual)) << n << " behind " << offset;
      if constexpr (compression::encodes_with_residual<Compression>) {
        compression.encode_with_residual(host, gradient, residual, out, {});
        compression.encode_with_residual(queue, there_gradient.input(), there_residual.span(),
                                         out_there, {});
        EXPECT_EQ(there.read(), here) << n << " behind " << offset;
        EXPECT_TRUE(same_bits(there_residual.read(), residual)) << n << " behind " << offset;
      }
    }
  }
}

TEST_F(Kernels, BlocksOfSigns) {
  for (const std::size_t block : {32u, 512u, 4096u}) {
    SCOPED_TRACE(block);
    codes_agree<compression::block_sign>({.block = block});
  }
}
TEST_F(Kernels, BlocksOfCodes) {
  for (const std::size_t block : {1u, 7u, 256u, 4096u}) {
    SCOPED_TRACE(block);
    codes_agree<compression::block_int8>({.block = block});
    codes_agree<compression::fp8_e4m3>({.block = block});
    codes_agree<compression::fp8_e5m2>({.block = block});
  }
}
TEST_F(Kernels, PowersOfTwo) {
  codes_agree<compression::natural>({.seed = 3});
  codes_agree<compression::e3m0>({});
}
TEST_F(Kernels, ThresholdCodes) {
  codes_agree<compression::one_bit>({.threshold = 0.5f});
  codes_agree<compression::two_bit>({.threshold = 0.5f});
}
TEST_F(Kernels, SignsInWords) {
  codes_agree<compression::byteps_onebit>({.worth = compression::sign_is_worth::one});
  cuda::stream queue;
  inline_queue host;
  for (const std::size_t n : sizes) {
    for (const std::size_t offset : offsets) {
      auto input = normal_values(n, 15);
      const std::vector<float> scale{0.375f};
      const on_gpu there_input(queue, input, offset);
      const on_gpu there_scale(queue, scale, offset);
      std::vector<std::byte> here(kernels::code_bytes<kernels::sign_code>(n), std::byte{7});
      const on_gpu there(queue, std::vector<std::byte>(here.size(), std::byte{9}), 4 * offset);
      kernels::pack_codes_and_subtract(host, kernels::sign_code{scale.data()}, input, here.data());
      kernels::pack_codes_and_subtract(queue, kernels::sign_code{there_scale.data()},
                                       there_input.span(), there.data());
      EXPECT_EQ(there.read(), here) << n << " behind " << offset;
      EXPECT_TRUE(same_bits(there_input.read(), input)) << n << " behind " << offset;
    }
  }
}

/// Runs the steps of a low-rank compressor one after the other, after the first column has been
/// drawn anew.
TEST_F(Kernels, LowRank) {
  cuda::stream queue;
  inline_queue host;
  const auto agree = [&](const kernels::low_rank& size, std::size_t offset) {
    const auto what = std::to_string(size.rows) + " x " + std::to_string(size.columns) +
                      " behind " + std::to_string(offset);
    const auto matrix = normal_values(size.rows * size.columns, 15);
    auto right = normal_values(size.columns * size.rank, 16);
    std::fill_n(right.begin(), std::min(right.size(), size.columns), 0.0f);
    std::vector<float> left(size.rows * size.rank);
    auto rest = matrix;
    std::vector<float> mean(matrix.size());
    const on_gpu there(queue, matrix, offset);
    const on_gpu there_right(queue, right, offset);
    const on_gpu<float> there_left(queue, left.size());
    const on_gpu there_rest(queue, matrix, offset);
    const on_gpu there_mean(queue, mean, offset);
    const kernels::counted_random random(17);
    kernels::fill_empty_columns(host, right.data(), size.columns, size.rank, random);
    kernels::fill_empty_columns(queue, there_right.data(), size.columns, size.rank, random);
    EXPECT_TRUE(same_bits(there_right.read(), right)) << what;
    kernels::matrix_times_thin(host, matrix.data(), right.data(), size, left.data());
    kernels::matrix_times_thin(queue, there.data(), there_right.data(), size, there_left.data());
    EXPECT_TRUE(same_bits(there_left.read(), left)) << what;
    kernels::orthonormalise(host, left.data(), size.rows, size.rank);
    kernels::orthonormalise(queue, there_left.data(), size.rows, size.rank);
    EXPECT_TRUE(same_bits(there_left.read(), left)) << what;
    kernels::transposed_times_thin(host, matrix.data(), left.data(), size, right.data());
    kernels::transposed_times_thin(queue, there.data(), there_left.data(), size,
                                   there_right.data());
    EXPECT_TRUE(same_bits(there_right.read(), right)) << what;
    kernels::expand_and_subtract(host, left.data(), right.data(), size, 0.1f, 5, mean, rest);
    kernels::expand_and_subtract(queue, there_left.data(), there_right.data(), size, 0.1f, 5,
                                 there_mean.span(), there_rest.span());
    EXPECT_TRUE(same_bits(there_mean.read(), mean)) << what;
    EXPECT_TRUE(same_bits(there_rest.read(), rest)) << what;
  };
  for (const kernels::low_rank& size : {kernels::low_rank{1, 1, 1},
                                        {64, 27, 2},
                                        {33, 1001, 5},
                                        {3, 5000, 3},
                                        {70'001, 4, 2},
                                        {512, 640, 4},
                                        {130, 1155, 3},
                                        {47, 400, 1},
                                        {4100, 65, 2}}) {
    agree(size, 0);
    agree(size, 1);
  }
  agree({0, 4, 0}, 0);
}

TEST_F(Kernels, Majorities) {
  cuda::stream queue;
  inline_queue host;
  constexpr std::size_t stride = 1040;
  const auto agree = [&](std::size_t words, std::size_t voters) {
    std::mt19937 random(static_cast<unsigned>(voters));
    std::vector<std::uint32_t> ballots(voters * stride);
    std::ranges::generate(ballots, std::ref(random));
    const on_gpu there(queue, ballots);
    const auto row = [&](std::uint32_t* first) {
      return payload_row{reinterpret_cast<const std::byte*>(first), 4 * stride, voters, 4 * words};
    };
    kernels::majority(host, std::span(ballots).first(words), row(ballots.data()));
    kernels::majority(queue, there.span().first(words), row(there.data()));
    EXPECT_EQ(there.read(), ballots) << voters << " voters, into the first ballot";
  };
  for (const std::size_t voters : {1UL, 2UL, 3UL, 4UL, 15UL, 16UL, 255UL, 256UL}) {
    agree(1027, voters);
    agree(1028, voters);
  }
}

namespace {

struct selected {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

selected select_on_gpu(cuda::stream& queue, const std::vector<float>& input, std::size_t k,
                       std::size_t offset = 0) {
  const std::size_t places = kernels::selection_candidates(input.size(), k);
  const on_gpu there(queue, input, offset);
  const on_gpu<float> room(queue, places);
  const on_gpu<std::uint32_t> room_of_indices(queue, places);
  const on_gpu<std::uint32_t> indices(queue, k);
  const on_gpu<float> values(queue, k);
  kernels::select_largest(queue, there.input(), 1000, {indices.span(), values.data()},
                          {room.span(), room_of_indices.span()});
  return {indices.read(), values.read()};
}

void selects_as_the_host(cuda::stream& queue, const std::vector<float>& input, std::size_t k,
                         const char* what, std::size_t offset = 0) {
  const std::size_t places = kernels::selection_candidates(input.size(), k);
  std::vector<float> room(places);
  std::vector<std::uint32_t> room_of_indices(places);
  std::vector<std::uint32_t> indices(k);
  std::vector<float> values(k);
  inline_queue host;
  kernels::select_largest(host, input, 1000, {indices, values.data()}, {room, room_of_indices});
  const selected there = select_on_gpu(queue, input, k, offset);
  EXPECT_EQ(there.indices, indices)
      << what << ", " << k << " of " << input.size() << " behind " << offset;
  EXPECT_TRUE(same_bits(there.values, values)) << what;
}

}  // namespace

TEST_F(Kernels, Selection) {
  cuda::stream queue;
  for (const std::size_t n : sizes) {
    const auto input = normal_values(n, 8);
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, n / 1000, n / 10, n}) {
      for (const std::size_t offset : offsets) {
        if (k <= n) {
          selects_as_the_host(queue, input, k, "normal", offset);
        }
      }
    }
  }
}

TEST_F(Kernels, AdversarialSelection) {
  cuda::stream queue;
  constexpr std::size_t n = 100'003;
  std::vector<float> ties(n);
  std::vector<float> few(n, 0.0f);
  std::vector<float> close(n);
  for (std::size_t i = 0; i < n; ++i) {
    ties[i] = i % 3 == 0 ? 2.0f : i % 3 == 1 ? -2.0f : 1.0f;
    close[i] = 1.0f + static_cast<float>(i * 7919 % n) * 1e-7f;
  }
  few[7] = -3;
  few[n - 1] = 2;
  for (const std::size_t k :
       {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{300}, std::size_t{33'335}, n}) {
    selects_as_the_host(queue, std::vector<float>(n, 0.0f), k, "all zero");
    selects_as_the_host(queue, std::vector<float>(n, -1.5f), k, "all equal");
    selects_as_the_host(queue, ties, k, "ties of both signs");
    selects_as_the_host(queue, few, k, "mostly zeros");
    selects_as_the_host(queue, close, k, "one bin");
  }
}

/// From some length on candidates are listed first, if k is at most a quarter of n. For these
/// inputs a sample is right, too high or too low.
TEST_F(Kernels, SelectionOfMany) {
  cuda::stream queue;
  constexpr std::size_t lists_candidates = std::size_t{1} << 20;
  for (const std::size_t n : {lists_candidates - 1, lists_candidates, lists_candidates + 4099}) {
    const auto input = normal_values(n, 8);
    for (const std::size_t k : {std::size_t{1}, n / 1000, n / 4, n / 4 + 1, n / 2}) {
      selects_as_the_host(queue, input, k, "normal", k % 2);
    }
  }
  constexpr std::size_t n = lists_candidates + 4099;
  constexpr std::size_t k = n / 1000;
  const auto selects = [&](const std::vector<float>& input, const char* what) {
    selects_as_the_host(queue, input, k, what);
  };
  std::vector<float> input(n, -1.5f);
  selects(input, "all equal");
  for (std::size_t i = 0; i < n; ++i) {
    input[i] = static_cast<float>(i);
  }
  selects(input, "rising");
  std::ranges::reverse(input);
  selects(input, "falling");
  for (std::size_t i = 0; i < n; ++i) {
    input[i] = static_cast<float>(i * 7919 % 5) - 2.0f;
  }
  selects(input, "five values");
  std::ranges::fill(input, 0.0f);
  for (std::size_t i = 0; i < 10; ++i) {
    input[n - 1 - 3 * i] = static_cast<float>(i + 1);
  }
  selects(input, "mostly zeros");
  const kernels::detail::sample which = kernels::detail::sample_for(n, k);
  const auto is_sampled = [&](float in_sample, float elsewhere) {
    for (std::size_t i = 0; i < n; ++i) {
      input[i] = elsewhere + static_cast<float>(i % 1000) * 1e-3f;
    }
    for (std::size_t i = 0; i < which.size; ++i) {
      input[which.place(i)] = in_sample + static_cast<float>(i);
    }
  };
  is_sampled(1e6f, 1.0f);
  selects(input, "large where the sample lies: too few candidates");
  is_sampled(-1e6f, 1e7f);
  selects(input, "small where the sample lies: too many candidates");
  for (std::size_t i = 0; i < n; ++i) {
    input[i] = i % 5 != 0   ? 1.0f
               : i % 2 != 0 ? std::numeric_limits<float>::infinity()
                            : -std::numeric_limits<float>::infinity();
  }
  selects(input, "many infinities");
}

TEST_F(Kernels, NaNIsRefusedWhereTheHostSynchronises) {
  for (const std::size_t n :
       {std::size_t{100}, std::size_t{100'003}, std::size_t{1} << 20, std::size_t{1'100'003}}) {
    cuda::stream queue;
    auto input = normal_values(n, 9);
    input[60] = std::numeric_limits<float>::quiet_NaN();
    input[90] = -std::numeric_limits<float>::quiet_NaN();
    try {
      select_on_gpu(queue, input, 5);
      FAIL() << "nothing was refused";
    } catch (const usage_error& refused) {
      EXPECT_EQ(std::string(refused.what()).find("gradient element 1060 is not a number"), 0u)
          << refused.what();
    }
    EXPECT_THROW(queue.synchronize(), usage_error) << "and every time after";
  }
}

TEST_F(Kernels, RunsOfManyTensors) {
  cuda::stream queue;
  const auto values = normal_values(200'000, 12);
  const on_gpu from(queue, values);
  const on_gpu to(queue, std::vector<float>(values.size(), 7.0f));
  std::vector<float> expected(values.size(), 7.0f);
  std::vector<kernels::copy_run> runs;
  std::size_t place = 0;
  for (std::size_t i = 0; i < 150; ++i) {  // in reverse, with gaps, aligned and not
    const std::size_t elements = i * i * 37 % 2500 * (i % 2 + 1) / (i % 3 + 1);
    runs.push_back({from.data() + place, to.data() + 200'000 - place - elements, elements});
    std::copy_n(values.data() + place, elements, expected.data() + 200'000 - place - elements);
    place += elements + i % 4;
  }
  ASSERT_LT(place, values.size());
  kernels::copy_runs(queue, runs);
  EXPECT_TRUE(same_bits(to.read(), expected));
  kernels::copy_runs(queue, std::span<const kernels::copy_run>());
}

TEST_F(Kernels, ClippedMomenta) {
  cuda::stream queue;
  inline_queue host;
  const double scale = 8;
  for (const std::size_t n : sizes) {
    const auto gradient = normal_values(n, 15);
    const on_gpu there_gradient(queue, gradient);
    for (const double bound : {0.0, 0.5, 1e9}) {
      auto momentum = normal_values(n, 16);
      const on_gpu there_momentum(queue, momentum);
      std::vector<float> factor(1);
      const on_gpu<float> there_factor(queue, 1);
      kernels::find_clip_factor(host, gradient, scale, bound, factor.data());
      kernels::find_clip_factor(queue, there_gradient.input(), scale, bound, there_factor.data());
      EXPECT_FLOAT_EQ(there_factor.read()[0], factor[0]) << n << ", " << bound;
      factor[0] = there_factor.read()[0];
      kernels::blend_clipped(host, std::span(momentum), gradient, 0.9f, factor.data());
      kernels::blend_clipped(queue, there_momentum.span(), there_gradient.input(), 0.9f,
                             there_factor.data());
      EXPECT_TRUE(same_bits(there_momentum.read(), momentum)) << n << ", " << bound;
    }
  }
}

TEST_F(Kernels, FadingResiduals) {
  cuda::stream queue;
  inline_queue host;
  for (const std::size_t n : sizes) {
    auto residual = normal_values(n, 21);
    const on_gpu there(queue, residual);
    kernels::fade(host, std::span(residual), 0.75f, 0.5f);
    kernels::fade(queue, there.span(), 0.75f, 0.5f);
    EXPECT_TRUE(same_bits(there.read(), residual)) << n;
  }
}

/// A second count adds to the first.
TEST_F(Kernels, CountsOfNoNumbers) {
  cuda::stream queue;
  for (const std::size_t n : sizes) {
    auto values = normal_values(n, 22);
    std::uint64_t odd = 0;
    for (std::size_t i = 0; i < n; i += 3, ++odd) {
      values[i] = i % 2 == 0 ? std::numeric_limits<float>::infinity()
                             : std::numeric_limits<float>::quiet_NaN();
    }
    const on_gpu there(queue, values);
    const on_gpu there_count(queue, std::vector<std::uint64_t>{5});
    for (int time = 1; time <= 2; ++time) {
      kernels::count_nonfinite(queue, there.input(), there_count.data());
      EXPECT_EQ(there_count.read()[0], 5 + static_cast<std::uint64_t>(time) * odd) << n;
    }
  }
}

TEST_F(Kernels, CompensatedGradients) {
  cuda::stream queue;
  inline_queue host;
  for (const std::size_t n : sizes) {
    auto gradient = normal_values(n, 19);
    auto squares = normal_values(n, 20);
    for (float& each : squares) {
      each = std::abs(each);
    }
    const auto now = normal_values(n, 21);
    const auto read = normal_values(n, 22);
    const on_gpu there_gradient(queue, gradient);
    const on_gpu there_squares(queue, squares);
    const on_gpu there_now(queue, now);
    const on_gpu there_read(queue, read);
    kernels::compensate(host, std::span(gradient), now, read, 0.04f);
    kernels::compensate(queue, there_gradient.span(), there_now.input(), there_read.input(), 0.04f);
    EXPECT_TRUE(same_bits(there_gradient.read(), gradient)) << n;
    kernels::compensate_adaptively(host, std::span(gradient), std::span(squares), now, read, 2.0f,
                                   0.95f, 0.05f);
    kernels::compensate_adaptively(queue, there_gradient.span(), there_squares.span(),
                                   there_now.input(), there_read.input(), 2.0f, 0.95f, 0.05f);
    EXPECT_TRUE(same_bits(there_gradient.read(), gradient)) << n;
    EXPECT_TRUE(same_bits(there_squares.read(), squares)) << n;
  }
}

TEST_F(Kernels, DrawnElements) {
  cuda::stream queue;
  inline_queue host;
  for (const std::size_t n : sizes) {
    const std::size_t k = n / 10;
    const auto input = normal_values(n, 17);
    auto sum = normal_values(n, 18);
    const on_gpu there_input(queue, input);
    const on_gpu there_sum(queue, sum);
    std::vector<std::uint32_t> key(2);
    std::vector<float> values(k);
    const on_gpu<std::uint32_t> there_key(queue, 2);
    const on_gpu<float> there_values(queue, k);
    constexpr std::uint64_t number = 0x1234'5678'9abc'def0;
    constexpr auto as = kernels::drawn_as::its_run;
    kernels::draw(host, input, number, as, {key.data(), values.data(), k});
    kernels::draw(queue, there_input.input(), number, as,
                  {there_key.data(), there_values.data(), k});
    EXPECT_TRUE(same_bits(there_values.read(), values)) << n;
    kernels::add_drawn(host, {key.data(), values.data(), k}, std::span(sum));
    kernels::add_drawn(queue, {there_key.data(), there_values.data(), k}, there_sum.span());
    EXPECT_TRUE(same_bits(there_sum.read(), sum)) << n;
    kernels::clear_drawn(host, {key.data(), values.data(), k}, std::span(sum));
    kernels::clear_drawn(queue, {there_key.data(), there_values.data(), k}, there_sum.span());
    EXPECT_TRUE(same_bits(there_sum.read(), sum)) << n;
  }
}

TEST_F(Kernels, MergedPairs) {
  cuda::stream queue;
  inline_queue host;
  for (const std::uint32_t n : {1u, 100u, 20'003u}) {
    std::vector<std::uint32_t> mine;
    std::vector<std::uint32_t> theirs;
    for (std::uint32_t i = 0; i < n; ++i) {
      mine.push_back(2 * i);
      theirs.push_back(3 * i);
    }
    const auto values = normal_values(2 * n, 14);
    const on_gpu there_mine(queue, mine);
    const on_gpu there_theirs(queue, theirs);
    const on_gpu there_values(queue, values);
    std::vector<std::uint32_t> indices(2 * n);
    std::vector<float> sums(2 * n);
    const on_gpu<std::uint32_t> there_indices(queue, 2 * n);
    const on_gpu<float> there_sums(queue, 2 * n);
    kernels::merge_pairs(host, {mine, values.data()}, {theirs, values.data() + n},
                         {indices, sums.data()});
    kernels::merge_pairs(queue, {there_mine.input(), there_values.data()},
                         {there_theirs.input(), there_values.data() + n},
                         {there_indices.span(), there_sums.data()});
    EXPECT_EQ(there_indices.read(), indices) << n;
    EXPECT_TRUE(same_bits(there_sums.read(), sums)) << n;

    const std::size_t places = kernels::selection_candidates(2 * n, n);
    const on_gpu<float> room(queue, places);
    const on_gpu<std::uint32_t> room_of_indices(queue, places);
    const on_gpu<std::uint32_t> there_kept(queue, n);
    const on_gpu<float> there_largest(queue, n);
    std::vector<std::uint32_t> kept(n);
    std::vector<float> largest(n);
    kernels::select_largest(host, kernels::pairs{indices, sums.data()}, 0, {kept, largest.data()},
                            {});
    kernels::select_largest(queue, kernels::pairs{there_indices.input(), there_sums.data()}, 0,
                            {there_kept.span(), there_largest.data()},
                            {room.span(), room_of_indices.span()});
    EXPECT_EQ(there_kept.read(), kept) << n;
    EXPECT_TRUE(same_bits(there_largest.read(), largest)) << n;

    std::vector<float> left(3 * n, 0.5f);
    const on_gpu there_left(queue, left);
    kernels::add_absent(host, {indices, sums.data()}, kept, std::span(left));
    kernels::add_absent(queue, {there_indices.input(), there_sums.data()}, there_kept.input(),
                        there_left.span());
    EXPECT_TRUE(same_bits(there_left.read(), left)) << n;
  }
}

TEST_F(Kernels, ScatteredElements) {
  cuda::stream queue;
  inline_queue host;
  auto data = normal_values(5000, 10);
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < 5000; i += 7) {
    indices.push_back(i);
  }
  const auto values = normal_values(indices.size(), 11);
  const on_gpu there(queue, data);
  const on_gpu there_indices(queue, indices);
  const on_gpu there_values(queue, values);
  kernels::scatter_add(host, indices, values.data(), std::span(data));
  kernels::scatter_add(queue, there_indices.input(), there_values.data(), there.span());
  EXPECT_TRUE(same_bits(there.read(), data));
  kernels::clear_at(host, std::span(data), indices);
  kernels::clear_at(queue, there.span(), there_indices.input());
  EXPECT_TRUE(same_bits(there.read(), data));
}

}  // namespace tutti::test
