// The interface that a GPU uses, tested without one. Every queue is a host_stream, memory is
// poisoned until the stream has written it, and only events keep the order of work.
#include <gtest/gtest.h>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "support/device_training.hpp"
#include "support/strategy_laws.hpp"
#include "support/training_worlds.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/strategies/zero.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

using on_streams = on_host_streams::transport;

/// Takes three steps, saves, and takes the rest in another job.
template <class Strategy>
std::vector<float> resumed_on_streams(int ranks) {
  std::vector<std::stringstream> files(static_cast<std::size_t>(ranks));
  std::vector<float> result;
  for (const bool later : {false, true}) {
    transport::run_ranks<on_streams>(ranks, [&](on_streams& world) {
      host_stream compute;
      scattered_model<host_stream> model(compute);
      auto engine = make_engine<Strategy>(world, model.tensors(), device_optimizer());
      if (engine.serves()) {
        engine.serve();
        return;
      }
      auto& file = files[static_cast<std::size_t>(world.rank())];
      if (later) {
        load(engine, file);
      }
      take_steps(engine, model, compute, later ? 3 : 0, later ? device_steps : 3);
      if (!later) {
        save(engine, file);
      } else if (world.rank() == 0) {
        result = model.parameters();
      }
    });
  }
  return result;
}

template <class Strategy>
void resumes(int ranks) {
  EXPECT_EQ(resumed_on_streams<Strategy>(ranks), (train_scattered<Strategy, on_streams>(ranks)));
}

/// A bucket's memory is passed on to the next bucket, whose gradient the model's own stream writes
/// there.
TEST(DeviceSeam, GradientsAreWrittenInMemoryThatIsLent) {
  using strategies::ZeRO2;
  engine_options<ZeRO2> set;
  set.fusion.bytes = 100;
  std::vector<float> result;
  transport::run_ranks<on_streams>(3, [&](on_streams& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    auto engine = make_engine<ZeRO2>(world, model.without_gradients(), device_optimizer(), set);
    for (int step = 0; step < device_steps; ++step) {
      for (std::size_t id = std::size(device_sizes); id-- > 0;) {
        engine.wait(tensor_id(id), compute);
        const auto room = engine.gradient(tensor_id(id), compute);
        model.backward(id, engine.worker(), step, room.data());
        engine.ready(tensor_id(id), compute);
      }
    }
    engine.wait();
    compute.synchronize();
    if (world.rank() == 0) {
      result = model.parameters();
    }
  });
  EXPECT_EQ(result, (train_scattered<strategies::ZeRO1, on_streams>(3)));
}

/// Returns the error with which a job ends when one rank has a NaN after `good_steps` steps.
std::string words_of_a_job_with_nan(int good_steps) {
  using strategy = compose<compression::error_feedback<compression::top_k>>;
  try {
    transport::run_ranks<on_streams>(3, [&](on_streams& world) {
      host_stream compute;
      scattered_model<host_stream> model(compute);
      engine_options<strategy> options;
      options.run.deadline = 20;
      auto engine = make_engine<strategy>(world, model.tensors(), device_optimizer(), options);
      take_steps(engine, model, compute, 0, good_steps);
      if (world.rank() == 1) {
        model.spoil(2, std::numeric_limits<float>::quiet_NaN());
        engine.ready(tensor_id(2), compute);
      } else {
        model.backward(2, engine.worker(), good_steps);
        engine.ready(tensor_id(2), compute);
      }
      engine.wait();
      take_steps(engine, model, compute, good_steps + 1, device_steps);
    });
  } catch (const error& refused) {
    return refused.what();
  }
  return "it ends well";
}

}  // namespace

static_assert(strategies_in<a_few_dense_strategies_on<on_host_streams>> == 4);
INSTANTIATE_TYPED_TEST_SUITE_P(OnHostStreams, StrategyLaw,
                               a_few_dense_strategies_on<on_host_streams>);

static_assert(strategies_in<gathering_strategies_on<on_host_streams>> == 2);
INSTANTIATE_TYPED_TEST_SUITE_P(GatheringOnHostStreams, StrategyLaw,
                               gathering_strategies_on<on_host_streams>);

static_assert(strategies_in<averaging_strategies_on<on_host_streams>> == 14);
INSTANTIATE_TYPED_TEST_SUITE_P(AveragingOnHostStreams, StrategyLaw,
                               averaging_strategies_on<on_host_streams>);

TEST(DeviceSeam, CheckpointsGoThroughTheHost) {
  resumes<compose<compression::error_feedback<compression::scaled_sign>, fusion::up_to>>(2);
  resumes<listed::servers_that_update::strategy>(3);
}

/// A kernel cannot throw where it runs, so every rank ends the next time that its host waits. In
/// the first step, memory that was never written is poison; in later steps it would still hold the
/// step before.
TEST(DeviceSeam, WhatAKernelRefusesEndsEveryRank) {
  for (const int good_steps : {0, 1}) {
    const std::string words = words_of_a_job_with_nan(good_steps);
    EXPECT_NE(words.find("'s gradient is not a number"), std::string::npos)
        << good_steps << ": " << words;
  }
}

}  // namespace tutti::test
