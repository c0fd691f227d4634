#pragma once

#include <cstddef>
#include <type_traits>

#include "models/cuda/channels_last.hpp"
#include "tutti/base/host_device.hpp"
#include "tutti/kernels/cast.hpp"

// Single elements of an activation: how they are read and written, where they lie, and the layers
// that compute each output from one element.
namespace models::nhwc {

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

/// Returns the position, in the layout of planes, of element `i` of the layout of pixels.
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

template <class T>
struct concatenated_one {
  const T* first;
  std::size_t first_channels;
  const T* second;
  std::size_t second_channels;
  T* both;

  TUTTI_HD void operator()(std::size_t i) const {
    const std::size_t channels = first_channels + second_channels;
    const std::size_t pixel = i / channels;
    const std::size_t channel = i - pixel * channels;
    both[i] = channel < first_channels ? first[pixel * first_channels + channel]
                                       : second[pixel * second_channels + channel - first_channels];
  }
};

template <class T, gradients Mode>
struct concatenated_gradient_of_one {
  T* dx;
  std::size_t channels;
  const T* dy;
  std::size_t all_channels;
  std::size_t from;

  TUTTI_HD void operator()(std::size_t i) const {
    const std::size_t pixel = i / channels;
    put<Mode>(dx[i], widened(dy[pixel * all_channels + from + i - pixel * channels]));
  }
};

}  // namespace models::nhwc
