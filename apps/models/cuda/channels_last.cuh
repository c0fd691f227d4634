#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "models/cuda/channels_last.hpp"
#include "tutti/base/host_device.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/cuda/each.cuh"

// The definitions, as functors of one thread's part each: the same text for a device and for a host
// that stands for one.
namespace models {

namespace device = tutti::kernels::device;

namespace nhwc {

TUTTI_HD inline float widened(float value) { return value; }
TUTTI_HD inline float widened(brain bits) { return tutti::kernels::bfloat::to_float(bits); }

template <class T>
TUTTI_HD T narrowed(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return tutti::kernels::bfloat::to_bits(value);
  }
}

template <gradients Mode, class T>
TUTTI_HD void put(T& to, float value) {
  if constexpr (Mode == gradients::overwrite) {
    to = narrowed<T>(value);
  } else {
    to = narrowed<T>(widened(to) + value);
  }
}

template <gradients Mode>
using constant = std::integral_constant<gradients, Mode>;

template <class F>
void in_mode(gradients mode, const F& f) {
  if (mode == gradients::overwrite) {
    f(constant<gradients::overwrite>{});
  } else {
    f(constant<gradients::accumulate>{});
  }
}

// ---- layouts

/// Where element `i` of pixels lies in planes.
TUTTI_HD inline std::size_t in_planes(std::size_t i, std::size_t channels, std::size_t cells) {
  const std::size_t pixel = i / channels;
  const std::size_t sample = pixel / cells;
  return (sample * channels + i % channels) * cells + pixel - sample * cells;
}

template <class T>
struct gather_planes {
  const float* planes;
  T* pixels;
  std::size_t channels;
  std::size_t cells;

  TUTTI_HD void operator()(std::size_t i) const {
    pixels[i] = narrowed<T>(planes[in_planes(i, channels, cells)]);
  }
};

template <class T>
struct scatter_planes {
  const T* pixels;
  float* planes;
  std::size_t channels;
  std::size_t cells;

