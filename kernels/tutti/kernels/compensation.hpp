#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/adam.hpp"
#include "tutti/kernels/elements.hpp"

namespace tutti::kernels {

namespace element {

struct compensate {
  float lambda;
  TUTTI_HD void operator()(float& g, float now, float read) const {
    g += product(product(lambda, product(g, g)), now - read);
  }
};

struct compensate_adaptively {
  float lambda;
  float keep;
  float take;
  TUTTI_HD void operator()(float& g, float& mean_square, float now, float read) const {
    const float square = product(g, g);
    mean_square = product(keep, mean_square) + product(take, square);
    const float share = quotient(lambda, root(mean_square + 1e-7f));
    g += product(product(share, square), now - read);
  }
};

}  // namespace element

// Every operation is rounded to a float, as in arithmetic.hpp.

/// g[i] += lambda * g[i]^2 * (now[i] - read[i]): what a gradient would have been at parameters
/// `now`, to first order, when it was computed at `read` and its square stands for the Hessian.
template <host_queue Queue>
void compensate(Queue& queue, std::span<float> g, std::span<const float> now,
                std::span<const float> read, float lambda) {
  queue.run([=] {
    for (std::size_t i = 0; i < g.size(); ++i) {
      element::compensate{lambda}(g[i], now[i], read[i]);
    }
  });
}
void compensate(cuda::stream& queue, std::span<float> g, std::span<const float> now,
                std::span<const float> read, float lambda);

/// Compensates by lambda / sqrt(mean_square[i] + 1e-7), once mean_square[i] has become
/// keep * mean_square[i] + take * g[i]^2.
template <host_queue Queue>
void compensate_adaptively(Queue& queue, std::span<float> g, std::span<float> mean_square,
                           std::span<const float> now, std::span<const float> read, float lambda,
                           float keep, float take) {
  queue.run([=] {
    for (std::size_t i = 0; i < g.size(); ++i) {
      element::compensate_adaptively{lambda, keep, take}(g[i], mean_square[i], now[i], read[i]);
    }
  });
}
void compensate_adaptively(cuda::stream& queue, std::span<float> g, std::span<float> mean_square,
                           std::span<const float> now, std::span<const float> read, float lambda,
                           float keep, float take);

}  // namespace tutti::kernels
