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

// Each kernel is declared twice: for a queue of host code, and for a CUDA stream. The definition of
// the latter lies in cuda/ and in the library tutti::cuda, and its spans are device memory.
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

/// Sets all[…][i] to all[0][i] + all[1][i] + …, added in that order, in arrays of `n` floats that
/// do not overlap. It takes one pass over them, where adding and then copying would take two. At
/// most four arrays, because more would be more streams than a core's prefetchers follow. It runs
/// only on hosts, because only there can the arrays of peers be addressed.
template <std::size_t Count, host_queue Queue>
requires(Count <= 4) void add_everywhere(Queue& queue, std::array<float*, Count> all,
                                         std::size_t n) {
  queue.run([=] {
    widest([=] {
      // Begins at a cache line, so that no vector lies in two lines, which is a quarter faster.
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

// The loops below that multiply and add are not compiled for wider vectors: processors with these
// could round a product and a sum only once, but ranks on different processors must agree.

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

/// into[i] = keep * into[i] + take * from[i]: a moving average. The caller gives both factors,
/// because 1 - keep, computed in floats, is not always the float nearest to the exact complement.
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

/// Exchanges one[i] and other[i]. The arrays are equally long and do not overlap.
template <host_queue Queue>
void swap(Queue& queue, std::span<float> one, std::span<float> other) {
  queue.run([=] {
    for (std::size_t i = 0; i < one.size(); ++i) {
      element::swap{}(one[i], other[i]);
    }
  });
}
void swap(cuda::stream& queue, std::span<float> one, std::span<float> other);

/// data[i] = 0 - data[i], so that zeros become +0.
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

/// out[i] = inputs[0][i] + inputs[1][i] + …, in one loop; `out` may be one of the inputs.
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

/// Adds the inputs in this order, too, but block by block: a block of the sum stays in the
/// first-level cache while one input after the other is added to it.
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
        default:  // none, one, or more inputs than a core's prefetchers follow
          return detail::sum_in_blocks(out, inputs);
      }
    });
  });
}
void sum(cuda::stream& queue, std::span<float> out, std::span<const float* const> inputs);

// A mean is added up in double and rounded once. A device adds in CUB's order, because in the
// host's order each thread would do a sixteenth of the work. The two means are the same float, or
// neighbours if the exact mean lies so close to a rounding boundary of floats that the rounding of
// doubles decides.

/// *result becomes the mean of |input[i]|; 0 if there are no elements.
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

/// into[i] += from[i], and *result becomes the mean of |into[i]|, in one pass.
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
