#pragma once

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "support/low_rank_oracle.hpp"
#include "support/training.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/strategies/power_sgd.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {

/// Trains one rank with PowerSGD in the memory of `Transport`'s queue, which may be a device's, and
/// expects the result of the recurrence in double.
template <class Transport>
void expect_trained_in_low_rank(Transport& world) {
  using queue = typename Transport::queue_type;
  using arena_type = arena_of<memory_of<float, queue>>;
  constexpr int steps = 6;
  queue compute;
  std::vector<typename arena_type::declaration> forward;
  for (const auto& each : shaped_declarations()) {
    forward.push_back({each.name, each.elements, each.shape});
  }
  arena_type memory(forward, 1,
                    [&](std::size_t elements) { return allocate<float>(compute, elements); });
  fill_from_host(compute, memory.parameters(), [&](std::span<float> values) {
    std::size_t element = 0;
    std::ranges::generate(values, [&] { return world.rank() == 0 ? initial(element++) : 99.0f; });
  });
  auto engine = make_engine<strategies::PowerSGD>(world, memory.tensors(), optimizer_of());
  for (int step = 0; step < steps; ++step) {
    for (const tensor_id id : shuffled(forward.size(), world.rank(), step)) {
      const std::span<float> to = memory.tensors()[index(id)].gradient;
      auto element = static_cast<std::size_t>(to.data() - memory.gradients().data());
      engine.wait(id, compute);
      fill_from_host(compute, to, [&](std::span<float> values) {
        std::ranges::generate(values, [&] { return gradient(world.rank(), step, element++); });
      });
      engine.ready(id, compute);
    }
  }
  engine.wait();
  const auto parameters = host_view(compute, memory.parameters());
  const auto wanted = trained_in_low_rank(world.size(), steps, 2, 1);
  ASSERT_EQ(parameters.size(), wanted.parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ASSERT_NEAR(parameters[i], wanted.parameters[i], wanted.bound)
        << i << " on rank " << world.rank() << " of " << world.size();
  }
}

}  // namespace tutti::test
