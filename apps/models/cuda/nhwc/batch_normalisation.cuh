#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "models/cuda/nhwc/columns.cuh"
#include "tutti/base/host_device.hpp"

// Batch normalisation of each channel, forwards and backwards.
namespace models::nhwc {

template <class T, int Width>
struct moments_term {
  static constexpr std::size_t sums = 2;
  const T* x;

  TUTTI_HD void operator()(std::size_t place, std::size_t, double (&sum)[sums][Width]) const {
    const auto values = reinterpret_cast<const pack<T, Width>*>(x)[place];
    for (std::size_t i = 0; i < Width; ++i) {
      const auto value = static_cast<double>(widened(values.at[i]));
      sum[0][i] += value;
      sum[1][i] += value * value;
    }
  }
};

/// A batch's mean and variance move the running ones, whose variance is the unbiased one.
struct keep_moments {
  normalisation by;
  double rows;

  TUTTI_HD void operator()(std::size_t channel, double sum, double squares) const {
    const double mean = sum / rows;
    const double rough = squares / rows - mean * mean;
    const double variance = rough < 0 ? 0 : rough;
    by.mean[channel] = static_cast<float>(mean);
    by.inverse_deviation[channel] =
        static_cast<float>(1 / std::sqrt(variance + batch_norm::epsilon));
    move(by.running_mean[channel], mean);
    move(by.running_variance[channel], rows > 1 ? variance * rows / (rows - 1) : variance);
  }

 private:
  TUTTI_HD static void move(float& running, double to) {
    running = static_cast<float>((1 - batch_norm::momentum) * static_cast<double>(running) +
                                 batch_norm::momentum * to);
  }
};

struct keep_running {
  normalisation by;

  TUTTI_HD void operator()(std::size_t channel) const {
    by.mean[channel] = by.running_mean[channel];
    by.inverse_deviation[channel] = static_cast<float>(
        1 / std::sqrt(static_cast<double>(by.running_variance[channel]) + batch_norm::epsilon));
  }
};

template <class T, int Width>
struct normalise_pack {
  const T* x;
  T* y;
  std::size_t packs;
  normalisation by;

  TUTTI_HD void operator()(std::size_t i) const {
    auto values = reinterpret_cast<const pack<T, Width>*>(x)[i];
    const std::size_t first = i % packs * Width;
    for (std::size_t each = 0; each < Width; ++each) {
      const std::size_t channel = first + each;
      const float standard =
          (widened(values.at[each]) - by.mean[channel]) * by.inverse_deviation[channel];
      values.at[each] = narrowed<T>(standard * by.scale[channel] + by.offset[channel]);
    }
    reinterpret_cast<pack<T, Width>*>(y)[i] = values;
  }
};

template <int Width, class T>
void apply(stream& queue, const T* x, T* y, extent of, const normalisation& by) {
  device::for_each(queue, of.size() / Width,
                   normalise_pack<T, Width>{x, y, of.channels / Width, by});
}

template <class T, int Width>
struct gradient_moments_term {
  static constexpr std::size_t sums = 2;
  const T* x;
  const T* dy;
  normalisation by;

  TUTTI_HD void operator()(std::size_t place, std::size_t first, double (&sum)[sums][Width]) const {
    const auto values = reinterpret_cast<const pack<T, Width>*>(x)[place];
    const auto slopes = reinterpret_cast<const pack<T, Width>*>(dy)[place];
    for (std::size_t i = 0; i < Width; ++i) {
      const float standard =
          (widened(values.at[i]) - by.mean[first + i]) * by.inverse_deviation[first + i];
      const auto slope = static_cast<double>(widened(slopes.at[i]));
      sum[0][i] += slope;
      sum[1][i] += slope * static_cast<double>(standard);
    }
  }
};

struct keep_gradients {
  float* scale;
  float* offset;

  TUTTI_HD void operator()(std::size_t channel, double sum, double by_standard) const {
    offset[channel] = static_cast<float>(sum);
    scale[channel] = static_cast<float>(by_standard);
  }
};

template <class T, int Width, gradients Mode>
struct normalise_gradient_pack {
  const T* x;
  const T* dy;
  T* dx;
  std::size_t packs;
  float rows;
  normalisation by;
  const float* scale_gradient;
  const float* offset_gradient;

  TUTTI_HD void operator()(std::size_t i) const {
    const auto values = reinterpret_cast<const pack<T, Width>*>(x)[i];
    const auto slopes = reinterpret_cast<const pack<T, Width>*>(dy)[i];
    auto& out = reinterpret_cast<pack<T, Width>*>(dx)[i];
    pack<T, Width> made;
    if constexpr (Mode == gradients::accumulate) {
      made = out;
    }
    const std::size_t first = i % packs * Width;
    for (std::size_t each = 0; each < Width; ++each) {
      const std::size_t channel = first + each;
      const float standard =
          (widened(values.at[each]) - by.mean[channel]) * by.inverse_deviation[channel];
      const float slope = widened(slopes.at[each]) - offset_gradient[channel] / rows -
                          standard * (scale_gradient[channel] / rows);
      put<Mode>(made.at[each], by.scale[channel] * by.inverse_deviation[channel] * slope);
    }
    out = made;
  }
};

}  // namespace models::nhwc
