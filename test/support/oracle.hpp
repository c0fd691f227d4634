#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/extent.hpp"
#include "tutti/base/tensor.hpp"

// Reference for training in one process and plain loops. It calls no code of tutti's.
namespace tutti::test {

/// Tensors of no elements, one, an odd number, and more than any buffer on the way holds.
inline const std::vector<std::size_t>& tensor_sizes() {
  static const std::vector<std::size_t> sizes{37, 1, long_tensor, 0, 513, 8};
  return sizes;
}

inline std::vector<arena::declaration> declarations() {
  std::vector<arena::declaration> all;
  for (const std::size_t each : tensor_sizes()) {
    all.push_back({"tensor" + std::to_string(all.size()), each});
  }
  return all;
}

inline std::size_t total_elements() {
  std::size_t sum = 0;
  for (const std::size_t each : tensor_sizes()) {
    sum += each;
  }
  return sum;
}

/// Returns a worker's gradient, which differs in every element and step, with magnitudes over
/// several binades. `element` counts in the backward order, in which the arena lays tensors out.
inline float gradient(int worker, int step, std::size_t element) {
  std::uint32_t bits = static_cast<std::uint32_t>(worker) * 0x9e3779b9u +
                       static_cast<std::uint32_t>(step) * 0x85ebca6bu +
                       static_cast<std::uint32_t>(element) * 0xc2b2ae35u;
  bits ^= bits >> 15;
  bits *= 0x2c1b3c6du;
  bits ^= bits >> 12;
  const float unit = static_cast<float>(bits >> 8) / 16777216.0f - 0.5f;
  return unit * static_cast<float>(1u << (bits & 7u));
}

/// Returns gradients of few digits, so that sums are exact in any order.
inline float gradient_of_few_digits(int worker, int step, std::size_t element) {
  return static_cast<float>((worker + 1) * 37 + step * 11 + static_cast<int>(element) * 7 % 101) /
             64.0f -
         2.0f;
}

using gradient_function = float (*)(int worker, int step, std::size_t element);

inline float initial(std::size_t element) { return static_cast<float>(element % 17) / 7.0f; }

struct sgd_values {
  float learning_rate = 0.1f;
  float momentum = 0.9f;
  float weight_decay = 0.01f;
};

/// Returns the parameters after `steps` steps of momentum SGD on `mean(step, element)`. Every
/// operation is rounded to float.
template <class Mean>
std::vector<float> descended(int steps, sgd_values set, Mean mean,
                             std::size_t n = total_elements()) {
  std::vector<float> x(n);
  std::vector<float> m(n, 0.0f);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = initial(i);
  }
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < n; ++i) {
      m[i] = set.momentum * m[i] + (mean(step, i) + set.weight_decay * x[i]);
      x[i] -= set.learning_rate * m[i];
    }
  }
  return x;
}

/// Returns the parameters that `workers` workers train: gradients are added in rank order and
/// multiplied once for the mean.
inline std::vector<float> trained(int workers, int steps, sgd_values set = {},
                                  gradient_function given = gradient,
                                  std::size_t n = total_elements()) {
  const auto mean = [&](int step, std::size_t i) {
    float sum = given(0, step, i);
    for (int worker = 1; worker < workers; ++worker) {
      sum += given(worker, step, i);
    }
    return workers == 1 ? sum : sum * (1.0f / static_cast<float>(workers));
  };
  return descended(steps, set, mean, n);
}

}  // namespace tutti::test
