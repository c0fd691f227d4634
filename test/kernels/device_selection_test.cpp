// How a device selects, run on the host as device_steps_test.cpp runs the other kernels. The oracle
// is plain code of this file, and the host's selection must agree, too.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/values.hpp"
#include "tutti/kernels/block_of_threads.hpp"
#include "tutti/kernels/radix_search.hpp"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/selection_steps.hpp"
#include "tutti/kernels/sparse_pairs.hpp"

namespace tutti {
namespace {

namespace radix = kernels::radix;
namespace element = kernels::element;

/// The set from which the k largest were selected.
enum class looked_at { all, candidates };

struct selected {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  unsigned long long refused = nothing_refused;
  looked_at from = looked_at::all;

  static constexpr unsigned long long nothing_refused = ~0ULL;
};

/// Runs a step on as many blocks as share n elements, in reverse order, with memory that has not
/// been cleared.
template <class Step>
void on_blocks(std::size_t blocks, const Step& step) {
  for (std::size_t number = blocks; number-- > 0;) {
    const auto shared = std::make_unique_for_overwrite<typename Step::memory>();
    std::memset(static_cast<void*>(shared.get()), 0xFF, sizeof *shared);
    step(kernels::steps::host_block{static_cast<std::uint32_t>(number),
                                    static_cast<std::uint32_t>(blocks)},
         *shared);
  }
}

/// The sample that suggests candidates, and the room for them.
struct listing {
  kernels::detail::sample which{};
  std::size_t room{};
};

/// Selects as a device does.
selected on_device(const std::vector<float>& input, std::size_t k,
                   const std::uint32_t* names = nullptr, const listing& some = {}) {
  const std::size_t n = input.size();
  selected out{std::vector<std::uint32_t>(k, 99), std::vector<float>(k, 99.0f)};
  const auto at = std::make_unique_for_overwrite<radix::record>();
  std::memset(static_cast<void*>(at.get()), 0xFF, sizeof *at);
  const auto count = static_cast<std::uint32_t>(k);
  radix::source from{{input.data(), names, n}, count, nullptr, nullptr, 0};
  std::vector<float> values(some.room, 77.0f);
  std::vector<std::uint32_t> indices(some.room, 77);
  std::vector<std::uint8_t> marks(radix::mark_bytes(n), 0xFF);
  const std::size_t blocks = std::min(radix::blocks_sharing(n), std::size_t{2});  // long shares
  on_blocks(1, radix::begin_selection{input.data(), some.which, count, at.get()});
  if (some.which.size != 0) {
    from.indices = indices.data();
    from.values = values.data();
    from.room = some.room;
    on_blocks(blocks, radix::mark_candidates{input.data(), n, marks.data(), at.get()});
    on_blocks(blocks, radix::list_candidates{from, marks.data(), at.get()});
  }
  for (unsigned round = 0; round < radix::rounds; ++round) {
    on_blocks(blocks, radix::count_digits{from, at.get(), round});
  }
  on_blocks(blocks, radix::tally_shares{from, at.get()});
  on_blocks(blocks, radix::write_selected{from, at.get(), out.indices.data(), out.values.data(),
                                          &out.refused, 0});
  out.from = from.looked_at(*at).values == input.data() ? looked_at::all : looked_at::candidates;
  return out;
}

/// The order by magnitude, then by the lower index, found by sorting.
class ranking {
 public:
  explicit ranking(const std::vector<float>& input) : input_(input), order_(input.size()) {
    std::iota(order_.begin(), order_.end(), 0u);
    const auto key = [&](std::uint32_t i) {
      return std::isnan(input[i]) ? std::numeric_limits<double>::max()
                                  : std::fabs(double{input[i]});
    };
    std::ranges::stable_sort(order_,
                             [&](std::uint32_t a, std::uint32_t b) { return key(a) > key(b); });
  }
  const std::vector<float>& input() const { return input_; }
  /// Returns the value of a rank, counted from 1.
  float value(std::size_t rank) const { return input_[order_[rank - 1]]; }
  selected first(std::size_t k) const {
    selected out;
    out.indices.assign(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(k));
    std::ranges::sort(out.indices);
    for (const std::uint32_t i : out.indices) {
      out.values.push_back(input_[i]);
    }
    return out;
  }

