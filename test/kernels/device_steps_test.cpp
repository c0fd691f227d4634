// What device kernels do, run on the host: the same source, with loops where a device has threads.
// The oracle is plain code of this file, and the host's kernels must agree, too. One file, because
// each step is run by every number of threads in one frame.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/values.hpp"
#include "tutti/kernels/adam.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/compensation.hpp"
#include "tutti/kernels/copies.hpp"
#include "tutti/kernels/descent.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/signs.hpp"
#include "tutti/kernels/votes.hpp"

namespace tutti {
namespace {

namespace element = kernels::element;

/// Runs `f` as a device of `threads` threads does.
template <int Width, class F, class... Arrays>
void on_threads(std::size_t threads, std::size_t n, const F& f, Arrays... arrays) {
  for (std::size_t thread = 0; thread < threads; ++thread) {
    kernels::share_of<Width>(thread, threads, n, f, arrays...);
  }
}

/// Calls `run` with every way in which a device might iterate over arrays.
template <class Run>
void in_every_way(Run run) {
  run([](std::size_t n, const auto& f, auto... arrays) { on_threads<1>(1, n, f, arrays...); });
  run([](std::size_t n, const auto& f, auto... arrays) { on_threads<1>(96, n, f, arrays...); });
  run([](std::size_t n, const auto& f, auto... arrays) { on_threads<4>(7, n, f, arrays...); });
  run([](std::size_t n, const auto& f, auto... arrays) { on_threads<8>(64, n, f, arrays...); });
}

TEST(share_of, gives_every_element_to_exactly_one_thread) {
  struct count_visit {
    void operator()(int& visits) const { ++visits; }
  };
  for (const std::size_t n : sizes) {
    in_every_way([n](auto device) {
      std::vector<int> visits(n + 1, 0);
      device(n, count_visit{}, visits.data());
      EXPECT_EQ(std::ranges::count(visits, 1), static_cast<std::ptrdiff_t>(n));
      EXPECT_EQ(visits[n], 0) << "wrote past " << n;
    });
  }
}

TEST(aligned_for, asks_every_array) {
  alignas(16) float values[8];
  alignas(16) std::uint16_t bits[16];
  EXPECT_TRUE(kernels::aligned_for<4>(values, values + 4));
  EXPECT_FALSE(kernels::aligned_for<4>(values, values + 1));
  EXPECT_TRUE(kernels::aligned_for<8>(values, kernels::only_written<std::uint16_t>{bits + 8}));
  EXPECT_FALSE(kernels::aligned_for<8>(values, kernels::only_written<std::uint16_t>{bits + 4}));
  EXPECT_TRUE(kernels::aligned_for<1>(values + 1, bits + 3));
}

TEST(elements, add_scale_and_negate) {
  for (const std::size_t n : sizes) {
    in_every_way([n](auto device) {
      const auto from = normal_values(n, 2);
      auto sum = normal_values(n, 1);
      auto scaled = sum;
      auto negated = sum;
      auto expected_sum = sum;
      auto expected_scaled = sum;
      auto expected_negated = sum;
      for (std::size_t i = 0; i < n; ++i) {
        expected_sum[i] = static_cast<float>(double{sum[i]} + double{from[i]});  // rounds once
        expected_scaled[i] = static_cast<float>(double{sum[i]} * double{0.3f});
        expected_negated[i] = -sum[i];
      }
      device(n, element::add{}, sum.data(), from.data());
      device(n, element::scale{0.3f}, scaled.data());
      device(n, element::negate{}, negated.data());
      EXPECT_TRUE(same_bits(sum, expected_sum)) << n;
      EXPECT_TRUE(same_bits(scaled, expected_scaled)) << n;
      EXPECT_TRUE(same_bits(negated, expected_negated)) << n;
    });
  }
  float zero = 0;
  element::negate{}(zero);
  EXPECT_FALSE(std::signbit(zero));
}

/// Delay compensation by the host's kernel and by a device's shares, one operation at a time.
TEST(elements, compensate) {
  const auto once = [](double exact) { return static_cast<float>(exact); };
  const auto times = [once](float a, float b) { return once(double{a} * double{b}); };
  const auto plus = [once](float a, float b) { return once(double{a} + double{b}); };
  for (const std::size_t n : sizes) {
    const auto g = normal_values(n, 20);
    const auto now = normal_values(n, 21);
    const auto read = normal_values(n, 22);
    const auto squares = normal_values(n, 23);
    std::vector<float> before(n);
    std::vector<float> expected(n);
    std::vector<float> expected_squares(n);
    std::vector<float> expected_adaptive(n);
    for (std::size_t i = 0; i < n; ++i) {
      before[i] = times(squares[i], squares[i]);
      const float square = times(g[i], g[i]);
      const float moved = once(double{now[i]} - double{read[i]});
      expected[i] = plus(g[i], times(times(0.04f, square), moved));
      expected_squares[i] = plus(times(0.95f, before[i]), times(0.05f, square));
      const float root = std::sqrt(plus(expected_squares[i], 1e-7f));
      expected_adaptive[i] =
          plus(g[i], times(times(once(double{2.0f} / double{root}), square), moved));
    }
    inline_queue queue;
    auto here = g;
    kernels::compensate(queue, std::span(here), now, read, 0.04f);
    EXPECT_TRUE(same_bits(here, expected)) << n;
    auto here_adaptive = g;
    auto here_squares = before;
    kernels::compensate_adaptively(queue, std::span(here_adaptive), std::span(here_squares), now,
                                   read, 2.0f, 0.95f, 0.05f);
    EXPECT_TRUE(same_bits(here_adaptive, expected_adaptive)) << n;
    EXPECT_TRUE(same_bits(here_squares, expected_squares)) << n;
    in_every_way([&](auto device) {
      auto there = g;
      device(n, element::compensate{0.04f}, there.data(), now.data(), read.data());
      EXPECT_TRUE(same_bits(there, expected)) << n;
      auto there_adaptive = g;
      auto there_squares = before;
      device(n, element::compensate_adaptively{2.0f, 0.95f, 0.05f}, there_adaptive.data(),
             there_squares.data(), now.data(), read.data());
      EXPECT_TRUE(same_bits(there_adaptive, expected_adaptive)) << n;
      EXPECT_TRUE(same_bits(there_squares, expected_squares)) << n;
    });
  }
}

TEST(elements, products_and_sums_round_apart) {
  // Without a rounding in between, the product's last bit would survive: 1 + 2^-12 squared is 1 +
  // 2^-11 + 2^-24.
  const float almost = 1 + std::ldexp(1.0f, -12);
  const auto square = static_cast<float>(double{almost} * double{almost});
  float onto = -1;
  element::add_scaled{almost}(onto, almost);
  EXPECT_EQ(onto, static_cast<float>(double{square} - 1));
  float blended = almost;
  element::blend{almost, 1}(blended, 0.0f);
  EXPECT_EQ(blended, square);
  for (const std::size_t n : sizes) {
    in_every_way([n](auto device) {
      auto x = normal_values(n, 3);
      auto m = normal_values(n, 4);
      const auto g = normal_values(n, 5);
      auto expected_x = x;
      auto expected_m = m;
      for (std::size_t i = 0; i < n; ++i) {
        const auto once = [](double exact) { return static_cast<float>(exact); };
        const float decayed = once(double{0.01f} * double{x[i]});
        const float pull = once(double{g[i]} + double{decayed});
        expected_m[i] = once(double{once(double{0.9f} * double{m[i]})} + double{pull});
        expected_x[i] = once(double{x[i]} - double{once(double{0.1f} * double{expected_m[i]})});
      }
      device(n, element::descend_with_momentum{{0.1f, 0.9f, 0.01f}}, x.data(), m.data(), g.data());
      EXPECT_TRUE(same_bits(m, expected_m)) << n;
      EXPECT_TRUE(same_bits(x, expected_x)) << n;
    });
  }
}

TEST(elements, accelerate_as_nesterov_does) {
  for (const std::size_t n : sizes) {
    in_every_way([n](auto device) {
      auto x = normal_values(n, 3);
      auto m = normal_values(n, 4);
      const auto g = normal_values(n, 5);
      auto expected_x = x;
      auto expected_m = m;
      for (std::size_t i = 0; i < n; ++i) {
        const auto once = [](double exact) { return static_cast<float>(exact); };
        const float decayed = once(double{0.01f} * double{x[i]});
        const float pull = once(double{g[i]} + double{decayed});
        expected_m[i] = once(double{once(double{0.9f} * double{m[i]})} + double{pull});
        const float ahead = once(double{0.9f} * double{expected_m[i]});
        const float way = once(double{pull} + double{ahead});
        expected_x[i] = once(double{x[i]} - double{once(double{0.1f} * double{way})});
      }
      device(n, element::descend_with_nesterov{{0.1f, 0.9f, 0.01f}}, x.data(), m.data(), g.data());
      EXPECT_TRUE(same_bits(m, expected_m)) << n;
      EXPECT_TRUE(same_bits(x, expected_x)) << n;
    });
  }
}

TEST(elements, descend_as_the_hosts_kernels_do) {
  const kernels::descent values{0.1f, 0.0f, 0.01f};
  auto x = normal_values(1001, 6);
  const auto g = normal_values(1001, 7);
  auto expected = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto decayed = static_cast<float>(double{values.weight_decay} * double{x[i]});
    const auto pull = static_cast<float>(double{g[i]} + double{decayed});
    const auto step = static_cast<float>(double{values.learning_rate} * double{pull});
    expected[i] = static_cast<float>(double{x[i]} - double{step});
  }
  auto on_host = x;
  inline_queue queue;
  kernels::descend(queue, std::span(on_host), std::span<const float>(g), values);
  on_threads<4>(5, x.size(), element::descend{values}, x.data(), g.data());
  EXPECT_TRUE(same_bits(x, expected));
  EXPECT_TRUE(same_bits(on_host, expected));
}

TEST(elements, adam_rounds_each_operation) {
  kernels::adam_step values;
  values.keep = 0.9f;
  values.take = 0.1f;
  values.keep_squares = 0.99f;
  values.take_squares = 0.01f;
  values.rate = 0.003f;
  values.root_factor = 1.25f;
  values.epsilon = 1e-6f;
  values.added_parameter = 0.02f;
  values.kept_parameter = 0.999f;
  const auto once = [](double exact) { return static_cast<float>(exact); };
  const auto times = [=](float a, float b) { return once(double{a} * double{b}); };
  const auto plus = [=](float a, float b) { return once(double{a} + double{b}); };
  for (const std::size_t n : sizes) {
    in_every_way([&](auto device) {
      auto x = normal_values(n, 6);
      auto m = normal_values(n, 7);
      auto v = normal_values(n, 8);
      const auto g = normal_values(n, 9);
      for (float& each : v) {
        each = each * each;
      }
      auto expected_x = x;
      auto expected_m = m;
      auto expected_v = v;
      for (std::size_t i = 0; i < n; ++i) {
        const float pull = plus(g[i], times(0.02f, x[i]));
        expected_m[i] = plus(times(0.9f, m[i]), times(0.1f, pull));
        expected_v[i] = plus(times(0.99f, v[i]), times(0.01f, times(pull, pull)));
        const float below = plus(times(once(std::sqrt(double{expected_v[i]})), 1.25f), 1e-6f);
        const float way = times(0.003f, once(double{expected_m[i]} / double{below}));
        expected_x[i] = once(double{times(0.999f, x[i])} - double{way});
      }
      const auto before = x;
      auto on_host = x;
      auto host_m = m;
      auto host_v = v;
      inline_queue queue;
      kernels::adam(queue, on_host, host_m, host_v, g, values);
      device(n, element::adam{values}, x.data(), m.data(), v.data(), g.data());
      EXPECT_TRUE(same_bits(m, expected_m) && same_bits(host_m, expected_m)) << n;
      EXPECT_TRUE(same_bits(v, expected_v) && same_bits(host_v, expected_v)) << n;
      EXPECT_TRUE(same_bits(x, expected_x) && same_bits(on_host, expected_x)) << n;
      auto along = before;
      auto host_along = before;
      device(n, element::adam_along{values}, along.data(), std::as_const(m).data(),
             std::as_const(v).data());
      kernels::adam_along(queue, host_along, m, v, values);
      EXPECT_TRUE(same_bits(along, expected_x) && same_bits(host_along, expected_x)) << n;
    });
  }
}

TEST(elements, casts_are_the_hosts) {
  for (const std::size_t n : sizes) {
    in_every_way([n](auto device) {
      auto input = normal_values(n, 8);
      for (float& each : input) {
        each *= 30000;  // so that some overflow binary16
      }
      std::vector<std::uint16_t> here(n);
      std::vector<std::uint16_t> there(n, 99);
      std::vector<float> sum(n, 1.0f);
      std::vector<float> expected(n, 1.0f);
      inline_queue queue;
      kernels::narrow<kernels::half>(queue, input, here.data());
      device(n, element::narrow<kernels::half>{}, static_cast<const float*>(input.data()),
             kernels::only_written<std::uint16_t>{there.data()});
      EXPECT_TRUE(same_bits(here, there)) << n;
      kernels::add_narrow<kernels::half>(queue, std::span(here), there.data());
      auto doubled = there;
      device(n, element::add_narrow<kernels::half>{}, doubled.data(),
             static_cast<const std::uint16_t*>(there.data()));
      EXPECT_TRUE(same_bits(here, doubled)) << n;
      kernels::widen<kernels::half>(queue, here.data(), expected);
      device(n, element::widen<kernels::half>{}, static_cast<const std::uint16_t*>(here.data()),
             kernels::only_written<float>{sum.data()});
      EXPECT_TRUE(same_bits(sum, expected)) << n;
      kernels::add_widened<kernels::half>(queue, here.data(), expected);
      device(n, element::add_widened<kernels::half>{}, sum.data(),
             static_cast<const std::uint16_t*>(here.data()));
      EXPECT_TRUE(same_bits(sum, expected)) << n;
    });
  }
}

/// Runs packs as a device's threads do, in reverse order.
template <int Width, class F>
void on_packs(std::size_t n, const F& f) {
  for (std::size_t i = n / Width; i-- > 0;) {
    kernels::in_packs<Width, F>{f}(i);
  }
}

TEST(elements, a_list_of_inputs_is_added_in_order_in_parts) {
  const std::size_t n = 36;
  std::vector<std::vector<float>> inputs;
  std::vector<const float*> list;
  for (unsigned each = 0; each < 5; ++each) {
    inputs.push_back(normal_values(n, 20 + each));
    list.push_back(inputs.back().data());
  }
  std::vector<float> expected(n);
  for (std::size_t i = 0; i < n; ++i) {
    expected[i] = inputs[0][i];
    for (std::size_t each = 1; each < 5; ++each) {
      expected[i] += inputs[each][i];
    }
  }
  std::vector<float> out(n, 7.0f);
  const std::span<const float* const> all(list);
  const element::sum_of_some first(out.data(), all.first(2), 0);
  const element::sum_of_some rest(out.data(), all.subspan(2), 2);
  on_packs<1>(n, first);
  on_packs<1>(n, rest);
  EXPECT_TRUE(same_bits(out, expected));
  std::ranges::fill(out, 7.0f);
  on_packs<4>(n, first);
  on_packs<4>(n, rest);
  EXPECT_TRUE(same_bits(out, expected));
  const element::sum_of_some nothing(out.data(), {}, 0);
  on_packs<1>(4, nothing);
  EXPECT_EQ(out[3], 0);
}

// ---- copies

TEST(listed_runs, are_what_a_list_says) {
  const std::vector<float> from(9);
  std::vector<float> to(9);
  const std::vector<kernels::copy_run> runs = {{from.data(), to.data() + 3, 2},
                                               {from.data() + 4, to.data(), 0},
                                               {from.data() + 5, to.data() + 6, 3}};
  std::vector<const void*> list_from(4);
  std::vector<void*> list_to(4);
  std::vector<std::size_t> list_bytes(4, 99);
  const element::run_list list{list_from.data(), list_to.data(), list_bytes.data()};
  const element::listed_runs put(runs, list.from_entry(1));
  for (std::size_t i = runs.size(); i-- > 0;) {
    put(i);
  }
  EXPECT_EQ(list_from,
            (std::vector<const void*>{nullptr, from.data(), from.data() + 4, from.data() + 5}));
  EXPECT_EQ(list_to, (std::vector<void*>{nullptr, to.data() + 3, to.data(), to.data() + 6}));
  EXPECT_EQ(list_bytes, (std::vector<std::size_t>{99, 8, 0, 12}));
}

// ---- signs

/// A thread takes one word, or four where the number of words is a multiple of four.
template <class F>
void at_every_width(std::size_t n, const F& check) {
  check(std::integral_constant<int, 1>());
  if (kernels::sign_words(n) % 4 == 0) {
    check(std::integral_constant<int, 4>());
  }
}

template <int Width>
void one_pass_with_a_residual_is_the_hosts(std::size_t n) {
  const auto from = normal_values(n, 16);
  auto here = normal_values(n, 17);
  for (std::size_t i = 0; i < n; i += 5) {
    here[i] = -from[i];  // sums of zero count as positive
  }
  auto there = here;
  const std::size_t words = kernels::sign_words(n);
  std::vector<std::uint32_t> packed_here(words, 77);
  std::vector<std::uint32_t> packed_there(words, 99);
  inline_queue queue;
  kernels::add_and_pack_signs(queue, here, from, 0.3f, packed_here.data());
  on_packs<Width>(
      words, element::add_and_pack_words{there.data(), from.data(), n, 0.3f, packed_there.data()});
  EXPECT_EQ(packed_here, packed_there) << n;
  EXPECT_TRUE(same_bits(here, there)) << n;
}

TEST(device_signs, one_pass_with_a_residual_is_the_hosts) {
  for (const std::size_t n : sizes) {
    at_every_width(n, [n](auto width) { one_pass_with_a_residual_is_the_hosts<width>(n); });
  }
  one_pass_with_a_residual_is_the_hosts<1>(4'300'001);  // more than a host packs at a time
}

template <int Width>
void words_are_the_hosts(std::size_t n) {
  auto input = normal_values(n, 15);
  for (std::size_t i = 0; i < n; i += 7) {
    input[i] = i % 2 == 0 ? -0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const std::size_t words = kernels::sign_words(n);
  std::vector<std::uint32_t> here(words, 77);
  std::vector<std::uint32_t> there(words, 99);
  std::vector<std::uint32_t> subtracted(words, 99);
  inline_queue queue;
  kernels::pack_signs(queue, input, here.data());
  auto left = input;
  auto left_there = input;
  const float magnitude = 0.3f;
  kernels::pack_signs_and_subtract(queue, left, &magnitude, here.data());
  on_packs<Width>(words, element::pack_words{input.data(), n, there.data()});
  on_packs<Width>(
      words, element::pack_words_and_subtract{left_there.data(), n, &magnitude, subtracted.data()});
  EXPECT_EQ(here, there) << n;
  EXPECT_EQ(here, subtracted) << n;
  EXPECT_TRUE(same_bits(left, left_there)) << n;
  for (std::size_t i = 0; i < n; ++i) {  // the layout, stated a second time
    const std::uint32_t bit = there[i % words] >> (31 - i / words) & 1;
    EXPECT_EQ(bit, input[i] < 0 ? 1u : 0u) << i << " of " << n;
  }
}

TEST(device_signs, words_are_the_hosts) {
  for (const std::size_t n : sizes) {
    at_every_width(n, [n](auto width) { words_are_the_hosts<width>(n); });
  }
}

template <int Width>
void are_added_as_the_hosts_are(std::size_t n) {
  const auto input = normal_values(n, 16);
  const std::size_t words = kernels::sign_words(n);
  std::vector<std::uint32_t> packed(words);
  inline_queue queue;
  kernels::pack_signs(queue, input, packed.data());
  const std::size_t whole = round_up(n, Width);
  const float magnitude = 0.3f;
  using worth = kernels::sign_worth;
  for (const worth each : {worth(&magnitude), worth(1.0f), worth(0.7f)}) {
    auto sum = normal_values(n, 17);
    auto expected = sum;
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] += (input[i] < 0 ? -1.0f : 1.0f) * each.read();
    }
    on_packs<Width>(whole, element::decode_signs<kernels::detail::added>{
                               packed.data(), each.magnitude, sum.data(), n, n, each.set});
    EXPECT_TRUE(same_bits(sum, expected)) << n;
    std::vector<float> unpacked(n);
    kernels::unpack_signs(queue, packed.data(), each, unpacked);
    on_packs<Width>(whole, element::decode_signs<kernels::detail::written>{
                               packed.data(), each.magnitude, sum.data(), n, n, each.set});
    EXPECT_TRUE(same_bits(sum, unpacked)) << n;
  }
}

