#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compression/low_rank_recurrence.hpp"
#include "support/oracle.hpp"

// Reference for training with PowerSGD for matrices, from step `start` on, and plain means for all
// other tensors, in double.
namespace tutti::test {

/// Matrices with vectors between them, kernels of four dimensions, an empty tensor, and tensors
/// without a shape.
inline const std::vector<arena::declaration>& shaped_declarations() {
  static const std::vector<arena::declaration> all{
      {"first", 16 * 10, {16, 10}},
      {"bias", 16, {16}},
      {"kernel", 8 * 9, {8, 1, 3, 3}},
      {"scale", 8},
      {"shift", 8},
      {"nothing", 0, {0, 4}},
      {"last", 33 * 9, {33, 9}},
      {"column", 21, {21, 1}},
  };
  return all;
}

inline bool is_matrix(const arena::declaration& tensor) {
  return tensor.shape.dimensions() > 1 && tensor.shape[0] > 1 && tensor.elements > tensor.shape[0];
}

struct low_rank_training {
  std::vector<double> parameters{};
  double bound{};                 ///< of each parameter's error
  std::uint64_t payload_bytes{};  ///< of one step
};

inline low_rank_training trained_in_low_rank(int workers, int steps, std::size_t rank,
                                             std::uint64_t seed, sgd_values set = {},
                                             int start = 0) {
  const auto& forward = shaped_declarations();
  std::size_t n = 0;
  for (const auto& each : forward) {
    n += each.elements;
  }
  low_rank_training made{std::vector<double>(n)};
  for (std::size_t i = 0; i < n; ++i) {
    made.parameters[i] = initial(i);
  }
  double largest = 0;
  std::size_t begin = 0;
  for (std::size_t tensor = forward.size(); tensor-- > 0;) {
    const auto& its = forward[tensor];
    const std::size_t rows = is_matrix(its) ? its.shape[0] : 1;
    const std::size_t columns = its.elements / rows;
    made.payload_bytes +=
        4 * (is_matrix(its) ? std::min({rank, rows, columns}) * (rows + columns) : its.elements);
    recurrence exact(workers, rows, columns, std::min({rank, rows, columns}), seed, tensor,
                     static_cast<std::uint64_t>(start));
    std::vector<double> momentum(its.elements);
    for (int step = 0; step < steps; ++step) {
      std::vector<std::vector<float>> gradients(static_cast<std::size_t>(workers));
      std::vector<double> mean(its.elements);
      for (int worker = 0; worker < workers; ++worker) {
        for (std::size_t i = 0; i < its.elements; ++i) {
          const float given = gradient(worker, step, begin + i);
          gradients[static_cast<std::size_t>(worker)].push_back(given);
          mean[i] += double{given} / workers;
        }
      }
      if (is_matrix(its) && step >= start) {
        mean = exact.step(gradients);
        for (const auto& input : exact.inputs) {
          largest = std::max(largest, norm(input));
        }
      }
      for (std::size_t i = 0; i < its.elements; ++i) {
        double& x = made.parameters[begin + i];
        momentum[i] = double{set.momentum} * momentum[i] + (mean[i] + double{set.weight_decay} * x);
        x -= double{set.learning_rate} * momentum[i];
      }
    }
    begin += its.elements;
  }
  made.bound = 1e-5 * largest * steps;
  return made;
}

}  // namespace tutti::test
