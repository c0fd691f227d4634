#pragma once

#include "models/cuda/channels_last.hpp"
#include "models/cuda/nhwc/batch_normalisation.cuh"
#include "models/cuda/nhwc/columns.cuh"
#include "models/cuda/nhwc/elements.cuh"
#include "models/cuda/nhwc/windows.cuh"
#include "tutti/kernels/cuda/each.cuh"

// The definitions, made of functors that each do one thread's part, so that the same text compiles
// for a device and for a host that stands in for one.
namespace models {

template <class T>
std::size_t channels_last<T>::room(std::size_t channels) {
  return nhwc::most_sums * std::max(nhwc::most_threads * nhwc::most_together, channels);
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
  nhwc::in_packs(of.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    device::for_each(queue, of.size() / Width,
                     nhwc::add_bias_to<T, Width>{x, bias, of.channels / Width});
  });
}

template <class T>
void channels_last<T>::bias_gradient(stream& queue, const T* dy, extent of, float* gradient,
                                     double* scratch) {
  nhwc::in_packs(of.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    nhwc::add_columns<Width>(queue, of, nhwc::sum_term<T, Width>{dy}, scratch,
                             nhwc::keep_sum{gradient});
  });
}

template <class T>
void channels_last<T>::normalise(stream& queue, const T* x, T* y, extent of,
                                 const normalisation& by, double* scratch) {
  nhwc::in_packs(of.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    nhwc::add_columns<Width>(queue, of, nhwc::moments_term<T, Width>{x}, scratch,
                             nhwc::keep_moments{by, static_cast<double>(of.rows)});
    nhwc::apply<Width>(queue, x, y, of, by);
  });
}

template <class T>
void channels_last<T>::normalise_by_running(stream& queue, const T* x, T* y, extent of,
                                            const normalisation& by) {
  device::for_each(queue, of.channels, nhwc::keep_running{by});
  nhwc::in_packs(of.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    nhwc::apply<Width>(queue, x, y, of, by);
  });
}

template <class T>
void channels_last<T>::normalise_gradient(stream& queue, const T* x, const T* dy, T* dx,
                                          gradients mode, extent of, const normalisation& by,
                                          float* scale_gradient, float* offset_gradient,
                                          double* scratch) {
  nhwc::in_packs(of.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    nhwc::add_columns<Width>(queue, of, nhwc::gradient_moments_term<T, Width>{x, dy, by}, scratch,
                             nhwc::keep_gradients{scale_gradient, offset_gradient});
    nhwc::in_mode(mode, [&]<gradients Mode>(nhwc::constant<Mode>) {
      const std::size_t packs = of.channels / Width;
      const std::size_t lanes = nhwc::lanes_of(of);
      device::for_each(queue, lanes * packs,
                       nhwc::normalise_gradient_rows<T, Width, Mode>{
                           x, dy, dx, of.rows, packs, lanes, by, scale_gradient, offset_gradient});
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
  nhwc::in_packs(in.channels, [&]<int Width>(std::integral_constant<int, Width>) {
    nhwc::in_mode(mode, [&]<gradients Mode>(nhwc::constant<Mode>) {
      device::for_each(queue, images * in.size() / Width,
                       nhwc::pool_gradient_pack<T, Width, Mode>{form, dx, in, dy, out, winners});
    });
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
void channels_last<T>::concatenate(stream& queue, const T* first, std::size_t first_channels,
                                   const T* second, std::size_t second_channels, T* both,
                                   std::size_t pixels) {
  device::for_each(queue, pixels * (first_channels + second_channels),
                   nhwc::concatenated_one<T>{first, first_channels, second, second_channels, both});
}

template <class T>
void channels_last<T>::concatenate_gradient(stream& queue, T* dx, std::size_t channels,
                                            gradients mode, const T* dy, std::size_t all_channels,
                                            std::size_t from, std::size_t pixels) {
  nhwc::in_mode(mode, [&]<gradients Mode>(nhwc::constant<Mode>) {
    device::for_each(
        queue, pixels * channels,
        nhwc::concatenated_gradient_of_one<T, Mode>{dx, channels, dy, all_channels, from});
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
