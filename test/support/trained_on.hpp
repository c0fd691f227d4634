#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tutti/core/engine.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::test {

/// The parameters on the last rank after steps with `gradients(rank, step)`. Both are those of
/// tensors of `sizes` elements one after the other, the one nearest the input first.
template <class Strategy, class Optimizer, class Gradients>
std::vector<float> trained_on(int ranks, int steps, const std::vector<std::size_t>& sizes,
                              const std::vector<float>& initial, const Optimizer& values,
                              Gradients gradients) {
  std::vector<float> result;
  transport::run_ranks(ranks, [&](transport::in_process& world) {
    std::vector<float> parameters = initial;
    std::vector<float> its_gradients(initial.size());
    std::vector<tensor> tensors;
    std::size_t first = 0;
    for (const std::size_t size : sizes) {
      tensors.emplace_back("w" + std::to_string(tensors.size()),
                           std::span(parameters).subspan(first, size),
                           std::span(its_gradients).subspan(first, size));
      first += size;
    }
    auto engine = make_engine<Strategy>(world, tensors, values);
    for (int step = 0; step < steps; ++step) {
      std::ranges::copy(
          gradients(static_cast<std::size_t>(world.rank()), static_cast<std::size_t>(step)),
          its_gradients.begin());
      for (std::size_t i = sizes.size(); i-- > 0;) {
        engine.ready(tensor_id(i));
      }
      engine.wait();
    }
    if (world.rank() == ranks - 1) {
      result = parameters;
    }
  });
  return result;
}

}  // namespace tutti::test
