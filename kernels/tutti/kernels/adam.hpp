#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

/// The constants of one step of Adam, the same for every element.
struct adam_step {
  float keep{};             ///< beta1: share of the first moment that stays
  float take{};             ///< 1 - beta1: share of the gradient that it takes in
  float keep_squares{};     ///< beta2: share of the second moment that stays
  float take_squares{};     ///< 1 - beta2: share of the squared gradient that it takes in
  float rate{};             ///< factor of the first moment: learning rate and bias correction
  float root_factor{};      ///< factor of the second moment's root: its bias correction
  float epsilon{};          ///< added to the corrected root
  float added_parameter{};  ///< share of the parameter that is added to its gradient
  float kept_parameter{1};  ///< share of the parameter that stays, whatever its gradient
};

namespace element {

TUTTI_HD inline float root(float value) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(value);
#else
  // A builtin, because <cmath> takes compilers longer to read than all optimizers together. Loops
  // over it are vectorised only under -fno-math-errno, which tutti's targets pass: it says that
  // nobody reads errno.
  return __builtin_sqrtf(value);
#endif
}
TUTTI_HD inline float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// Returns what a step subtracts from a parameter: rate * m / (sqrt(v) * root_factor + epsilon).
TUTTI_HD inline float adam_change(const adam_step& values, float m, float v) {
  return product(values.rate, quotient(m, product(root(v), values.root_factor) + values.epsilon));
}

struct adam : adam_step {
  TUTTI_HD void operator()(float& x, float& m, float& v, float g) const {
    g += product(added_parameter, x);
    m = product(keep, m) + product(take, g);
    v = product(keep_squares, v) + product(take_squares, product(g, g));
    x = product(kept_parameter, x) - adam_change(*this, m, v);
  }
};

struct adam_along : adam_step {
  TUTTI_HD void operator()(float& x, float m, float v) const {
    x = product(kept_parameter, x) - adam_change(*this, m, v);
  }
};

}  // namespace element

/// Takes one step of Adam, with g' = g + added_parameter * x:
///   m = keep * m + take * g'
///   v = keep_squares * v + take_squares * g'^2
///   x = kept_parameter * x - rate * m / (sqrt(v) * root_factor + epsilon)
/// Each product, sum, quotient and root is rounded.
template <host_queue Queue>
void adam(Queue& queue, std::span<float> x, std::span<float> m, std::span<float> v,
          std::span<const float> g, const adam_step& values) {
  queue.run([=] {
    widest([=] {
      const element::adam step{values};
      for (std::size_t i = 0; i < x.size(); ++i) {
        step(x[i], m[i], v[i], g[i]);
      }
    });
  });
}
void adam(cuda::stream& queue, std::span<float> x, std::span<float> m, std::span<float> v,
          std::span<const float> g, const adam_step& values);

/// x = kept_parameter * x - rate * m / (sqrt(v) * root_factor + epsilon), leaving both moments as
/// they are.
template <host_queue Queue>
void adam_along(Queue& queue, std::span<float> x, std::span<const float> m,
                std::span<const float> v, const adam_step& values) {
  queue.run([=] {
    widest([=] {
      const element::adam_along step{values};
      for (std::size_t i = 0; i < x.size(); ++i) {
        step(x[i], m[i], v[i]);
      }
    });
  });
}
void adam_along(cuda::stream& queue, std::span<float> x, std::span<const float> m,
                std::span<const float> v, const adam_step& values);

}  // namespace tutti::kernels
