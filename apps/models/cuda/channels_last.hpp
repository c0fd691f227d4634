#pragma once

#include <cstddef>
#include <cstdint>

#include "models/declaration.hpp"
#include "tutti/base/cuda/stream.hpp"

namespace models {

using tutti::cuda::stream;

/// The bits of a bfloat16.
using brain = std::uint16_t;

/// An activation as a matrix: images x height x width by channels.
struct extent {
  std::size_t rows{};
  std::size_t channels{};

  std::size_t size() const { return rows * channels; }
};

/// A batch_norm's arrays, an element a channel.
struct normalisation {
  const float* scale{};
  const float* offset{};
  float* running_mean{};
  float* running_variance{};
  float* mean{};               ///< of the batch
  float* inverse_deviation{};  ///< likewise
};

/// What layers on a device do beside convolutions and matrix products. Activations lie pixel by
/// pixel, the channels of each together (NHWC). `T` is float or `brain`. Everything is enqueued,
/// allocates nothing and gives the same bits each time. Sums are added in double, the rest is
/// computed in fp32. Throws tutti::error with the device's own words. Cost, unless said otherwise:
/// each array that is named is read or written once.
template <class T>
struct channels_last {
  /// Doubles to scribble on that any of these functions asks for.
  static std::size_t room(std::size_t channels);

  /// `planes` holds, sample by sample, `channels` planes of `cells` values each.
  static void from_planes(stream&, const float* planes, T* pixels, std::size_t samples,
                          std::size_t channels, std::size_t cells);
  static void to_planes(stream&, const T* pixels, float* planes, std::size_t samples,
                        std::size_t channels, std::size_t cells);

  static void add(stream&, T* into, const T* from, std::size_t n);

  static void rectify(stream&, T* x, std::size_t n);
  /// Clears `gradient` where the rectifier yielded no more than 0.
  static void rectify_gradient(stream&, const T* y, T* gradient, std::size_t n);

  static void add_bias(stream&, T* x, extent of, const float* bias);
  static void bias_gradient(stream&, const T* dy, extent of, float* gradient, double* scratch);

  /// By the batch's statistics, which move the running ones. Reads `x` twice.
  static void normalise(stream&, const T* x, T* y, extent of, const normalisation& by,
                        double* scratch);
  /// By the running statistics, which become the batch's.
  static void normalise_by_running(stream&, const T* x, T* y, extent of, const normalisation& by);
  /// Reads `x` and `dy` twice.
  static void normalise_gradient(stream&, const T* x, const T* dy, T* dx, gradients mode, extent of,
                                 const normalisation& by, float* scale_gradient,
                                 float* offset_gradient, double* scratch);

  /// `winners` remembers the place in its square of each output's value.
  static void pool(stream&, const max_pool& form, const T* x, shape in, T* y, shape out,
                   std::uint8_t* winners, std::size_t images);
  static void pool_gradient(stream&, const max_pool& form, T* dx, shape in, gradients mode,
                            const T* dy, shape out, const std::uint8_t* winners,
                            std::size_t images);

  static void average(stream&, const T* x, shape in, T* y, std::size_t images);
  static void average_gradient(stream&, T* dx, shape in, gradients mode, const T* dy,
                               std::size_t images);

  /// Each pixel's first channels are those of `first`, the others those of `second`.
  static void concatenate(stream&, const T* first, std::size_t first_channels, const T* second,
                          std::size_t second_channels, T* both, std::size_t pixels);
  /// `dx` gets the channels of `dy` from `from` on.
  static void concatenate_gradient(stream&, T* dx, std::size_t channels, gradients mode,
                                   const T* dy, std::size_t all_channels, std::size_t from,
                                   std::size_t pixels);

  static void take_subsample(stream&, std::size_t stride, const T* x, shape in, T* y, shape out,
                             std::size_t images);
  static void subsample_gradient(stream&, std::size_t stride, T* dx, shape in, gradients mode,
                                 const T* dy, shape out, std::size_t images);
};

}  // namespace models
