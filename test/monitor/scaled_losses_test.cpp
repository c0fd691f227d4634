// Statistics of gradients are those of the loss itself where it is multiplied by a scale, whether
// the scale stays or changes, and leave out the steps that are skipped.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <utility>
#include <vector>

#include "support/training.hpp"
#include "tutti/monitor/noise_scale.hpp"
#include "tutti/monitor/tee.hpp"
#include "tutti/monitor/variance.hpp"
#include "tutti/optimizer/loss_scaled.hpp"

namespace tutti::test {
namespace {

constexpr int steps = 6;

/// Returns what both workers' monitors, which `make(memory)` makes, see of losses that are
/// multiplied by `scale`, and by `growth` times as much in every further step. Rank 1's overflows
/// in step `overflows`.
template <class Make>
auto seen_of_scaled_losses(float scale, float growth, int overflows, const Make& make) {
  using seen_type = decltype(make(std::declval<arena&>()));
  std::vector<std::vector<seen_type>> all(2);
  transport::run_ranks(2, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    optimizer::loss_scaled<decltype(optimizer_of())> values{optimizer_of()};
    values.scale = scale;
    values.growth = growth;
    values.interval = 1;
    auto engine = make_engine<compose<>>(world, memory.tensors(), values, {}, make(memory));
    for (int step = 0; step < steps; ++step) {
      std::size_t element = 0;
      for (float& each : memory.gradients()) {
        each = engine.values().scale * gradient(world.rank(), step, element++);
      }
      if (step == overflows && world.rank() == 1) {
        memory.gradients().back() = std::numeric_limits<float>::infinity();
      }
      for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
        engine.ready(tensor_id(static_cast<std::uint32_t>(id)));
      }
      engine.wait();
    }
    engine.drain();
    all[static_cast<std::size_t>(world.rank())].push_back(engine.observed());
  });
  return std::vector<seen_type>{all[0].front(), all[1].front()};
}
std::vector<monitor::noise_scale> noise_of_scaled_losses(float scale, int overflows,
                                                         float growth = 1) {
  return seen_of_scaled_losses(scale, growth, overflows, [](const arena& memory) {
    return monitor::noise_scale(memory.tensors(), {.batch_size = 32, .workers = 2});
  });
}
/// Also if the scale changes from step to step, so that the mean over steps is of gradients of
/// different scales.
TEST(NoiseScale, IsTheSameForScaledLosses) {
  const auto plain = noise_of_scaled_losses(1, steps);
  for (const float growth : {1.0f, 4.0f}) {
    const auto scaled = noise_of_scaled_losses(1024, steps, growth);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(scaled[rank].own().scale(), plain[rank].own().scale()) << growth;
      EXPECT_EQ(scaled[rank].of_all().scale(), plain[rank].of_all().scale()) << growth;
    }
  }
}
TEST(NoiseScale, LeavesOutStepsThatAreSkipped) {
  for (const auto& its : noise_of_scaled_losses(1024, 2)) {
    for (const auto& seen : {its.own(), its.of_all()}) {
      EXPECT_EQ(seen.taken(), steps - 1U);
      EXPECT_TRUE(std::isfinite(seen.scale())) << seen.scale();
    }
  }
}

TEST(Variance, IsTheSameForScaledLossesAndLeavesOutSkippedSteps) {
  const auto seen = [](float scale, float growth, int overflows) {
    return seen_of_scaled_losses(scale, growth, overflows, [](const arena& memory) {
      return monitor::variance(memory.tensors(), 2);
    });
  };
  const double plain = seen(1, 1, steps).front().value();
  for (const auto& its : seen(1024, 4, steps)) {
    EXPECT_EQ(its.value(), plain);
    EXPECT_EQ(its.taken(), std::uint64_t{steps});
  }
  for (const auto& its : seen(1024, 1, steps - 1)) {
    EXPECT_TRUE(std::isfinite(its.value()));
    EXPECT_EQ(its.taken(), steps - 1U);
  }
}

}  // namespace
}  // namespace tutti::test
