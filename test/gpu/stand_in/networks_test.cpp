// On a device a network's step only enqueues. It allocates nothing, creates no event and waits
// once, where the loss is read.
#include <atomic>
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

namespace {

/// Takes a step with the second of two batches while the device still works on the first batch's,
/// which `first_step` enqueues.
template <class Step>
void expect_both_batches_gradients(const Step& first_step) {
  const auto of = samples::odd();
  models::network<models::cudnn> model(of, 3, 3);
  const samples::batch_of first(of, 3, 1, 4);
  const samples::batch_of second(of, 3, 2, 4);
  const auto step = [&](const samples::batch_of& some, models::gradients mode) {
    model.forward(some.batch());
    model.backward([](tensor_id) {}, mode);
  };
  step(first, models::gradients::overwrite);
  auto expected = samples::all_gradients(model);
  step(second, models::gradients::overwrite);
  const auto of_second = samples::all_gradients(model);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] += of_second[i];
  }
  const auto be_late = [&] {
    stood_in_by(model.queue().native_handle()).run([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
  };
  first_step(model, first, be_late);
  step(second, models::gradients::accumulate);
  EXPECT_EQ(samples::all_gradients(model), expected);
}

}  // namespace

TEST(NetworkSteps, ABatchIsOverwrittenOnlyWhenTheDeviceHasReadIt) {
  expect_both_batches_gradients([](auto& model, const auto& some, const auto& be_late) {
    be_late();
    model.forward(some.batch());
    model.backward([](tensor_id) {});
  });
}

TEST(NetworkSteps, LabelsAreOverwrittenOnlyWhenTheDeviceHasReadThem) {
  expect_both_batches_gradients([](auto& model, const auto& some, const auto& be_late) {
    model.forward(some.batch());
    model.loss();
    be_late();
    model.backward([](tensor_id) {});
  });
}

TEST(NetworkSteps, AStepOnTheSameBatchLeavesLabelsAloneThatTheDeviceHasYetToRead) {
  const auto of = samples::odd();
  models::network<models::cudnn> model(of, 3, 3);
  const samples::batch_of some(of, 3, 1, 4);
  model.forward(some.batch());
  std::atomic<bool> read{false};
  stood_in_by(model.queue().native_handle()).run([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    read = true;
  });
  model.backward([](tensor_id) {});
  model.forward([](tensor_id) {});
  model.backward([](tensor_id) {});
  EXPECT_TRUE(read);
}

TEST(NetworkSteps, ABatchThatIsThereAlreadyIsNotSentAgain) {
  const auto of = samples::odd();
  models::network<models::cudnn> model(of, 3, 3);
  const samples::batch_of some(of, 3, 1, 4);
  model.forward(some.batch());
  model.backward([](tensor_id) {});
  const auto expected = samples::all_gradients(model);
  const auto before = dear_calls_so_far();
  model.forward([](tensor_id) {});
  model.backward([](tensor_id) {});
  expect_more(before, 0);
  EXPECT_EQ(samples::all_gradients(model), expected);
}

}  // namespace tutti::test
