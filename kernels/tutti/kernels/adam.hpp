#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

/// One step of Adam on every element.
struct adam_step {
  float keep{};             ///< share of the first moment that stays: beta1
  float take{};             ///< share of the gradient that it takes in: 1 - beta1
  float keep_squares{};     ///< beta2, of the second moment
  float take_squares{};     ///< 1 - beta2
  float rate{};             ///< along the first moment: its bias correction is in it
  float root_factor{};      ///< of the second moment's root: its bias correction
  float epsilon{};          ///< added to that root
  float added_parameter{};  ///< share of the parameter that is added to its gradient
  float kept_parameter{1};  ///< share of the parameter that stays, whatever its gradient
};

namespace element {

TUTTI_HD inline float root(float value) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(value);
#else
  // Of <cmath>, which compilers read for longer than all optimizers, only this. Loops over it are
  // made of vectors where -fno-math-errno says that nobody looks at errno, as tutti's targets do.
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

/// The way that a parameter goes, `m` over the root of `v`.
TUTTI_HD inline float adam_way(const adam_step& values, float m, float v) {
  return product(values.rate, quotient(m, product(root(v), values.root_factor) + values.epsilon));
}

struct adam : adam_step {
  TUTTI_HD void operator()(float& x, float& m, float& v, float g) const {
    g += product(added_parameter, x);
    m = product(keep, m) + product(take, g);
    v = product(keep_squares, v) + product(take_squares, product(g, g));
    x = product(kept_parameter, x) - adam_way(*this, m, v);
  }
};

struct adam_along : adam_step {
  TUTTI_HD void operator()(float& x, float m, float v) const {
    x = product(kept_parameter, x) - adam_way(*this, m, v);
  }
};

}  // namespace element

/// With g' = g + added_parameter * x: m = keep * m + take * g',
/// v = keep_squares * v + take_squares * g'^2, and
/// x = kept_parameter * x - rate * m / (sqrt(v) * root_factor + epsilon). Each product, sum,
/// quotient and root is rounded.
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

/// x = kept_parameter * x - rate * m / (sqrt(v) * root_factor + epsilon), both moments as they are.
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
