#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/kernels/elements.hpp"

namespace tutti::kernels {

namespace element {

struct add_nesterov {
  float momentum;
  TUTTI_HD void operator()(float& m, float& direction, float g) const {
    m = g + product(momentum, m);
    direction = g + product(momentum, m);
  }
};

}  // namespace element

/// m = g + momentum * m, then direction = g + momentum * m, each product and sum rounded.
template <host_queue Queue>
void add_nesterov(Queue& queue, std::span<float> m, std::span<float> direction,
                  std::span<const float> g, float momentum) {
  queue.run([=] {
    for (std::size_t i = 0; i < m.size(); ++i) {
      element::add_nesterov{momentum}(m[i], direction[i], g[i]);
    }
  });
}
void add_nesterov(cuda::stream& queue, std::span<float> m, std::span<float> direction,
                  std::span<const float> g, float momentum);

}  // namespace tutti::kernels
