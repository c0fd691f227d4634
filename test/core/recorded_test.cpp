// A run on threads is recorded, replayed in the simulator, and gives the same bits.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <iterator>
#include <thread>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/monitor/timeline.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::test::recorded_copies {
namespace {

constexpr int steps = 4;
using recording = std::vector<monitor::timeline::moment>;  // one worker's gradients

/// Returns the gradients that were handed in, in order and with wall-clock times.
recording gradients_in(const monitor::timeline& observed) {
  recording all;
  std::ranges::copy_if(observed.moments(), std::back_inserter(all),
                       [](const auto& each) { return each.what == event::ready; });
  return all;
}

template <class Strategy>
std::vector<recording> record_on_threads(int workers, engine_options<Strategy> options,
                                         outcome& result) {
  std::vector<recording> tape(static_cast<std::size_t>(workers));
  transport::run_ranks(workers + servers_in<Strategy>(options), [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options,
                                        monitor::timeline(1 << 14));
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < steps; ++step) {
      engine.wait();
      backward(memory, engine.worker(), step);
      for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
        std::this_thread::sleep_for(std::chrono::microseconds(50 * world.rank()));
        engine.ready(id);
      }
    }
    engine.wait();
    const auto rank = static_cast<std::size_t>(world.rank());
    result.parameters[rank].assign(memory.parameters().begin(), memory.parameters().end());
    tape[rank] = gradients_in(engine.observed());
    EXPECT_EQ(engine.observed().missed(), 0U);
  });
  return tape;
}

template <class Strategy>
task replay_rank(transport::simulated& world, const std::vector<recording>& tape,
                 engine_options<Strategy> options, outcome& result) {
  arena memory = model_of(world.rank());
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
  co_await engine.started();
  if (!engine.serves()) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const std::size_t tensors = memory.tensors().size();
    const seconds began = world.now() - tape[rank].front().when;
    for (std::size_t i = 0; i < tape[rank].size(); ++i) {
      if (i % tensors == 0) {
        for (std::size_t id = 0; id < tensors; ++id) {
          co_await engine.arrival(tensor_id(id));
        }
        backward(memory, engine.worker(), static_cast<int>(i / tensors));
      }
      const seconds due = began + tape[rank][i].when;
      if (due > world.now()) {
        co_await world.sleep(due - world.now());
      }
      engine.ready(tensor_id(tape[rank][i].which));
    }
    for (std::size_t id = 0; id < tensors; ++id) {
      co_await engine.arrival(tensor_id(id));
    }
    result.parameters[rank].assign(memory.parameters().begin(), memory.parameters().end());
  }
  co_await engine.close();
}

template <class Strategy>
void replays_bitwise(engine_options<Strategy> options = {}) {
  for (const int workers : {1, 2, 3, 5}) {
    outcome lived(workers);
    outcome replayed(workers);
    const auto tape = record_on_threads<Strategy>(workers, options, lived);
    ASSERT_EQ(tape.front().size(), steps * tensor_sizes().size());
    transport::run_simulated(workers + servers_in<Strategy>(options), transport::link{1.25e9, 5e-5},
                             [&](transport::simulated& world) {
                               return replay_rank<Strategy>(world, tape, options, replayed);
                             });
    EXPECT_EQ(lived.parameters, replayed.parameters) << workers << " workers";
    arena untrained = model_of(0);
    const auto before = untrained.parameters();
    EXPECT_FALSE(std::ranges::equal(lived.parameters.front(), before));
  }
}

TEST(Recorded, Ring) {
  replays_bitwise<compose<architecture::all_reduce<collective::ring>, fusion::up_to>>(
      {.fusion = {.bytes = 3000}});
}
TEST(Recorded, CanonicalByPriority) {
  replays_bitwise<compose<architecture::all_reduce<collective::canonical>, partition::into,
                          schedule::by_priority>>(
      {.partition = {.bytes = 30'000}, .schedule = {.credit = 1}});
}
TEST(Recorded, Servers) {
  replays_bitwise<compose<architecture::parameter_server<>, partition::into>>(
      {.partition = {.bytes = 50'000}, .architecture = {.servers = 2}});
}
TEST(Recorded, TopKRemembersTheSameResidual) {
  replays_bitwise<
      compose<architecture::all_gather, compression::error_feedback<compression::top_k>>>();
}
TEST(Recorded, SignsRememberTheSameResiduals) {
  replays_bitwise<compose<architecture::reduce_scatter_all_gather,
                          compression::error_feedback<compression::sign>>>();
}

}  // namespace
}  // namespace tutti::test::recorded_copies