  TUTTI_HD void operator()(std::size_t i) const {
    planes[in_planes(i, channels, cells)] = widened(pixels[i]);
  }
};

// ---- one element at a time

template <class T>
struct add_to {
  TUTTI_HD void operator()(T& into, T from) const {
    put<gradients::accumulate>(into, widened(from));
  }
};

template <class T>
struct rectified {
  TUTTI_HD void operator()(T& x) const {
    if (widened(x) < 0) {  // a NaN stays
      x = 0;
    }
  }
};

template <class T>
struct rectified_gradient {
  TUTTI_HD void operator()(T y, T& gradient) const {
    if (!(widened(y) > 0)) {
      gradient = 0;
    }
  }
};

// ---- columns: neighbouring channels together, where sixteen bytes of them are whole

template <class T, int Width>
struct alignas(sizeof(T) * Width) pack {
  T at[Width];
};

template <class T, class F>
void in_packs(std::size_t channels, const F& f) {
  constexpr int whole = 16 / sizeof(T);
  if (channels % whole == 0) {
    f(std::integral_constant<int, whole>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

constexpr std::size_t most_threads = std::size_t{1} << 16;
constexpr std::size_t most_sums = 2;

/// A thread adds `term` over every `lanes`-th row of some neighbouring columns.
template <int Width, class Term>
struct sum_lanes {
  std::size_t rows;
  std::size_t packs;
  std::size_t lanes;
  Term term;
  double* partial;  // of each sum, lane and channel

  TUTTI_HD void operator()(std::size_t thread) const {
    const std::size_t lane = thread / packs;
    const std::size_t first = thread % packs;
    double sums[Term::sums][Width] = {};
    for (std::size_t row = lane; row < rows; row += lanes) {
      term(row * packs + first, first * Width, sums);
    }
    for (std::size_t which = 0; which < Term::sums; ++which) {
      for (std::size_t i = 0; i < Width; ++i) {
        partial[((which * lanes + lane) * packs + first) * Width + i] = sums[which][i];
      }
    }
  }
};

/// Adds lanes onto the first `to` of them.
struct fold_lanes {
  double* partial;
  std::size_t lanes;  // between a sum's and the next one's
  std::size_t channels;
  std::size_t from;
  std::size_t to;

  TUTTI_HD void operator()(std::size_t thread) const {
    const std::size_t which = thread / (to * channels);
    double* place = partial + which * lanes * channels + thread % (to * channels);
    double sum = 0;
    for (std::size_t lane = thread % (to * channels) / channels, i = 0; lane < from;
         lane += to, i += to * channels) {
      sum += place[i];
    }
    *place = sum;
  }
};

template <class Finish>
struct finish_columns {
  const double* partial;
  std::size_t apart;
  Finish finish;

  TUTTI_HD void operator()(std::size_t channel) const {
    finish(channel, partial[channel], partial[channel + apart]);
  }
};

/// Calls `finish(channel, sum, other sum)` with the sums of `term` over each column.
template <int Width, class Term, class Finish>
void add_columns(stream& queue, extent of, const Term& term, double* scratch,
                 const Finish& finish) {
  constexpr std::size_t folded_at_once = 32;
  const std::size_t packs = of.channels / Width;
  const std::size_t lanes = std::clamp<std::size_t>(most_threads / packs, 1, of.rows);
  device::for_each(queue, lanes * packs,
                   sum_lanes<Width, Term>{of.rows, packs, lanes, term, scratch});
  for (std::size_t from = lanes; from > 1;) {
    const std::size_t to = (from + folded_at_once - 1) / folded_at_once;
    device::for_each(queue, Term::sums * to * of.channels,
                     fold_lanes{scratch, lanes, of.channels, from, to});
    from = to;
  }
  const std::size_t apart = Term::sums == 1 ? 0 : lanes * of.channels;
  device::for_each(queue, of.channels, finish_columns<Finish>{scratch, apart, finish});
}

// ---- bias

template <class T, int Width>
struct add_bias_to {
  T* x;
  const float* bias;
  std::size_t packs;

  TUTTI_HD void operator()(std::size_t i) const {
    auto& values = reinterpret_cast<pack<T, Width>*>(x)[i];
    const std::size_t first = i % packs * Width;
    auto sums = values;
    for (std::size_t each = 0; each < Width; ++each) {
      put<gradients::accumulate>(sums.at[each], bias[first + each]);
    }
    values = sums;
  }
};

template <class T, int Width>
struct sum_term {
  static constexpr std::size_t sums = 1;
  const T* dy;

  TUTTI_HD void operator()(std::size_t place, std::size_t, double (&sum)[sums][Width]) const {
    const auto values = reinterpret_cast<const pack<T, Width>*>(dy)[place];
    for (std::size_t i = 0; i < Width; ++i) {
      sum[0][i] += static_cast<double>(widened(values.at[i]));
    }
  }
};

struct keep_sum {
  float* gradient;
  TUTTI_HD void operator()(std::size_t channel, double sum, double) const {
    gradient[channel] = static_cast<float>(sum);
  }
};

// ---- batch normalisation

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

// ---- pixels and windows

/// Where an element of an activation lies. 32 bits, which devices divide fast: a network refuses
/// batches with more elements.
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
        // Unsigned: what lies before the image is beyond it.
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

/// Each input looks at the squares that it lies in, in their order.
template <class T, gradients Mode>
struct pool_gradient_of_one {
  max_pool form;
  T* dx;
  shape in;
  const T* dy;
  shape out;
  const std::uint8_t* winners;

  TUTTI_HD void operator()(std::size_t i) const {
    const auto at = place::of(i, in);
    float slope = 0;
    const std::size_t bottom = at.row + form.padding;
    const std::size_t right = at.column + form.padding;
    for (std::size_t p = first(bottom); p < out.height && p * form.stride <= bottom; ++p) {
      for (std::size_t q = first(right); q < out.width && q * form.stride <= right; ++q) {
        const std::size_t there = place{at.image, static_cast<std::uint32_t>(p),
                                        static_cast<std::uint32_t>(q), at.channel}
                                      .in(out);
        const std::size_t mine = (bottom - p * form.stride) * form.kernel + right - q * form.stride;
        slope += winners[there] == mine ? widened(dy[there]) : 0.0F;
      }
    }
    put<Mode>(dx[i], slope);
  }

 private:
  /// The first square that reaches so far.
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

}  // namespace nhwc

template <class T>
std::size_t channels_last<T>::room(std::size_t channels) {
  return nhwc::most_sums * std::max(nhwc::most_threads * (16 / sizeof(T)), channels);
}

template <class T>
void channels_last<T>::from_planes(stream& queue, const float* planes, T* pixels,
                                   std::size_t samples, std::size_t channels, std::size_t cells) {
  device::for_each(queue, samples * channels * cells,
                   nhwc::gather_planes<T>{planes, pixels, channels, cells});
}

template <class T>
void channels_last<T>::to_planes(stream& queue, const T* pixels, float* planes, std::size_t samples,
                                 std::size_t channels, std::size_t cells) {
  device::for_each(queue, samples * channels * cells,
                   nhwc::scatter_planes<T>{pixels, planes, channels, cells});
}

template <class T>
void channels_last<T>::add(stream& queue, T* into, const T* from, std::size_t n) {
  device::each(queue, n, nhwc::add_to<T>{}, into, from);
}

template <class T>
void channels_last<T>::rectify(stream& queue, T* x, std::size_t n) {
  device::each(queue, n, nhwc::rectified<T>{}, x);
}

template <class T>
void channels_last<T>::rectify_gradient(stream& queue, const T* y, T* gradient, std::size_t n) {
  device::each(queue, n, nhwc::rectified_gradient<T>{}, y, gradient);
}

template <class T>
void channels_last<T>::add_bias(stream& queue, T* x, extent of, const float* bias) {
  nhwc::in_packs<T>(of.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    device::for_each(queue, of.size() / Width,
                     nhwc::add_bias_to<T, Width>{x, bias, of.channels / Width});
  });
}

template <class T>
void channels_last<T>::bias_gradient(stream& queue, const T* dy, extent of, float* gradient,
                                     double* scratch) {
  nhwc::in_packs<T>(of.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    nhwc::add_columns<Width>(queue, of, nhwc::sum_term<T, Width>{dy}, scratch,
                             nhwc::keep_sum{gradient});
  });
}

template <class T>
void channels_last<T>::normalise(stream& queue, const T* x, T* y, extent of,
                                 const normalisation& by, double* scratch) {
  nhwc::in_packs<T>(of.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    nhwc::add_columns<Width>(queue, of, nhwc::moments_term<T, Width>{x}, scratch,
                             nhwc::keep_moments{by, static_cast<double>(of.rows)});
    nhwc::apply<Width>(queue, x, y, of, by);
  });
}

template <class T>
void channels_last<T>::normalise_by_running(stream& queue, const T* x, T* y, extent of,
                                            const normalisation& by) {
  device::for_each(queue, of.channels, nhwc::keep_running{by});
  nhwc::in_packs<T>(of.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    nhwc::apply<Width>(queue, x, y, of, by);
  });
}

