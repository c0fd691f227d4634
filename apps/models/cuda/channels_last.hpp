#pragma once

#include <cstddef>
#include <cstdint>

#include "models/declaration.hpp"
#include "tutti/base/cuda/stream.hpp"

namespace models {

using tutti::cuda::stream;

/// The bits of a bfloat16.
using brain = std::uint16_t;

/// An activation as a matrix: a row for each pixel of each image, a column for each channel.
struct extent {
  std::size_t rows{};
  std::size_t channels{};

  std::size_t size() const { return rows * channels; }
};

/// The arrays of a batch_norm, with an element for each channel.
struct normalisation {
  const float* scale{};
  const float* offset{};
  float* running_mean{};
  float* running_variance{};
  float* mean{};               ///< of the batch last normalised
  float* inverse_deviation{};  ///< likewise
};

/// The layers on a device other than convolutions and matrix products. Activations lie pixel by
/// pixel, with the channels of each pixel together (NHWC). `T` is float or `brain`. Every function
/// only enqueues work, allocates nothing and gives the same bits each time. Sums are accumulated in
/// double, the rest is computed in fp32. Throws tutti::error with the device's message. Cost,
/// unless stated otherwise: each array argument is read or written once.
template <class T>
struct channels_last {
  /// Returns how many doubles of scratch memory any of these functions needs.
  static std::size_t room(std::size_t channels);

  /// Converts between layouts. `planes` holds, sample by sample, `channels` planes of `cells`
  /// values each.
  static void from_planes(stream&, const float* planes, T* pixels, std::size_t samples,
                          std::size_t channels, std::size_t cells);
  static void to_planes(stream&, const T* pixels, float* planes, std::size_t samples,
                        std::size_t channels, std::size_t cells);

  static void add(stream&, T* into, const T* from, std::size_t n);

  static void rectify(stream&, T* x, std::size_t n);
  /// Clears `gradient` where the rectifier's output is not above 0.
  static void rectify_gradient(stream&, const T* y, T* gradient, std::size_t n);

  static void add_bias(stream&, T* x, extent of, const float* bias);
  static void bias_gradient(stream&, const T* dy, extent of, float* gradient, double* scratch);

  /// Normalises by the batch's statistics and updates the running ones. Reads `x` twice.
  static void normalise(stream&, const T* x, T* y, extent of, const normalisation& by,
                        double* scratch);
  /// Normalises by the running statistics, which take the place of the batch's.
  static void normalise_by_running(stream&, const T* x, T* y, extent of, const normalisation& by);
  /// Writes the gradients by the input, the scale and the offset. Reads `x` and `dy` twice.
  static void normalise_gradient(stream&, const T* x, const T* dy, T* dx, gradients mode, extent of,
                                 const normalisation& by, float* scale_gradient,
                                 float* offset_gradient, double* scratch);

  /// `winners` records, for each output, the position of its value in the window.
  static void pool(stream&, const max_pool& form, const T* x, shape in, T* y, shape out,
                   std::uint8_t* winners, std::size_t images);
  static void pool_gradient(stream&, const max_pool& form, T* dx, shape in, gradients mode,
                            const T* dy, shape out, const std::uint8_t* winners,
                            std::size_t images);

  static void average(stream&, const T* x, shape in, T* y, std::size_t images);
  static void average_gradient(stream&, T* dx, shape in, gradients mode, const T* dy,
                               std::size_t images);

  /// Gives each pixel of `both` the channels of `first`, followed by those of `second`.
  static void concatenate(stream&, const T* first, std::size_t first_channels, const T* second,
                          std::size_t second_channels, T* both, std::size_t pixels);
  /// Gives `dx` the channels of `dy` from number `from` on.
  static void concatenate_gradient(stream&, T* dx, std::size_t channels, gradients mode,
                                   const T* dy, std::size_t all_channels, std::size_t from,
                                   std::size_t pixels);

  static void take_subsample(stream&, std::size_t stride, const T* x, shape in, T* y, shape out,
                             std::size_t images);
  static void subsample_gradient(stream&, std::size_t stride, T* dx, shape in, gradients mode,
                                 const T* dy, shape out, std::size_t images);
};

}  // namespace models