TEST(device_signs, are_added_as_the_hosts_are) {
  for (const std::size_t n : sizes) {
    are_added_as_the_hosts_are<1>(n);
    are_added_as_the_hosts_are<4>(n);
  }
}

template <unsigned Planes, int Width>
void votes_are_counted(std::uint32_t voters) {
  constexpr std::size_t words = 9 * Width;
  constexpr std::size_t stride = 192;
  std::mt19937 random(voters);
  std::vector<std::uint32_t> ballots(voters * stride / 4);
  std::ranges::generate(ballots, std::ref(random));
  std::vector<std::uint32_t> out(words, 99);
  const element::count_words<Planes> count{reinterpret_cast<const std::byte*>(ballots.data()),
                                           stride, voters, out.data()};
  on_packs<Width>(words, count);
  for (std::size_t i = 0; i < words; ++i) {
    for (unsigned bit = 0; bit < 32; ++bit) {
      std::uint32_t votes = 0;
      for (std::size_t voter = 0; voter < voters; ++voter) {
        votes += ballots[voter * stride / 4 + i] >> bit & 1;
      }
      EXPECT_EQ(out[i] >> bit & 1, 2 * votes > voters ? 1u : 0u) << voters << " voters";
    }
  }
}

TEST(device_signs, the_majority_wins_and_a_tie_is_positive) {
  for (const std::uint32_t voters : {1u, 2u, 3u, 4u, 7u, 8u, 15u}) {
    votes_are_counted<4, 1>(voters);
    votes_are_counted<4, 4>(voters);
    votes_are_counted<32, 1>(voters);
  }
  votes_are_counted<8, 1>(255);
  votes_are_counted<8, 4>(255);
  votes_are_counted<32, 1>(300);
  votes_are_counted<32, 4>(300);
}

}  // namespace
}  // namespace tutti
