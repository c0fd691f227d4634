#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cuda/nhwc/columns.cuh"
#include "models/cuda/nhwc/elements.cuh"
#include "tutti/base/host_device.hpp"

// Layers that read several pixels of a sample: maximum and average pooling, and subsampling.
namespace models::nhwc {

/// The position of an element in an activation. The numbers have 32 bits, which devices divide
/// fast; a network refuses batches with more elements.
struct place {
  std::uint32_t image, row, column, channel;

  TUTTI_HD static place of(std::size_t element, shape within) {
    const auto channels = static_cast<std::uint32_t>(within.channels);
    const auto width = static_cast<std::uint32_t>(within.width);
    const auto height = static_cast<std::uint32_t>(within.height);
    const auto i = static_cast<std::uint32_t>(element);
    const std::uint32_t pixel = i / channels;
    const std::uint32_t line = pixel / width;
    return {line / height, line % height, pixel % width, i % channels};
  }
  TUTTI_HD std::size_t in(shape within) const {
    return ((std::size_t{image} * within.height + row) * within.width + column) * within.channels +
           channel;
  }
};

template <class T>
struct pool_one {
  max_pool form;
  const T* x;
  shape in;
  T* y;
  shape out;
  std::uint8_t* winners;

  TUTTI_HD void operator()(std::size_t i) const {
    const auto at = place::of(i, out);
    T best{};
    int winner = -1;
    for (std::uint32_t r = 0; r < form.kernel; ++r) {
      for (std::uint32_t s = 0; s < form.kernel; ++s) {
        // In unsigned arithmetic a position before the image becomes one beyond its end.
        const auto row = static_cast<std::uint32_t>(at.row * form.stride + r - form.padding);
        const auto column = static_cast<std::uint32_t>(at.column * form.stride + s - form.padding);
        if (row >= in.height || column >= in.width) {
          continue;
        }
        const T here = x[place{at.image, row, column, at.channel}.in(in)];
        if (winner < 0 || !(widened(here) <= widened(best))) {
          best = here;
          winner = static_cast<int>(r * form.kernel + s);
        }
      }
    }
    y[i] = best;
    winners[i] = static_cast<std::uint8_t>(winner);
  }
};

/// Computes the gradient by an input from the windows that cover it, visited in a fixed order.
template <class T, int Width, gradients Mode>
struct pool_gradient_pack {
  max_pool form;
  T* dx;
  shape in;
  const T* dy;
  shape out;
  const std::uint8_t* winners;

  TUTTI_HD void operator()(std::size_t i) const {
    const auto at = place::of(i * Width, in);
    float slope[Width] = {};
    const std::size_t bottom = at.row + form.padding;
    const std::size_t right = at.column + form.padding;
    for (std::size_t p = first(bottom); p < out.height && p * form.stride <= bottom; ++p) {
      for (std::size_t q = first(right); q < out.width && q * form.stride <= right; ++q) {
        const std::size_t there = place{at.image, static_cast<std::uint32_t>(p),
                                        static_cast<std::uint32_t>(q), at.channel}
                                      .in(out);
        const std::size_t mine = (bottom - p * form.stride) * form.kernel + right - q * form.stride;
        const auto won = neighbours<Width>(winners + there);
        const auto slopes = neighbours<Width>(dy + there);
        for (std::size_t each = 0; each < Width; ++each) {
          slope[each] += won.at[each] == mine ? widened(slopes.at[each]) : 0.0F;
        }
      }
    }
    pack<T, Width> made;
    if constexpr (Mode == gradients::accumulate) {
      made = neighbours<Width>(dx + i * Width);
    }
    for (std::size_t each = 0; each < Width; ++each) {
      put<Mode>(made.at[each], slope[each]);
    }
    reinterpret_cast<pack<T, Width>*>(dx)[i] = made;
  }

 private:
  /// Returns the first window that covers position `far` of the padded image.
  TUTTI_HD std::size_t first(std::size_t far) const {
    return far < form.kernel ? 0 : (far - form.kernel) / form.stride + 1;
  }
};

template <class T>
struct average_one {
  const T* x;
  T* y;
  std::size_t cells;
  std::size_t channels;

  TUTTI_HD void operator()(std::size_t i) const {
    const T* from = x + i / channels * cells * channels + i % channels;
    float sum = 0;
    for (std::size_t cell = 0; cell < cells; ++cell) {
      sum += widened(from[cell * channels]);
    }
    y[i] = narrowed<T>(sum / static_cast<float>(cells));
  }
};

template <class T, gradients Mode>
struct average_gradient_of_one {
  T* dx;
  const T* dy;
  std::size_t cells;
  std::size_t channels;

  TUTTI_HD void operator()(std::size_t i) const {
    const T slope = dy[i / channels / cells * channels + i % channels];
    put<Mode>(dx[i], widened(slope) / static_cast<float>(cells));
  }
};

template <class T>
struct subsample_one {
  std::uint32_t stride;
  const T* x;
  shape in;
  T* y;
  shape out;

  TUTTI_HD void operator()(std::size_t i) const {
    auto at = place::of(i, out);
    at.row *= stride;
    at.column *= stride;
    y[i] = at.channel < in.channels ? x[at.in(in)] : T{};
  }
};

template <class T, gradients Mode>
struct subsample_gradient_of_one {
  std::uint32_t stride;
  T* dx;
  shape in;
  const T* dy;
  shape out;

  TUTTI_HD void operator()(std::size_t i) const {
    auto at = place::of(i, in);
    const bool taken = at.row % stride == 0 && at.column % stride == 0;
    at.row /= stride;
    at.column /= stride;
    put<Mode>(dx[i], taken && at.channel < out.channels ? widened(dy[at.in(out)]) : 0.0F);
  }
};

}  // namespace models::nhwc
