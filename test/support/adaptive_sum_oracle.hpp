#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "support/oracle.hpp"

// Reference for adaptive summation (Adasum) in one process and plain loops. It calls no code of
// tutti's.
namespace tutti::test {

/// Returns the adaptive sum of two ranks' vectors, each of one tensor. A vector whose squared norm
/// is less than the square root of the least normal double counts as zero.
template <class Value>
std::vector<Value> adaptive_sum_of_two(const std::vector<Value>& a, const std::vector<Value>& b) {
  double dot = 0;
  double square_a = 0;
  double square_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += double{a[i]} * double{b[i]};
    square_a += double{a[i]} * double{a[i]};
    square_b += double{b[i]} * double{b[i]};
  }
  const double least = std::sqrt(std::ldexp(1.0, -1022));
  const double of_a = square_a < least ? 1 : 1 - dot / (2 * square_a);
  const double of_b = square_b < least ? 1 : 1 - dot / (2 * square_b);
  std::vector<Value> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum[i] = static_cast<Value>(of_a * double{a[i]} + of_b * double{b[i]});
  }
  return sum;
}

/// Returns the adaptive sum of all ranks' vectors. With P the largest power of two that is not
/// above the number of ranks, each rank from P on is first added to the rank that is P below it.
/// Then neighbours are added, then neighbouring pairs, and so on.
template <class Value>
std::vector<Value> adaptive_sum(std::vector<std::vector<Value>> all) {
  const std::size_t core = std::bit_floor(all.size());
  for (std::size_t rank = core; rank < all.size(); ++rank) {
    all[rank - core] = adaptive_sum_of_two(all[rank - core], all[rank]);
  }
  for (std::size_t left = core; left > 1; left /= 2) {
    for (std::size_t i = 0; i < left / 2; ++i) {
      all[i] = adaptive_sum_of_two(all[2 * i], all[2 * i + 1]);
    }
  }
  return all[0];
}

/// Returns the adaptive sum of vectors of the whole model, tensor by tensor, in the backward order
/// in which the arena lays tensors out.
inline std::vector<float> adaptive_sum_of_models(const std::vector<std::vector<float>>& all) {
  std::vector<float> sum;
  const std::vector<std::size_t>& forward = tensor_sizes();
  for (std::size_t id = forward.size(); id-- > 0;) {
    std::vector<std::vector<float>> of_tensor;
    for (const auto& each : all) {
      const auto its = std::span(each).subspan(sum.size(), forward[id]);
      of_tensor.emplace_back(its.begin(), its.end());
    }
    const auto more = adaptive_sum(of_tensor);
    sum.insert(sum.end(), more.begin(), more.end());
  }
  return sum;
}

/// Returns a worker's gradient of the whole model.
inline std::vector<float> whole_gradient(int worker, int step, gradient_function given) {
  std::vector<float> whole(total_elements());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    whole[i] = given(worker, step, i);
  }
  return whole;
}

/// Returns the parameters after `steps` steps of momentum SGD on adaptive sums of gradients. Every
/// operation on parameters is rounded to float.
inline std::vector<float> of_adaptive_sums(int workers, int steps, gradient_function given) {
  std::vector<std::vector<float>> sums;
  for (int step = 0; step < steps; ++step) {
    std::vector<std::vector<float>> all;
    for (int worker = 0; worker < workers; ++worker) {
      all.push_back(whole_gradient(worker, step, given));
    }
    sums.push_back(adaptive_sum_of_models(all));
  }
  return descended(steps, {}, [&sums](int step, std::size_t i) {
    return sums[static_cast<std::size_t>(step)][i];
  });
}

/// Returns the parameters after `steps` steps in which every worker takes a step of its own from
/// the common parameters, by its own gradient and momenta, and the parameters then move by the
/// adaptive sum of the workers' steps.
inline std::vector<float> of_adaptive_steps(int workers, int steps, gradient_function given) {
  const std::size_t n = total_elements();
  const sgd_values set;
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = initial(i);
  }
  std::vector<std::vector<float>> momenta(static_cast<std::size_t>(workers), std::vector<float>(n));
  for (int step = 0; step < steps; ++step) {
    std::vector<std::vector<float>> moved;
    for (int worker = 0; worker < workers; ++worker) {
      std::vector<float>& m = momenta[static_cast<std::size_t>(worker)];
      std::vector<float> by(n);
      for (std::size_t i = 0; i < n; ++i) {
        m[i] = set.momentum * m[i] + (given(worker, step, i) + set.weight_decay * x[i]);
        const float stepped = x[i] - set.learning_rate * m[i];
        by[i] = stepped - x[i];
      }
      moved.push_back(by);
    }
    const std::vector<float> sum = adaptive_sum_of_models(moved);
    for (std::size_t i = 0; i < n; ++i) {
      x[i] += sum[i];
    }
  }
  return x;
}

}  // namespace tutti::test
