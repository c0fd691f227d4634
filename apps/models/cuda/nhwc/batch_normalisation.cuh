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
  using values = pack<T, Width>;
  const T* x;

  TUTTI_HD values at(std::size_t place) const { return neighbours<Width>(x + place); }
  TUTTI_HD void add(const values& its, std::size_t, double (&sum)[sums][Width]) const {
    for (std::size_t i = 0; i < Width; ++i) {
      const auto value = static_cast<double>(widened(its.at[i]));
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

/// Rows that one thread has, which reads once what holds for a channel, and the threads that share
/// a channel's rows then.
constexpr std::size_t rows_of_a_thread = 4;
inline std::size_t lanes_of(extent of) {
  return (of.rows + rows_of_a_thread - 1) / rows_of_a_thread;
}

template <class T, int Width>
struct normalise_rows {
  const T* x;
  T* y;
  std::size_t rows;
  std::size_t packs;
  std::size_t lanes;
  normalisation by;

  TUTTI_HD void operator()(std::size_t thread) const {
    const share_of_columns mine(thread, packs);
    const std::size_t channel = mine.pack * Width;
    const auto mean = neighbours<Width>(by.mean + channel);
    const auto inverse = neighbours<Width>(by.inverse_deviation + channel);
    const auto scale = neighbours<Width>(by.scale + channel);
    const auto offset = neighbours<Width>(by.offset + channel);
    for (std::size_t a = 0; a < rows_of_a_thread && mine.lane + a * lanes < rows; ++a) {
      const std::size_t place = ((mine.lane + a * lanes) * packs + mine.pack) * Width;
      auto values = neighbours<Width>(x + place);
      for (std::size_t i = 0; i < Width; ++i) {
        const float standard = (widened(values.at[i]) - mean.at[i]) * inverse.at[i];
        values.at[i] = narrowed<T>(standard * scale.at[i] + offset.at[i]);
      }
      *reinterpret_cast<pack<T, Width>*>(y + place) = values;
    }
  }
};

template <int Width, class T>
void apply(stream& queue, const T* x, T* y, extent of, const normalisation& by) {
  const std::size_t packs = of.channels / Width;
  const std::size_t lanes = lanes_of(of);
  device::for_each(queue, lanes * packs, normalise_rows<T, Width>{x, y, of.rows, packs, lanes, by});
}

template <class T, int Width>
struct gradient_moments_term {
  static constexpr std::size_t sums = 2;
  struct values {
    pack<T, Width> x;
    pack<T, Width> dy;
  };
  const T* x;
  const T* dy;
  normalisation by;

  TUTTI_HD values at(std::size_t place) const {
    return {neighbours<Width>(x + place), neighbours<Width>(dy + place)};
  }
  TUTTI_HD void add(const values& its, std::size_t channel, double (&sum)[sums][Width]) const {
    const auto mean = neighbours<Width>(by.mean + channel);
    const auto inverse = neighbours<Width>(by.inverse_deviation + channel);
    for (std::size_t i = 0; i < Width; ++i) {
      const float standard = (widened(its.x.at[i]) - mean.at[i]) * inverse.at[i];
      const auto slope = static_cast<double>(widened(its.dy.at[i]));
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
struct normalise_gradient_rows {
  const T* x;
  const T* dy;
  T* dx;
  std::size_t rows;
  std::size_t packs;
  std::size_t lanes;
  normalisation by;
  const float* scale_gradient;
  const float* offset_gradient;

  TUTTI_HD void operator()(std::size_t thread) const {
    const share_of_columns mine(thread, packs);
    const std::size_t channel = mine.pack * Width;
    const auto mean = neighbours<Width>(by.mean + channel);
    const auto inverse = neighbours<Width>(by.inverse_deviation + channel);
    auto factor = neighbours<Width>(by.scale + channel);
    auto of_scale = neighbours<Width>(scale_gradient + channel);
    auto of_offset = neighbours<Width>(offset_gradient + channel);
    for (std::size_t i = 0; i < Width; ++i) {
      factor.at[i] *= inverse.at[i];
      of_scale.at[i] /= static_cast<float>(rows);
      of_offset.at[i] /= static_cast<float>(rows);
    }
    for (std::size_t a = 0; a < rows_of_a_thread && mine.lane + a * lanes < rows; ++a) {
      const std::size_t place = ((mine.lane + a * lanes) * packs + mine.pack) * Width;
      const auto values = neighbours<Width>(x + place);
      const auto slopes = neighbours<Width>(dy + place);
      pack<T, Width> made;
      if constexpr (Mode == gradients::accumulate) {
        made = neighbours<Width>(dx + place);
      }
      for (std::size_t i = 0; i < Width; ++i) {
        const float standard = (widened(values.at[i]) - mean.at[i]) * inverse.at[i];
        const float slope = widened(slopes.at[i]) - of_offset.at[i] - standard * of_scale.at[i];
        put<Mode>(made.at[i], factor.at[i] * slope);
      }
      *reinterpret_cast<pack<T, Width>*>(dx + place) = made;
    }
  }
};

}  // namespace models::nhwc