template <class T>
void channels_last<T>::normalise_gradient(stream& queue, const T* x, const T* dy, T* dx,
                                          gradients mode, extent of, const normalisation& by,
                                          float* scale_gradient, float* offset_gradient,
                                          double* scratch) {
  nhwc::in_packs<T>(of.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    nhwc::add_columns<Width>(queue, of, nhwc::gradient_moments_term<T, Width>{x, dy, by}, scratch,
                             nhwc::keep_gradients{scale_gradient, offset_gradient});
    nhwc::in_mode(mode, [&]<gradients Mode>(nhwc::constant<Mode>) {
      device::for_each(queue, of.size() / Width,
                       nhwc::normalise_gradient_pack<T, Width, Mode>{
                           x, dy, dx, of.channels / Width, static_cast<float>(of.rows), by,
                           scale_gradient, offset_gradient});
    });
  });
}

template <class T>
void channels_last<T>::pool(stream& queue, const max_pool& form, const T* x, shape in, T* y,
                            shape out, std::uint8_t* winners, std::size_t images) {
  device::for_each(queue, images * out.size(), nhwc::pool_one<T>{form, x, in, y, out, winners});
}

template <class T>
void channels_last<T>::pool_gradient(stream& queue, const max_pool& form, T* dx, shape in,
                                     gradients mode, const T* dy, shape out,
                                     const std::uint8_t* winners, std::size_t images) {
  nhwc::in_mode(mode, [&]<gradients Mode>(nhwc::constant<Mode>) {
    device::for_each(queue, images * in.size(),
                     nhwc::pool_gradient_of_one<T, Mode>{form, dx, in, dy, out, winners});
  });
}

template <class T>
void channels_last<T>::average(stream& queue, const T* x, shape in, T* y, std::size_t images) {
  device::for_each(queue, images * in.channels,
                   nhwc::average_one<T>{x, y, in.height * in.width, in.channels});
}

template <class T>
void channels_last<T>::average_gradient(stream& queue, T* dx, shape in, gradients mode, const T* dy,
                                        std::size_t images) {
  nhwc::in_mode(mode, [&]<gradients Mode>(nhwc::constant<Mode>) {
    device::for_each(
        queue, images * in.size(),
        nhwc::average_gradient_of_one<T, Mode>{dx, dy, in.height * in.width, in.channels});
  });
}

template <class T>
void channels_last<T>::take_subsample(stream& queue, std::size_t stride, const T* x, shape in, T* y,
                                      shape out, std::size_t images) {
  device::for_each(queue, images * out.size(),
                   nhwc::subsample_one<T>{static_cast<std::uint32_t>(stride), x, in, y, out});
}

template <class T>
void channels_last<T>::subsample_gradient(stream& queue, std::size_t stride, T* dx, shape in,
                                          gradients mode, const T* dy, shape out,
                                          std::size_t images) {
  nhwc::in_mode(mode, [&]<gradients Mode>(nhwc::constant<Mode>) {
    device::for_each(queue, images * in.size(),
                     nhwc::subsample_gradient_of_one<T, Mode>{static_cast<std::uint32_t>(stride),
                                                              dx, in, dy, out});
  });
}

}  // namespace models
