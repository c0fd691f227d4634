#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/kernels/elements.hpp"

namespace tutti::kernels {

/// The constants of a step of SGD, with momentum and weight decay.
struct descent {
  float learning_rate{};
  float momentum{};
  float weight_decay{};
};

namespace element {

struct descend : descent {
  TUTTI_HD void operator()(float& x, float g) const {
    x -= product(learning_rate, g + product(weight_decay, x));
  }
};

struct descend_with_momentum : descent {
  TUTTI_HD void operator()(float& x, float& m, float g) const {
    m = product(momentum, m) + (g + product(weight_decay, x));
    x -= product(learning_rate, m);
  }
};

struct descend_with_nesterov : descent {
  TUTTI_HD void operator()(float& x, float& m, float g) const {
    const float d = g + product(weight_decay, x);
    m = product(momentum, m) + d;
    x -= product(learning_rate, d + product(momentum, m));
  }
};

}  // namespace element

/// x -= learning_rate * (g + weight_decay * x), each product and sum rounded. `momentum` is
/// ignored.
template <host_queue Queue>
void descend(Queue& queue, std::span<float> x, std::span<const float> g, descent values) {
  queue.run([=] {
    for (std::size_t i = 0; i < x.size(); ++i) {
      element::descend{values}(x[i], g[i]);
    }
  });
}
void descend(cuda::stream& queue, std::span<float> x, std::span<const float> g, descent values);

/// m = momentum * m + (g + weight_decay * x), then x -= learning_rate * m.
template <host_queue Queue>
void descend_with_momentum(Queue& queue, std::span<float> x, std::span<float> m,
                           std::span<const float> g, descent values) {
  queue.run([=] {
    for (std::size_t i = 0; i < x.size(); ++i) {
      element::descend_with_momentum{values}(x[i], m[i], g[i]);
    }
  });
}
void descend_with_momentum(cuda::stream& queue, std::span<float> x, std::span<float> m,
                           std::span<const float> g, descent values);

/// With d = g + weight_decay * x: m = momentum * m + d, then
/// x -= learning_rate * (d + momentum * m).
template <host_queue Queue>
void descend_with_nesterov(Queue& queue, std::span<float> x, std::span<float> m,
                           std::span<const float> g, descent values) {
  queue.run([=] {
    for (std::size_t i = 0; i < x.size(); ++i) {
      element::descend_with_nesterov{values}(x[i], m[i], g[i]);
    }
  });
}
void descend_with_nesterov(cuda::stream& queue, std::span<float> x, std::span<float> m,
                           std::span<const float> g, descent values);

}  // namespace tutti::kernels
