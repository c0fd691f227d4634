#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

namespace detail {

/// Calls `take(element)` for each element, in no particular order. Reads from four places of the
/// input at once, because a single stream of reads leaves most of a core's memory bandwidth idle.
template <class Take>
void take_from_four_places(std::span<const float> input, const Take& take) {
  const std::size_t quarter = input.size() / 4;
  for (std::size_t i = 0; i < quarter; ++i) {
    take(input[i]);
    take(input[quarter + i]);
    take(input[2 * quarter + i]);
    take(input[3 * quarter + i]);
  }
  for (const float each : input.subspan(4 * quarter)) {
    take(each);
  }
}

/// Returns the key of the largest magnitude; 0 if there are no elements. For use inside a loop that
/// `widest` runs.
inline std::uint32_t largest_bits(std::span<const float> input) {
  std::uint32_t largest = 0;
  take_from_four_places(input, [&](float each) { largest = std::max(largest, key_of(each)); });
  return largest;
}
/// Returns the same anywhere else.
inline std::uint32_t largest_key(std::span<const float> input) {
  std::uint32_t largest = 0;
  widest([&] { largest = largest_bits(input); });
  return largest;
}

/// Returns how many elements are infinities or NaN. They are counted in 32 bits, as wide as an
/// element, for at most 2^31 elements at a time.
inline std::uint64_t nonfinite(std::span<const float> input) {
  constexpr std::size_t together = std::size_t{1} << 31;
  std::uint64_t found = 0;
  for (std::size_t begin = 0; begin < input.size(); begin += together) {
    std::uint32_t here = 0;
    take_from_four_places(input.subspan(begin, std::min(together, input.size() - begin)),
                          [&](float each) { here += key_of(each) < infinity_key ? 0U : 1U; });
    found += here;
  }
  return found;
}

TUTTI_HD inline double square_root(double value) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(value);
#else
  return __builtin_sqrt(value);  // because <cmath> takes compilers longer to read than all norms
#endif
}

}  // namespace detail

namespace element {

/// The square of a float in double, which is exact.
struct square {
  TUTTI_HD double operator()(float value) const {
    return static_cast<double>(value) * static_cast<double>(value);
  }
};

struct key {
  TUTTI_HD std::uint32_t operator()(float value) const { return key_of(value); }
};

struct square_of_sum {
  float* into;
  const float* from;
  TUTTI_HD double operator()(std::size_t i) const {
    into[i] += from[i];
    return square()(into[i]);
  }
};

/// 1 for an infinity or NaN, 0 for a number.
struct is_nonfinite {
  TUTTI_HD double operator()(float value) const { return key_of(value) < 0x7f80'0000u ? 0 : 1; }
};

struct add_to_count {
  std::uint64_t* count;
  TUTTI_HD void operator()(double total) const { *count += static_cast<std::uint64_t>(total); }
};

struct keep_total {
  double* result;
  TUTTI_HD void operator()(double total) const { *result = total; }
};

struct keep_root_of_mean {
  float* result;
  std::size_t n;
  TUTTI_HD void operator()(double total) const {
    const double mean = total / static_cast<double>(n);
    *result = n == 0 ? 0.0f : static_cast<float>(detail::square_root(mean));
  }
};

}  // namespace element

/// *result becomes the sum of the squares of `input`, added in double in a fixed order, so that
/// every processor gives the same bits. A device adds in an order of its own: for n squares the two
/// sums differ by less than n * 2^-52 of either.
template <host_queue Queue>
void sum_of_squares(Queue& queue, std::span<const float> input, double* result) {
  queue.run([=] {
    widest([=] {
      const auto square = [=](std::size_t i) { return element::square{}(input[i]); };
      *result = sum_in_lanes(input.size(), square);
    });
  });
}
void sum_of_squares(cuda::stream& queue, std::span<const float> input, double* result);

/// *result becomes the root of the mean of the squares, which are added as in sum_of_squares, and
/// is rounded once; 0 if there are none.
template <host_queue Queue>
void root_mean_square(Queue& queue, std::span<const float> input, float* result) {
  queue.run([=] {
    widest([=] {
      const auto square = [=](std::size_t i) { return element::square{}(input[i]); };
      element::keep_root_of_mean{result, input.size()}(sum_in_lanes(input.size(), square));
    });
  });
}
void root_mean_square(cuda::stream& queue, std::span<const float> input, float* result);

/// into[i] += from[i], and *result becomes the root mean square of `into`, in one pass.
template <host_queue Queue>
void add_and_root_mean_square(Queue& queue, std::span<float> into, std::span<const float> from,
                              float* result) {
  queue.run([=] {
    widest([=] {
      const element::square_of_sum term{into.data(), from.data()};
      element::keep_root_of_mean{result, into.size()}(sum_in_lanes(into.size(), term));
    });
  });
}
void add_and_root_mean_square(cuda::stream& queue, std::span<float> into,
                              std::span<const float> from, float* result);

/// *result becomes the largest |input[i]|: NaN if one of them is, 0 if there are none.
template <host_queue Queue>
void largest_magnitude(Queue& queue, std::span<const float> input, float* result) {
  queue.run([=] { *result = std::bit_cast<float>(detail::largest_key(input)); });
}
void largest_magnitude(cuda::stream& queue, std::span<const float> input, float* result);

/// Adds to *count how many elements of `input` are infinities or NaN. Other threads of a host may
/// read *count meanwhile.
template <host_queue Queue>
void count_nonfinite(Queue& queue, std::span<const float> input, std::uint64_t* count) {
  queue.run([=] {
    widest([=] {
      std::atomic_ref(*count).fetch_add(detail::nonfinite(input), std::memory_order_relaxed);
    });
  });
}
void count_nonfinite(cuda::stream& queue, std::span<const float> input, std::uint64_t* count);

}  // namespace tutti::kernels
