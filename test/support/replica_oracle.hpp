#pragma once

#include <cstddef>
#include <vector>

#include "support/oracle.hpp"

// Reference for workers with models of their own, in one process and plain loops. It calls no code
// of tutti's, and rounds every operation to float in the order of the engine's.
namespace tutti::test {

/// One element of one worker's model.
struct replica {
  float x;
  float m = 0;

  void step(float gradient, const sgd_values& set = {}) {
    m = set.momentum * m + (gradient + set.weight_decay * x);
    x -= set.learning_rate * m;
  }
};

/// Adds in rank order and divides by one multiplication.
inline float mean_of(const std::vector<replica>& all) {
  float sum = all[0].x;
  for (std::size_t worker = 1; worker < all.size(); ++worker) {
    sum += all[worker].x;
  }
  return sum * (1.0f / static_cast<float>(all.size()));
}

/// Returns each worker's parameters after `steps` steps of `rule(replicas, step, element)`, which
/// applies one step to one element of all workers.
template <class Rule>
std::vector<std::vector<float>> of_replicas(int workers, int steps, Rule rule) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(workers));
  for (std::size_t element = 0; element < total_elements(); ++element) {
    std::vector<replica> its(static_cast<std::size_t>(workers), replica{initial(element)});
    for (int step = 0; step < steps; ++step) {
      rule(its, step, element);
    }
    for (std::size_t worker = 0; worker < its.size(); ++worker) {
      all[worker].push_back(its[worker].x);
    }
  }
  return all;
}

inline void step_alone(std::vector<replica>& all, int step, std::size_t element) {
  for (std::size_t worker = 0; worker < all.size(); ++worker) {
    all[worker].step(gradient(static_cast<int>(worker), step, element));
  }
}

}  // namespace tutti::test
