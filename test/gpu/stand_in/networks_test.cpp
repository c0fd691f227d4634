// A network's step on a device enqueues: it allocates nothing, makes no event and waits once, where
// the loss is read.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <thread>

#include "gpu/stand_in/runtime.hpp"
#include "models/cudnn.hpp"
#include "models/network.hpp"
#include "models/samples.hpp"

namespace tutti::test {

namespace {

void expect_more(const dear_calls& before, long synchronizations) {
  const auto now = dear_calls_so_far();
  EXPECT_EQ(now.allocations, before.allocations);
  EXPECT_EQ(now.events, before.events);
  EXPECT_EQ(now.synchronizations, before.synchronizations + synchronizations);
}

}  // namespace

TEST(NetworkSteps, WaitOnlyWhereTheLossIsRead) {
  const auto of = samples::odd();
  models::network<models::cudnn> model(of, 2, 3);
  const samples::batch_of some(of, 2, 1, 4);
  const auto step = [&] {
    model.forward(some.batch());
    model.backward([](tensor_id) {});
  };
  step();
  model.loss();
  const auto before = dear_calls_so_far();
  step();
  expect_more(before, 0);
  model.loss();
  step();
  expect_more(before, 1);
}

TEST(NetworkSteps, ABatchIsOverwrittenOnlyWhenTheDeviceHasReadIt) {
  const auto of = samples::odd();
  models::network<models::cudnn> model(of, 3, 3);
  const auto step = [&](std::uint64_t seed, models::gradients mode) {
    model.forward(samples::batch_of(of, 3, seed, 4).batch());
    model.backward([](tensor_id) {}, mode);
  };
  step(1, models::gradients::overwrite);
  auto expected = samples::all_gradients(model);
  step(2, models::gradients::overwrite);
  const auto second = samples::all_gradients(model);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] += second[i];
  }
  stood_in_by(model.queue().native_handle()).run([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  step(1, models::gradients::overwrite);
  step(2, models::gradients::accumulate);
  EXPECT_EQ(samples::all_gradients(model), expected);
}

}  // namespace tutti::test
