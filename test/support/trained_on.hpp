#pragma once

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "support/training.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::test {

/// Returns the parameters of every worker after one step by each of `optimizers`, with
/// `gradients(worker, step)`. Parameters and gradients are those of tensors of `sizes` elements,
/// one after the other, beginning with the tensor nearest the input.
template <class Strategy, class Optimizer, class Gradients>
std::vector<float> trained_on(int workers, const std::vector<Optimizer>& optimizers,
                              const std::vector<std::size_t>& sizes,
                              const std::vector<float>& parameters, Gradients gradients) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(workers));
  const int ranks = workers + servers_in<Strategy>(engine_options<Strategy>());
  transport::run_ranks(ranks, [&](transport::in_process& world) {
    std::vector<float> its_own = parameters;
    std::vector<float> its_gradients(parameters.size());
    std::vector<tensor> tensors;
    std::size_t first = 0;
    for (const std::size_t size : sizes) {
      tensors.emplace_back("w" + std::to_string(tensors.size()),
                           std::span(its_own).subspan(first, size),
                           std::span(its_gradients).subspan(first, size));
      first += size;
    }
    auto engine = make_engine<Strategy>(world, tensors, optimizers[0]);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (std::size_t step = 0; step < optimizers.size(); ++step) {
      engine.change(optimizers[step]);
      std::ranges::copy(gradients(static_cast<std::size_t>(engine.worker()), step),
                        its_gradients.begin());
      for (std::size_t i = sizes.size(); i-- > 0;) {
        engine.ready(tensor_id(i));
      }
      engine.wait();
    }
    all[static_cast<std::size_t>(engine.worker())] = its_own;
  });
  for (const auto& each : all) {
    EXPECT_EQ(each, all[0]);
  }
  return all[0];
}

}  // namespace tutti::test
