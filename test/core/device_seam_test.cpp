// The seam a GPU will use, without one: every queue is a host_stream, memory is poison until the
// stream has written it, and the order of work is kept by events alone.
#include <gtest/gtest.h>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "support/device_training.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

using on_streams = transport::basic_in_process<host_stream, transport::by_mailbox>;

template <class Strategy>
void agrees(engine_options<Strategy> options = {}) {
  for (int ranks = facts::has_servers<typename Strategy::architecture> ? 2 : 1; ranks <= 4;
       ++ranks) {
    const auto expected = train_scattered<Strategy, transport::in_process>(ranks, options);
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ((train_scattered<Strategy, on_streams>(ranks, options)), expected)
        << ranks << " ranks";
  }
}

/// Three steps, saved, and the rest in another job: what one job would have come to.
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
  EXPECT_EQ(resumed_on_streams<Strategy>(ranks),
            (train_scattered<Strategy, transport::in_process>(ranks)));
}

/// How a job ends of which one rank has NaN after so many steps.
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

TEST(DeviceSeam, CanonicalSum) {
  agrees<compose<architecture::all_reduce<collective::canonical>>>();
}
TEST(DeviceSeam, FusedPackedAndPrioritised) {
  agrees<compose<architecture::all_reduce<collective::canonical>, fusion::up_to, partition::into,
                 schedule::by_priority>>(
      {.partition = {.elements = 100}, .schedule = {.credit = 400}});
}
TEST(DeviceSeam, ResidualsStayOnTheStream) {
  agrees<compose<compression::error_feedback<compression::top_k>>>(
      {.compression = {.density = 0.1}});
  agrees<compose<compression::error_feedback<compression::scaled_sign>, fusion::up_to>>();
}
TEST(DeviceSeam, FactorsStayOnTheStream) {
  agrees<compose<compression::select<matrices, compression::power_sgd, compression::none>,
                 architecture::all_reduce<collective::canonical>>>(
      {.compression = {.chosen = {.rank = 3}}});
  agrees<compose<compression::select<matrices, compression::power_sgd, compression::none>,
                 architecture::parameter_server<>>>({.compression = {.chosen = {.rank = 3}}});
}
TEST(DeviceSeam, Votes) { agrees<compose<compression::sign, architecture::majority_vote>>(); }
TEST(DeviceSeam, Servers) {
  agrees<compose<architecture::parameter_server<>>>();
  agrees<compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>>>();
  agrees<compose<compression::sign, architecture::parameter_server<>>>();
}

TEST(DeviceSeam, CheckpointsGoThroughTheHost) {
  resumes<compose<compression::error_feedback<compression::scaled_sign>, fusion::up_to>>(2);
  resumes<compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>>>(
      3);
}

/// A kernel cannot throw where it runs: the next time that the host waits for it, every rank ends.
/// In the first step what was never written is poison, in later ones it would be the step's before.
TEST(DeviceSeam, WhatAKernelRefusesEndsEveryRank) {
  for (const int good_steps : {0, 1}) {
    const std::string words = words_of_a_job_with_nan(good_steps);
    EXPECT_NE(words.find("is not a number"), std::string::npos) << good_steps << ": " << words;
  }
}

}  // namespace tutti::test
