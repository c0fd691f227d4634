// The heap of pairs that BytePS's topk sends, as a host fills it and as a device does, run on the
// host. The oracle is the standard library's heap, whose order is that of the words that BytePS
// sends.
#include "tutti/kernels/pair_heap.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/values.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/index_pairs.hpp"

namespace tutti {
namespace {

using kernels::index_pair;

std::vector<index_pair> by_the_standard_library(const std::vector<float>& input, std::size_t k) {
  const auto larger = [](const index_pair& a, const index_pair& b) {
    return std::fabs(a.value) > std::fabs(b.value);
  };
  std::vector<index_pair> heap;
  for (std::size_t i = 0; i < input.size() && k > 0; ++i) {
    const index_pair entering{static_cast<std::uint32_t>(i), input[i]};
    if (heap.size() < k) {
      heap.push_back(entering);
      std::push_heap(heap.begin(), heap.end(), larger);
    } else if (larger(entering, heap.front())) {
      std::pop_heap(heap.begin(), heap.end(), larger);
      heap.back() = entering;
      std::push_heap(heap.begin(), heap.end(), larger);
    }
  }
  return heap;
}

/// Fills the heap as a device does, with memory that has not been cleared; `refused` becomes the
/// lowest refused index.
std::vector<index_pair> on_device(const std::vector<float>& input, std::size_t k,
                                  unsigned long long& refused) {
  std::vector<index_pair> heap(k, {99, 99.0f});
  kernels::steps::fill_heap::memory shared;
  std::memset(static_cast<void*>(&shared), 0xFF, sizeof shared);
  kernels::steps::fill_heap{input.data(), input.size(), {heap.data(), k}, &refused, 1000}(
      kernels::steps::host_block{0, 1}, shared);
  return heap;
}

bool same_pairs(const std::vector<index_pair>& a, const std::vector<index_pair>& b) {
  return std::ranges::equal(a, b, [](const index_pair& one, const index_pair& other) {
    return one.index == other.index &&
           std::bit_cast<std::uint32_t>(one.value) == std::bit_cast<std::uint32_t>(other.value);
  });
}

constexpr unsigned long long nothing = std::numeric_limits<unsigned long long>::max();

void selects_the_same(const std::vector<float>& input, std::size_t k, const char* what) {
  const auto expected = by_the_standard_library(input, k);
  std::vector<index_pair> here(k, {99, 99.0f});
  inline_queue host;
  kernels::select_by_heap(host, input, 1000, here);
  EXPECT_TRUE(same_pairs(here, expected)) << what << ", " << k << " of " << input.size();
  if (k > 0) {
    unsigned long long refused = nothing;
    EXPECT_TRUE(same_pairs(on_device(input, k, refused), expected))
        << "a device: " << what << ", " << k << " of " << input.size();
    EXPECT_EQ(refused, nothing) << what;
  }
}

}  // namespace

TEST(pair_heap, is_the_standard_librarys_at_every_size) {
  for (const std::size_t n : sizes) {
    const auto input = normal_values(n, 18);
    for (const std::size_t k :
         {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{3}, n / 100, n / 3, n}) {
      if (k <= n) {
        selects_the_same(input, k, "normal");
      }
    }
  }
}

TEST(pair_heap, is_the_standard_librarys_where_the_input_is_not_kind) {
  constexpr std::size_t n = 9001;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<std::pair<const char*, std::vector<float>>> inputs;
  const auto made = [&](const char* what, const auto& of) {
    std::vector<float> input(n);
    for (std::size_t i = 0; i < n; ++i) {
      input[i] = of(i);
    }
    inputs.emplace_back(what, input);
  };
  made("zeros of both signs", [](std::size_t i) { return i % 2 == 0 ? 0.0f : -0.0f; });
  made("all equal", [](std::size_t) { return -1.5f; });
  made("ties of both signs", [](std::size_t i) { return i % 3 == 0 ? 2.0f : i % 3 == 1 ? -2 : 1; });
  made("subnormal",
       [](std::size_t i) { return std::bit_cast<float>(static_cast<std::uint32_t>(i * 31 % n)); });
  made("rising, so that all enter", [](std::size_t i) { return static_cast<float>(i); });
  made("falling, so that none does", [](std::size_t i) { return static_cast<float>(n - i); });
  made("infinities", [&](std::size_t i) {
    return i % 1000 == 7 ? (i % 2 == 0 ? infinity : -infinity) : static_cast<float>(i * 7919 % n);
  });
  for (const auto& [what, input] : inputs) {
    for (const std::size_t k : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{50},
                                std::size_t{4095}, std::size_t{4096}, n - 1, n}) {
      selects_the_same(input, k, what);
    }
  }
}

TEST(pair_heap, names_the_first_nan) {
  for (const std::size_t place : {3u, 900u}) {
    auto input = normal_values(1000, 20);
    input[place] = -std::numeric_limits<float>::quiet_NaN();
    input[950] = std::numeric_limits<float>::quiet_NaN();
    unsigned long long refused = nothing;
    on_device(input, 10, refused);
    EXPECT_EQ(refused, 1000 + place);
    std::vector<index_pair> here(10);
    inline_queue host;
    EXPECT_THROW(kernels::select_by_heap(host, input, 1000, here), usage_error);
  }
}

}  // namespace tutti
