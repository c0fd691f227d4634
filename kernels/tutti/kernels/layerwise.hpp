#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/adam.hpp"
#include "tutti/kernels/elements.hpp"

// Optimizer steps whose length depends on the norms of a whole tensor, which are added up in double
// in a fixed order. They run only on hosts.
namespace tutti::kernels {

/// The constants of a step of layer-wise SGD, whose length is a share (`trust`) of the tensor's own
/// norm.
struct layerwise_descent {
  float learning_rate{};
  float momentum{};
  float weight_decay{};
  float trust{};
};

namespace detail {

inline double norm(std::span<const float> of) {
  return std::sqrt(sum_in_lanes(of.size(), [=](std::size_t i) {
    return static_cast<double>(of[i]) * static_cast<double>(of[i]);
  }));
}

/// The direction of a layer-wise Adam step: Adam's step without its rate, plus weight_decay times
/// the parameter.
struct adam_direction {
  adam_step values;
  float weight_decay;

  float operator()(float x, float m, float v) const {
    return element::adam_change(values, m, v) + element::product(weight_decay, x);
  }
};

}  // namespace detail

/// Takes a step of SGD whose length depends on the tensor's norm. With r = trust * |x| / (|g| +
/// weight_decay * |x|), or r = 1 if one of the norms is 0:
///   m = momentum * m + learning_rate * r * (g + weight_decay * x)
///   x -= m
template <host_queue Queue>
void descend_layerwise(Queue& queue, std::span<float> x, std::span<float> m,
                       std::span<const float> g, const layerwise_descent& values) {
  queue.run([=] {
    const double length = detail::norm(x);
    const double slope = detail::norm(g);
    const double ratio = length > 0 && slope > 0
                             ? static_cast<double>(values.trust) * length /
                                   (slope + static_cast<double>(values.weight_decay) * length)
                             : 1;
    const auto rate = static_cast<float>(static_cast<double>(values.learning_rate) * ratio);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float d = g[i] + element::product(values.weight_decay, x[i]);
      m[i] = element::product(values.momentum, m[i]) + element::product(rate, d);
      x[i] -= m[i];
    }
  });
}

/// Takes a step of Adam whose length depends on the tensor's norm. The moments change as in `adam`,
/// and then
///   u = m * rate / (sqrt(v) * root_factor + epsilon) + weight_decay * x
///   x -= learning_rate * |x| / |u| * u, or learning_rate * u if one of the norms is 0.
/// `moments.rate` is only the first moment's bias correction.
template <host_queue Queue>
void adam_layerwise(Queue& queue, std::span<float> x, std::span<float> m, std::span<float> v,
                    std::span<const float> g, const adam_step& moments, float learning_rate,
                    float weight_decay) {
  queue.run([=] {
    for (std::size_t i = 0; i < x.size(); ++i) {
      m[i] = element::product(moments.keep, m[i]) + element::product(moments.take, g[i]);
      v[i] = element::product(moments.keep_squares, v[i]) +
             element::product(moments.take_squares, element::product(g[i], g[i]));
    }
    const detail::adam_direction along{moments, weight_decay};
    const double length = detail::norm(x);
    const double slope = std::sqrt(sum_in_lanes(x.size(), [=](std::size_t i) {
      const auto u = static_cast<double>(along(x[i], m[i], v[i]));
      return u * u;
    }));
    const double ratio = length > 0 && slope > 0 ? length / slope : 1;
    const auto rate = static_cast<float>(static_cast<double>(learning_rate) * ratio);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] -= element::product(rate, along(x[i], m[i], v[i]));
    }
  });
}

}  // namespace tutti::kernels
