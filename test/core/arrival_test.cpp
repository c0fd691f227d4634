// A coroutine that waits for a tensor.
#include "tutti/core/arrival.hpp"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "support/training.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::test {
namespace {

task await_the_first(auto& engine, bool& resumed) {
  co_await engine.arrival(tensor_id(0));
  resumed = true;
}

TEST(Arrival, WakesNobodyWhoHasBeenDestroyed) {
  std::atomic<bool> destroyed = false;
  transport::run_ranks(2, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    engine_options<compose<>> options;
    options.run.progress = progress::by_caller;
    auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of(), options);
    while (world.rank() == 1 && !destroyed) {  // so that rank 0's tensors cannot arrive before
      std::this_thread::yield();
    }
    take_step(engine, memory, 0);
    bool resumed = false;
    if (world.rank() == 0) {
      {
        task waiting = await_the_first(engine, resumed);
        waiting.start(world.ready_coroutines());
        EXPECT_FALSE(waiting.done());
      }
      destroyed = true;
    }
    engine.wait();
    EXPECT_FALSE(resumed);
  });
}

}  // namespace
}  // namespace tutti::test
