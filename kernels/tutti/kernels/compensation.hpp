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

// In the loops below every operation is rounded to a float, as in arithmetic.hpp.

/// g[i] += lambda * g[i]^2 * (now[i] - read[i]). To first order this makes a gradient that was
/// computed at parameters `read` the gradient at parameters `now`, with lambda times its square in
/// place of the Hessian.
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

/// Sets mean_square[i] to keep * mean_square[i] + take * g[i]^2, and then compensates as above,
/// with lambda / sqrt(mean_square[i] + 1e-7) in place of lambda.
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