 private:
  const std::vector<float>& input_;
  std::vector<std::uint32_t> order_;
};

/// Selects from all elements and from candidates. If candidates are fewer than k or more than there
/// is room for, the device selects from all elements again.
void selects(const ranking& of, std::size_t k, const char* what) {
  const std::vector<float>& input = of.input();
  const std::size_t n = input.size();
  const selected wanted = of.first(k);
  const auto agrees = [&](const listing& some, looked_at from) {
    const selected found = on_device(input, k, nullptr, some);
    EXPECT_EQ(found.indices, wanted.indices) << what << ", " << k << " of " << n;
    EXPECT_TRUE(same_bits(found.values, wanted.values)) << what;
    EXPECT_EQ(found.refused, selected::nothing_refused) << what;
    EXPECT_EQ(found.from, from) << what << ", " << k << " of " << n;
  };
  agrees({}, looked_at::all);
  if (n > kernels::detail::sample::most) {
    return;
  }
  // If the sample has all elements, the number of those that reach the floor is known.
  const auto reach = [&](std::size_t rank) {
    const std::uint32_t lowest = kernels::key_of(of.value(rank)) & ~0x3ffu;
    return static_cast<std::size_t>(std::ranges::count_if(
        input, [&](float each) { return kernels::key_of(each) >= std::max(lowest, 1u); }));
  };
  for (const std::size_t rank : {std::size_t{1}, k, std::min(n, 2 * k)}) {
    const kernels::detail::sample all{n, 1, static_cast<std::uint32_t>(rank)};
    const std::size_t reaching = reach(rank);
    const auto from = reaching >= k ? looked_at::candidates : looked_at::all;
    agrees({all, n}, from);
    agrees({all, reaching}, from);
    if (reaching > 1) {
      agrees({all, reaching - 1}, looked_at::all);
    }
  }
}

TEST(device_selection, is_exact_at_every_size) {
  for (const std::size_t n : sizes) {
    const auto input = normal_values(n, 18);
    const ranking ranked(input);
    for (const std::size_t k : {std::size_t{1}, n / 100, n / 3, n}) {
      if (k >= 1 && k <= n) {
        selects(ranked, k, "normal");
      }
    }
  }
}

using named_inputs = std::vector<std::pair<const char*, std::vector<float>>>;

named_inputs unkind_inputs(std::size_t n) {
  named_inputs inputs;
  inputs.emplace_back("all zero", std::vector<float>(n, 0.0f));
  inputs.emplace_back("all equal", std::vector<float>(n, -1.5f));
  std::vector<float> few(n, 0.0f);
  few[7] = -3;
  few[4000] = 2;
  few[n - 1] = -0.0f;
  inputs.emplace_back("mostly zeros", few);
  std::vector<float> ties(n);
  for (std::size_t i = 0; i < n; ++i) {
    ties[i] = i % 3 == 0 ? 2.0f : i % 3 == 1 ? -2.0f : 1.0f;
  }
  inputs.emplace_back("ties of both signs", ties);
  std::vector<float> close(n);
  for (std::size_t i = 0; i < n; ++i) {
    close[i] = std::bit_cast<float>(0x3f80'0000u + static_cast<std::uint32_t>(i * 7919 % n));
  }
  inputs.emplace_back("one bin, all different", close);
  std::vector<float> tiny(n);
  for (std::size_t i = 0; i < n; ++i) {
    tiny[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 31 % n));
  }
  inputs.emplace_back("subnormal", tiny);
  std::vector<float> infinite = ties;
  infinite[99] = -std::numeric_limits<float>::infinity();
  infinite[n - 1] = 7;
  inputs.emplace_back("an infinity", infinite);
  return inputs;
}

TEST(device_selection, is_exact_where_the_input_is_not_kind) {
  constexpr std::size_t n = 5003;
  for (const auto& [what, input] : unkind_inputs(n)) {
    const ranking ranked(input);
    for (const std::size_t k : {std::size_t{1}, std::size_t{2}, std::size_t{50}, std::size_t{1668},
                                std::size_t{1669}, n - 1, n}) {
      selects(ranked, k, what);
    }
  }
}

TEST(device_selection, is_exact_in_every_layer_of_a_gradient) {
  constexpr std::size_t n = 200'003;
  auto input = normal_values(n, 21);
  for (std::size_t i = 0; i < n; ++i) {
    input[i] *= static_cast<float>(1 + i / 10'000 * 37 % 11) * (1 + input[i] * input[i]);
  }
  const ranking ranked(input);
  for (const std::size_t k : {n / 1000, n / 100, n / 3}) {
    selects(ranked, k, "layers");
    const selected listed = on_device(input, k, nullptr, {kernels::detail::sample_for(n, k), n});
    EXPECT_EQ(listed.indices, ranked.first(k).indices) << k;
    EXPECT_EQ(listed.from, k < n / 4 ? looked_at::candidates : looked_at::all) << k;
  }
}

TEST(device_selection, hears_of_nan_where_it_is_selected) {
  auto input = normal_values(4099, 20);
  input[1033] = std::numeric_limits<float>::quiet_NaN();
  input[3000] = -std::numeric_limits<float>::quiet_NaN();
  const selected found = on_device(input, 5);
  EXPECT_EQ(found.refused, 1033u);
  EXPECT_EQ(found.indices, ranking(input).first(5).indices);
  EXPECT_EQ(on_device(input, 1).refused, 1033u);
}

TEST(device_selection, of_nothing_but_nan_writes_no_more_than_there_is_room_for) {
  const std::vector<float> input(20'001, -std::numeric_limits<float>::quiet_NaN());
  for (const std::size_t k : {1UL, 20UL, 9000UL}) {
    const selected found = on_device(input, k);
    EXPECT_EQ(found.refused, 0u);
    EXPECT_EQ(found.indices.front(), 0u);
    EXPECT_EQ(found.indices.back(), k - 1);
  }
}

/// Given pairs, both write the pairs' indices, and name them in the error where a value is NaN.
TEST(device_selection, of_pairs_answers_their_indices) {
  for (const std::size_t n : {1u, 33u, 5000u, 40'000u}) {
    std::vector<float> input = normal_values(n, 5);
    std::vector<std::uint32_t> names(n);
    for (std::size_t i = 0; i < n; ++i) {
      names[i] = static_cast<std::uint32_t>(3 * i + 7);
    }
    for (const std::size_t k : {std::size_t{1}, n / 2, n}) {
      if (k == 0) {
        continue;
      }
      selected wanted = ranking(input).first(k);
      for (std::uint32_t& each : wanted.indices) {
        each = 3 * each + 7;
      }
      const selected device = on_device(input, k, names.data());
      EXPECT_EQ(device.indices, wanted.indices) << k << " of " << n;
      EXPECT_EQ(device.values, wanted.values) << k << " of " << n;
      selected host{std::vector<std::uint32_t>(k), std::vector<float>(k)};
      inline_queue queue;
      kernels::select_largest(queue, kernels::pairs{names, input.data()}, 0,
                              {host.indices, host.values.data()}, {});
      EXPECT_EQ(host.indices, wanted.indices) << k << " of " << n;
      EXPECT_EQ(host.values, wanted.values) << k << " of " << n;
    }
    input[n - 1] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(on_device(input, 1, names.data()).refused, 3 * (n - 1) + 7);
    selected host{std::vector<std::uint32_t>(1), std::vector<float>(1)};
    inline_queue queue;
    kernels::select_largest(queue, kernels::pairs{names, input.data()}, 1000,
                            {host.indices, host.values.data()}, {});
    EXPECT_TRUE(std::isnan(host.values[0])) << n;  // on a host NaN is selected
  }
}

/// Compares with sums in a map. Every pair finds its place independently, so the last ones run
/// first.
TEST(device_selection, merges_pairs_in_any_order) {
  using pairs = std::vector<std::pair<std::uint32_t, float>>;
  const auto merged = [](const pairs& mine, const pairs& theirs) {
    std::vector<std::uint32_t> indices[2];
    std::vector<float> values[2];
    for (const int which : {0, 1}) {
      for (const auto& [index, value] : which == 0 ? mine : theirs) {
        indices[which].push_back(index);
        values[which].push_back(value);
      }
    }
    const std::size_t all = mine.size() + theirs.size();
    std::vector<std::uint32_t> out(all, 99);
    std::vector<float> sums(all, 99.0f);
    const element::merge_pairs merge{indices[0].data(), values[0].data(), mine.size(),
                                     indices[1].data(), values[1].data(), theirs.size(),
                                     out.data(),        sums.data()};
    for (std::size_t i = all; i-- > 0;) {
      merge(i);
    }
    pairs made;
    for (std::size_t i = 0; i < all; ++i) {
      made.emplace_back(out[i], sums[i]);
    }
    return made;
  };
  EXPECT_EQ(merged({}, {}), pairs{});
  EXPECT_EQ(merged({{4, 1.0f}}, {}), (pairs{{4, 1.0f}}));
  EXPECT_EQ(merged({}, {{4, 1.0f}}), (pairs{{4, 1.0f}}));
  EXPECT_EQ(merged({{1, 1.0f}, {4, 2.0f}, {9, 3.0f}}, {{0, 4.0f}, {4, 5.0f}, {10, 6.0f}}),
            (pairs{{0, 4.0f}, {1, 1.0f}, {4, 7.0f}, {4, 0.0f}, {9, 3.0f}, {10, 6.0f}}));
  EXPECT_EQ(merged({{0, 1.0f}, {0, 0.0f}}, {{0, 2.0f}, {0, 0.0f}}),
            (pairs{{0, 3.0f}, {0, 0.0f}, {0, 0.0f}, {0, 0.0f}}));
  constexpr std::uint32_t last = ~0u;
  EXPECT_EQ(merged({{last, 1.0f}}, {{last, 2.0f}}), (pairs{{last, 3.0f}, {last, 0.0f}}));

  std::vector<float> sum(5, 1.0f);
  const std::vector<std::uint32_t> some = {0, 2, 3, 4, 4};
  const std::vector<float> values = {10, 20, 30, 40, 0};
  const std::vector<std::uint32_t> present = {1, 3};
  const element::add_absent add{some.data(), values.data(), present.data(),
                                2,           sum.data(),    sum.size()};
  for (std::size_t i = some.size(); i-- > 0;) {
    add(i);
  }
  EXPECT_EQ(sum, (std::vector<float>{11, 1, 21, 1, 41}));
}

TEST(device_selection, clears_and_adds_at_indices) {
  std::vector<float> data = {1, 2, 3, 4, 5};
  const std::vector<std::uint32_t> at = {0, 3};
  const std::vector<float> values = {10, 20};
  for (std::size_t i = 0; i < at.size(); ++i) {
    element::scatter_add{at.data(), values.data(), data.data(), data.size()}(i);
  }
  EXPECT_EQ(data, (std::vector<float>{11, 2, 3, 24, 5}));
  const std::vector<std::uint32_t> beyond = {5, ~0u};
  for (std::size_t i = 0; i < beyond.size(); ++i) {
    element::scatter_add{beyond.data(), values.data(), data.data(), data.size()}(i);
    element::add_absent{beyond.data(), values.data(), nullptr, 0, data.data(), data.size()}(i);
  }
  EXPECT_EQ(data, (std::vector<float>{11, 2, 3, 24, 5})) << "it wrote what is not there";
  for (std::size_t i = 0; i < at.size(); ++i) {
    element::clear_at{data.data(), at.data()}(i);
  }
  EXPECT_EQ(data, (std::vector<float>{0, 2, 3, 0, 5}));
}

}  // namespace
}  // namespace tutti
