#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/kernels/counted_random.hpp"

namespace tutti::test {

inline double norm(std::span<const double> of) {
  double squares = 0;
  for (const double each : of) {
    squares += each * each;
  }
  return std::sqrt(squares);
}

/// PowerSGD in double, written row by row from the paper: M = g + E, P = sum M Q, Gram-Schmidt, Q =
/// sum M'P, the mean is P Q' / p, and E is M minus P Q'.
class recurrence {
 public:
  recurrence(int count, std::size_t rows, std::size_t columns, std::size_t rank, std::uint64_t seed,
             std::uint64_t tensor, std::uint64_t start = 0)
      : rows_(rows), columns_(columns), rank_(rank), inputs(static_cast<std::size_t>(count)) {
    for (std::vector<double>& each : inputs) {
      each.resize(rows * columns);
    }
    residuals = inputs;
    q_.assign(columns, std::vector<double>(rank));
    const auto random = kernels::counted_random(seed).stream(tensor).stream(start);
    for (std::size_t k = 0; k < rank; ++k) {
      for (std::size_t j = 0; j < columns; ++j) {
        q_[j][k] = static_cast<float>(2 * random.stream(k).uniform(j) - 1);
      }
    }
  }

  /// Continues from the state of another implementation: residuals, and the columns of Q one after
  /// the other, times any number.
  void go_on_from(std::size_t rank, std::span<const float> residual, std::span<const float> q) {
    residuals[rank].assign(residual.begin(), residual.end());
    for (std::size_t i = 0; i < q.size(); ++i) {
      q_[i % columns_][i / columns_] = q[i];
    }
  }

  std::vector<double> step(const std::vector<std::vector<float>>& gradients) {
    const auto count = static_cast<double>(inputs.size());
    std::vector<std::vector<double>> p(rows_, std::vector<double>(rank_));
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      for (std::size_t i = 0; i < rows_ * columns_; ++i) {
        inputs[rank][i] = residuals[rank][i] + double{gradients[rank][i]};
        for (std::size_t k = 0; k < rank_; ++k) {
          p[i / columns_][k] += inputs[rank][i] * q_[i % columns_][k];
        }
      }
    }
    for (std::size_t k = 0; k < rank_; ++k) {
      for (std::size_t other = 0; other < k; ++other) {
        double along = 0;
        for (const std::vector<double>& row : p) {
          along += row[k] * row[other];
        }
        for (std::vector<double>& row : p) {
          row[k] -= along * row[other];
        }
      }
      double squares = 0;
      for (const std::vector<double>& row : p) {
        squares += row[k] * row[k];
      }
      for (std::vector<double>& row : p) {
        row[k] /= std::sqrt(squares);
      }
    }
    q_.assign(columns_, std::vector<double>(rank_));
    for (const std::vector<double>& input : inputs) {
      for (std::size_t i = 0; i < input.size(); ++i) {
        for (std::size_t k = 0; k < rank_; ++k) {
          q_[i % columns_][k] += input[i] * p[i / columns_][k] / count;
        }
      }
    }
    std::vector<double> mean(rows_ * columns_);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      for (std::size_t k = 0; k < rank_; ++k) {
        mean[i] += p[i / columns_][k] * q_[i % columns_][k];
      }
      for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
        residuals[rank][i] = inputs[rank][i] - mean[i];
      }
    }
    return mean;
  }

 private:
  std::size_t rows_;
  std::size_t columns_;
  std::size_t rank_;
  std::vector<std::vector<double>> q_;

 public:
  std::vector<std::vector<double>> inputs;
  std::vector<std::vector<double>> residuals;
};

}  // namespace tutti::test
