#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "models/cuda/nhwc/columns.cuh"
#include "tutti/base/host_device.hpp"

// Batch normalisation of each channel, forward and backward.
namespace models::nhwc {

template <class T, int Width>
struct moments_term {
  static constexpr std::size_t sums = 2;
  using values = pack<T, Width>;
  struct adder {
    TUTTI_HD void operator()(const values& its, double (&sum)[sums][Width]) const {
      for (std::size_t i = 0; i < Width; ++i) {
        const auto value = static_cast<double>(widened(its.at[i]));
        sum[0][i] += value;
        sum[1][i] += value * value;
      }
    }
  };
  const T* x;

  TUTTI_HD values at(std::size_t place) const { return neighbours<Width>(x + place); }
  TUTTI_HD adder of(std::size_t) const { return {}; }
};

/// Stores a batch's mean and inverse deviation, and updates the running statistics. The running
/// variance takes the unbiased one.
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

/// The rows that one thread handles, so that it reads the values of a channel only once. `lanes_of`
/// returns how many threads then share the rows of a channel.
constexpr std::size_t rows_of_a_thread = ahead;
inline std::size_t lanes_of(extent of) {
  return (of.rows + rows_of_a_thread - 1) / rows_of_a_thread;
}

/// The rows of some neighbouring columns that one thread handles. It loads all of them before it
/// stores any, because compilers do not move a load before a store.
template <int Width>
struct rows_of_columns {
  std::size_t rows;
  std::size_t packs;
  std::size_t lanes;
  share_of_columns mine;

  TUTTI_HD rows_of_columns(std::size_t thread, std::size_t all_rows, std::size_t all_packs,
                           std::size_t all_lanes)
      : rows(all_rows), packs(all_packs), lanes(all_lanes), mine(thread, all_packs) {}

  TUTTI_HD std::size_t channel() const { return std::size_t{mine.pack} * Width; }
  TUTTI_HD bool has(std::size_t which) const { return mine.lane + which * lanes < rows; }
  TUTTI_HD std::size_t place(std::size_t which) const {
    return ((mine.lane + which * lanes) * packs + mine.pack) * Width;
  }

  template <class T>
  TUTTI_HD void load(pack<T, Width> (&held)[rows_of_a_thread], const T* from) const {
    for (std::size_t which = 0; which < rows_of_a_thread; ++which) {
      if (has(which)) {
        held[which] = neighbours<Width>(from + place(which));
      }
    }
  }
};

template <class T, int Width>
struct normalise_rows {
  const T* x;
  T* y;
  std::size_t rows;
  std::size_t packs;
  std::size_t lanes;
  normalisation by;

  TUTTI_HD void operator()(std::size_t thread) const {
    const rows_of_columns<Width> mine(thread, rows, packs, lanes);
    const auto mean = neighbours<Width>(by.mean + mine.channel());
    const auto inverse = neighbours<Width>(by.inverse_deviation + mine.channel());
    const auto scale = neighbours<Width>(by.scale + mine.channel());
    const auto offset = neighbours<Width>(by.offset + mine.channel());
    pack<T, Width> held[rows_of_a_thread];
    mine.load(held, x);
    for (std::size_t which = 0; which < rows_of_a_thread && mine.has(which); ++which) {
      pack<T, Width> made;
      for (std::size_t i = 0; i < Width; ++i) {
        const float standard = (widened(held[which].at[i]) - mean.at[i]) * inverse.at[i];
        made.at[i] = narrowed<T>(standard * scale.at[i] + offset.at[i]);
      }
      *reinterpret_cast<pack<T, Width>*>(y + mine.place(which)) = made;
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
  struct adder {
    pack<float, Width> mean;
    pack<float, Width> inverse;
    TUTTI_HD void operator()(const values& its, double (&sum)[sums][Width]) const {
      for (std::size_t i = 0; i < Width; ++i) {
        const float standard = (widened(its.x.at[i]) - mean.at[i]) * inverse.at[i];
        const auto slope = static_cast<double>(widened(its.dy.at[i]));
        sum[0][i] += slope;
        sum[1][i] += slope * static_cast<double>(standard);
      }
    }
  };
  const T* x;
  const T* dy;
  normalisation by;

  TUTTI_HD values at(std::size_t place) const {
    return {neighbours<Width>(x + place), neighbours<Width>(dy + place)};
  }
  TUTTI_HD adder of(std::size_t channel) const {
    return {neighbours<Width>(by.mean + channel),
            neighbours<Width>(by.inverse_deviation + channel)};
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
    const rows_of_columns<Width> mine(thread, rows, packs, lanes);
    const auto mean = neighbours<Width>(by.mean + mine.channel());
    const auto inverse = neighbours<Width>(by.inverse_deviation + mine.channel());
    auto factor = neighbours<Width>(by.scale + mine.channel());
    auto of_deviation = neighbours<Width>(scale_gradient + mine.channel());
    auto of_offset = neighbours<Width>(offset_gradient + mine.channel());
    for (std::size_t i = 0; i < Width; ++i) {
      factor.at[i] *= inverse.at[i];
      of_deviation.at[i] *= inverse.at[i] / static_cast<float>(rows);
      of_offset.at[i] /= static_cast<float>(rows);
    }
    pack<T, Width> values[rows_of_a_thread];
    pack<T, Width> slopes[rows_of_a_thread];
    pack<T, Width> made[rows_of_a_thread];
    mine.load(values, x);
    mine.load(slopes, dy);
    if constexpr (Mode == gradients::accumulate) {
      mine.load(made, dx);
    }
    for (std::size_t which = 0; which < rows_of_a_thread && mine.has(which); ++which) {
      for (std::size_t i = 0; i < Width; ++i) {
        const float deviation = widened(values[which].at[i]) - mean.at[i];
        const float slope =
            widened(slopes[which].at[i]) - of_offset.at[i] - deviation * of_deviation.at[i];
        put<Mode>(made[which].at[i], factor.at[i] * slope);
      }
      *reinterpret_cast<pack<T, Width>*>(dx + mine.place(which)) = made[which];
    }
  }
};

}  // namespace models::nhwc
