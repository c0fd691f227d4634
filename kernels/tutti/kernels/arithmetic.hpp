#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

// Each kernel is said twice: for a queue of host code, and for a stream of CUDA's, whose definition
// lies in cuda/ and in the library tutti::cuda. Spans are then of the device's memory.
namespace tutti::kernels {

/// into[i] += from[i]: the reduction of every collective.
template <host_queue Queue>
void add(Queue& queue, std::span<float> into, std::span<const float> from) {
  queue.run([=] {
    widest([=] {
      for (std::size_t i = 0; i < into.size(); ++i) {
        element::add{}(into[i], from[i]);
      }
    });
  });
}
void add(cuda::stream& queue, std::span<float> into, std::span<const float> from);

namespace detail {

template <std::size_t Count>
void add_everywhere(std::array<float*, Count> all, std::size_t begin, std::size_t end) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::size_t i = begin; i < end; ++i) {
    float sum = all[0][i];
    for (std::size_t other = 1; other < Count; ++other) {
      sum += all[other][i];
    }
    for (float* const each : all) {
      each[i] = sum;
    }
  }
}

}  // namespace detail

/// all[…][i] become all[0][i] + all[1][i] + …, added in that order: one pass over arrays of `n`
/// floats that do not overlap, where adding and then copying would be two. More than four are more
/// streams than a core's prefetchers follow. A host's alone: only there are peers' arrays
/// addressed.
template <std::size_t Count, host_queue Queue>
requires(Count <= 4) void add_everywhere(Queue& queue, std::array<float*, Count> all,
                                         std::size_t n) {
  queue.run([=] {
    widest([=] {
      // From a cache line's begin, so that no vector lies in two: a quarter faster.
      const std::size_t into_line = reinterpret_cast<std::uintptr_t>(all[0]) / sizeof(float) % 16;
      const std::size_t before = std::min(n, (16 - into_line) % 16);
      detail::add_everywhere(all, 0, before);
      detail::add_everywhere(all, before, n);
    });
  });
}

/// data[i] *= factor.
template <host_queue Queue>
void scale(Queue& queue, std::span<float> data, float factor) {
  queue.run([=] {
    widest([=] {
      for (float& each : data) {
        element::scale{factor}(each);
      }
    });
  });
}
void scale(cuda::stream& queue, std::span<float> data, float factor);

// Not compiled for wider vectors, where a processor would offer to round a product and a sum once:
// ranks on different processors must agree.

/// into[i] += factor * from[i], rounded twice.
template <host_queue Queue>
void add_scaled(Queue& queue, std::span<float> into, std::span<const float> from, float factor) {
  queue.run([=] {
    for (std::size_t i = 0; i < into.size(); ++i) {
      element::add_scaled{factor}(into[i], from[i]);
    }
  });
}
void add_scaled(cuda::stream& queue, std::span<float> into, std::span<const float> from,
                float factor);

/// into[i] = keep * into[i] + take * from[i]: a moving average. Both factors are the caller's, for
/// a float's complement is not the complement's float.
template <host_queue Queue>
void blend(Queue& queue, std::span<float> into, std::span<const float> from, float keep,
           float take) {
  queue.run([=] {
    for (std::size_t i = 0; i < into.size(); ++i) {
      element::blend{keep, take}(into[i], from[i]);
    }
  });
}
void blend(cuda::stream& queue, std::span<float> into, std::span<const float> from, float keep,
           float take);

/// one[i] and other[i] change places. The arrays are equally long and do not overlap.
template <host_queue Queue>
void swap(Queue& queue, std::span<float> one, std::span<float> other) {
  queue.run([=] {
    for (std::size_t i = 0; i < one.size(); ++i) {
      element::swap{}(one[i], other[i]);
    }
  });
}
void swap(cuda::stream& queue, std::span<float> one, std::span<float> other);

/// data[i] = 0 - data[i], so that zero stays +0.
template <host_queue Queue>
void negate(Queue& queue, std::span<float> data) {
  queue.run([=] {
    widest([=] {
      for (float& each : data) {
        element::negate{}(each);
      }
    });
  });
}
void negate(cuda::stream& queue, std::span<float> data);

namespace detail {

/// out[i] = inputs[0][i] + inputs[1][i] + …, all of them at once; `out` may be one of them.
template <std::size_t... Input>
void sum_at_once(std::span<float> out, const float* const* inputs, std::index_sequence<Input...>) {
  const std::array<const float*, sizeof...(Input)> from{inputs[Input]...};
  const std::size_t n = out.size();
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = (... + from[Input][i]);
  }
}

/// A block of the sum stays in the first-level cache while the inputs are added to it.
inline void sum_in_blocks(std::span<float> out, std::span<const float* const> inputs) {
  constexpr std::size_t block = 1024;
  std::array<float, block> partial;
  for (std::size_t begin = 0; begin < out.size(); begin += block) {
    const std::size_t n = std::min(block, out.size() - begin);
    std::fill_n(partial.begin(), n, 0.0f);
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      const float* const from = inputs[rank] + begin;
      if (rank == 0) {
        std::copy_n(from, n, partial.begin());
        continue;
      }
      for (std::size_t i = 0; i < n; ++i) {
        partial[i] += from[i];
      }
    }
    std::copy_n(partial.begin(), n, out.data() + begin);
  }
}

}  // namespace detail

/// out[i] = inputs[0][i] + inputs[1][i] + …, added in that order. Every input is as long as `out`,
/// which may be one of them (on a device one of the first 256); the list of inputs must live until
/// the queue has run this.
/// Cost: one read of each input and one write.
template <host_queue Queue>
void sum(Queue& queue, std::span<float> out, std::span<const float* const> inputs) {
  queue.run([=] {
    widest([=] {
      switch (inputs.size()) {
        case 2:
          return detail::sum_at_once(out, inputs.data(), std::make_index_sequence<2>());
        case 3:
          return detail::sum_at_once(out, inputs.data(), std::make_index_sequence<3>());
        case 4:
          return detail::sum_at_once(out, inputs.data(), std::make_index_sequence<4>());
        default:  // none, one, or more streams than a core's prefetchers follow
          return detail::sum_in_blocks(out, inputs);
      }
    });
  });
}
void sum(cuda::stream& queue, std::span<float> out, std::span<const float* const> inputs);

// A mean is added up in double and rounded once. A device adds in an order of its own, which is
// CUB's, for the host's has one thread do a sixteenth of the work: the two means are the same float
// unless the exact one lies within the doubles' rounding of a float's, and then they are
// neighbours.

/// *result becomes the mean of |input[i]|; 0 if there are none.
template <host_queue Queue>
void mean_magnitude(Queue& queue, std::span<const float> input, float* result) {
  queue.run([=] {
    widest([=] {
      const element::magnitude term{input.data()};
      element::keep_mean{result, input.size()}(sum_in_lanes(input.size(), term));
    });
  });
}
void mean_magnitude(cuda::stream& queue, std::span<const float> input, float* result);

/// into[i] += from[i], and *result becomes the mean of |into[i]|: one pass.
template <host_queue Queue>
void add_and_mean_magnitude(Queue& queue, std::span<float> into, std::span<const float> from,
                            float* result) {
  queue.run([=] {
    widest([=] {
      const element::magnitude_of_sum term{into.data(), from.data()};
      element::keep_mean{result, into.size()}(sum_in_lanes(into.size(), term));
    });
  });
}
void add_and_mean_magnitude(cuda::stream& queue, std::span<float> into, std::span<const float> from,
                            float* result);

}  // namespace tutti::kernels
