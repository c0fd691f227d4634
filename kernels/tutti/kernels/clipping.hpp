#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

namespace element {

/// Computes the factor of find_clip_factor from the sum of squares. A millionth is added to the
/// norm, as PyTorch's clip_grad_norm_ and its followers do.
struct keep_clip_factor {
  float* factor;
  double scale;
  double bound;
  TUTTI_HD void operator()(double squares) const {
    const double wanted = bound / (std::sqrt(squares) / scale + 1e-6);
    *factor = wanted < 1 ? static_cast<float>(wanted) : 1.0f;
  }
};

struct blend_clipped {
  float keep;
  const float* factor;
  TUTTI_HD void operator()(float& into, float from) const {
    into = product(keep, into) + product(*factor, from);
  }
};

/// NaN stays NaN.
struct fade {
  float keep;
  float most;
  TUTTI_HD void operator()(float& data) const {
    const float kept = keep * data;
    data = kept > most ? most : kept < -most ? -most : kept;
  }
};

}  // namespace element

/// *factor becomes bound / (norm + 1e-6), or 1 if that is not below 1, where `norm` is the
/// Euclidean norm of `input` / scale. It is computed in double and rounded once. A device adds the
/// squares in an order of its own: the two factors are the same float or neighbours.
template <host_queue Queue>
void find_clip_factor(Queue& queue, std::span<const float> input, double scale, double bound,
                      float* factor) {
  queue.run([=] {
    widest([=] {
      const auto square = [=](std::size_t i) { return element::square{}(input[i]); };
      element::keep_clip_factor{factor, scale, bound}(sum_in_lanes(input.size(), square));
    });
  });
}
void find_clip_factor(cuda::stream& queue, std::span<const float> input, double scale, double bound,
                      float* factor);

/// into[i] = keep * into[i] + *factor * from[i], each product rounded. The factor is read when the
/// queue runs this.
template <host_queue Queue>
void blend_clipped(Queue& queue, std::span<float> into, std::span<const float> from, float keep,
                   const float* factor) {
  queue.run([=] {
    const element::blend_clipped step{keep, factor};
    for (std::size_t i = 0; i < into.size(); ++i) {
      step(into[i], from[i]);
    }
  });
}
void blend_clipped(cuda::stream& queue, std::span<float> into, std::span<const float> from,
                   float keep, const float* factor);

/// data[i] = keep * data[i], rounded, and limited to magnitudes of at most `most`.
template <host_queue Queue>
void fade(Queue& queue, std::span<float> data, float keep, float most) {
  queue.run([=] {
    const element::fade step{keep, most};
    for (float& each : data) {
      step(each);
    }
  });
}
void fade(cuda::stream& queue, std::span<float> data, float keep, float most);

}  // namespace tutti::kernels
