// Servers that do not wait for all workers: every push takes effect once, bounds hold when workers
// reach them, and nothing is lost between runs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/deadlines.hpp"
#include "support/errors.hpp"
#include "support/ledger.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/optimizer/adam.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

template <class Consistency, class UpdatedBy>
using served = compose<architecture::parameter_server<Consistency, UpdatedBy>>;
using by_gradient = served<consistency::asynchronous, updated_by::servers>;
using by_difference = served<consistency::asynchronous, updated_by::workers>;
using bounded = served<consistency::bounded_staleness, updated_by::workers>;
using bounded_by_gradient = served<consistency::bounded_staleness, updated_by::servers>;
using with_backups = served<consistency::backup_workers, updated_by::servers>;
using compensated = served<consistency::delay_compensated, updated_by::servers>;

// ---- exactly once

/// Returns the parameters on the servers after training over threads.
template <class Strategy>
std::vector<float> pushed_on_threads(int workers, int pushes, std::size_t tensors, int servers) {
  std::vector<float> held;
  engine_options<Strategy> set;
  set.architecture.servers = servers;
  transport::run_ranks(workers + servers, [&](transport::in_process& world) {
    arena memory(ledger_declarations(tensors));
    writes_down values;
    values.learning_rate = 1;
    auto engine = make_engine<Strategy>(world, memory.tensors(), values, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    push_at_random(engine, memory, 1, pushes + 1);
    read_servers(engine, memory);
    if (engine.worker() == 0) {
      held.assign(memory.parameters().begin(), memory.parameters().end());
    }
  });
  return held;
}

TEST(ExactlyOnce, OneHundredThousandGradientsOnThreads) {
  ledger::shared().take();
  expect_each_once(pushed_on_threads<by_gradient>(4, 500, 50, 2), 4, 500);
  expect_no_gap(ledger::shared().take(), 50, 4, 500);
}
TEST(ExactlyOnce, OneHundredThousandDifferencesOnThreads) {
  expect_each_once(pushed_on_threads<by_difference>(4, 500, 50, 2), 4, 500);
}
TEST(ExactlyOnce, UnderABound) {
  for (const int workers : {1, 2, 3, 4}) {
    expect_each_once(pushed_on_threads<bounded>(workers, 100, 3, 1), workers, 100);
    expect_each_once(pushed_on_threads<bounded_by_gradient>(workers, 100, 3, 2), workers, 100);
  }
}

template <class Strategy>
task push_on_a_clock(transport::simulated& world, int pushes, std::size_t tensors,
                     engine_options<Strategy> set, std::vector<float>& held) {
  arena memory(ledger_declarations(tensors));
  writes_down values;
  values.learning_rate = 1;
  auto engine = make_engine<Strategy>(world, memory.tensors(), values, set);
  co_await engine.started();
  if (!engine.serves()) {
    std::mt19937 random(static_cast<unsigned>(world.rank()));
    std::exponential_distribution<double> delay(1e4);
    for (int number = 1; number <= pushes + 1; ++number) {
      if (number == pushes + 1) {
        double all = 0;
        co_await engine.averaged(all);
        if (world.rank() != 0) {
          break;
        }
        std::ranges::fill(memory.gradients(), 0.0f);
      } else {
        write_push(memory, engine.worker(), number);
        co_await world.sleep(delay(random));
      }
      for (std::size_t id = memory.tensors().size(); id-- > 0;) {
        engine.ready(tensor_id(id));
      }
      for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
        co_await engine.arrival(tensor_id(id));
      }
    }
    if (world.rank() == 0) {
      held.assign(memory.parameters().begin(), memory.parameters().end());
    }
  }
  co_await engine.close();
}

template <class Strategy>
std::vector<float> pushed_on_a_clock(int workers, int pushes, std::size_t tensors, int servers) {
  std::vector<float> held;
  engine_options<Strategy> set;
  set.architecture.servers = servers;
  transport::run_simulated(workers + servers, transport::link{1.25e9, 50e-6},
                           [&](transport::simulated& world) {
                             return push_on_a_clock<Strategy>(world, pushes, tensors, set, held);
                           });
  return held;
}

TEST(ExactlyOnce, OneHundredThousandPushesOnAVirtualClock) {
  ledger::shared().take();
  expect_each_once(pushed_on_a_clock<by_gradient>(4, 500, 50, 2), 4, 500);
  expect_no_gap(ledger::shared().take(), 50, 4, 500);
  expect_each_once(pushed_on_a_clock<by_difference>(4, 500, 50, 2), 4, 500);
}

// ---- bounded staleness

/// Trains a worker at its own pace; before each step it checks what the bound guarantees.
task meet_the_bound(transport::simulated& world, unsigned seed, int bound, int& furthest) {
  engine_options<bounded> set;
  set.architecture.consistency.staleness = bound;
  arena memory(ledger_declarations(2));
  auto engine =
      make_engine<bounded>(world, memory.tensors(), optimizer::sgd{.learning_rate = 1}, set);
  co_await engine.started();
  if (!engine.serves()) {
    std::mt19937 random(seed + static_cast<unsigned>(world.rank()));
    const double pace = std::exponential_distribution<double>(1)(random);
    std::exponential_distribution<double> delay(1 / (1e-3 * pace));
    for (int step = 1; step <= 12; ++step) {
      write_push(memory, engine.worker(), step);
      co_await world.sleep(delay(random));
      engine.ready(tensor_id(1));
      engine.ready(tensor_id(0));
      for (std::size_t id = 0; id < 2; ++id) {
        co_await engine.arrival(tensor_id(id));
        const std::span<const float> read = memory.tensors()[id].parameter;
        for (std::size_t other = 0; other < static_cast<std::size_t>(engine.workers()); ++other) {
          const int behind = step - static_cast<int>(read[other]);
          EXPECT_LE(behind, bound);
          furthest = std::max(furthest, behind);
        }
      }
    }
  }
  co_await engine.close();
}

TEST(BoundedStaleness, WorkersReadAllThatIsOlder) {
  for (const int bound : {0, 1, 3}) {
    int furthest = std::numeric_limits<int>::min();
    for (unsigned seed = 0; seed < 60; ++seed) {
      const int workers = 2 + static_cast<int>(seed) % 4;
      transport::run_simulated(workers + 1, transport::link{1.25e9, 50e-6},
                               [&](transport::simulated& world) {
                                 return meet_the_bound(world, 100 * seed, bound, furthest);
                               });
    }
    EXPECT_EQ(furthest, bound);  // some worker was held at the bound
  }
}

// ---- checkpoints

template <class Engine>
void hand_in_all(Engine& engine, const arena& memory) {
  for (std::size_t id = memory.tensors().size(); id-- > 0;) {
    engine.ready(tensor_id(id));
  }
  engine.wait();
}

/// Runs steps 1 to `steps` of each worker on threads. If `stop` is not 0, the run ends after so
/// many steps and another continues from the checkpoint. Returns the servers' parameters in the
/// end.
template <class Strategy, class Optimizer, class Step>
std::vector<float> stopped_and_resumed(int workers, int steps, int stop,
                                       engine_options<Strategy> set, Optimizer values, Step step) {
  std::vector<std::string> files(static_cast<std::size_t>(workers));
  std::vector<float> held;
  set.architecture.servers = 2;
  const auto run = [&](int first, int last) {
    transport::run_ranks(workers + 2, [&](transport::in_process& world) {
      arena memory(ledger_declarations(3));
      auto engine = make_engine<Strategy>(world, memory.tensors(), values, set);
      if (engine.serves()) {
        engine.serve();
        return;
      }
      auto& file = files[static_cast<std::size_t>(world.rank())];
      if (first > 1) {
        std::istringstream in(file);
        load(engine, in);
      }
      for (int number = first; number <= last; ++number) {
        step(engine, memory, number);
      }
      if (last < steps) {
        std::ostringstream out;
        save(engine, out);
        file = out.str();
        step(engine, memory, last + 1);  // so that this push is not in the checkpoint
        return;
      }
      read_servers(engine, memory);
      if (engine.worker() == 0) {
        held.assign(memory.parameters().begin(), memory.parameters().end());
      }
    });
  };
  if (stop > 0) {
    run(1, stop);
  }
  run(stop + 1, steps);
  return held;
}

TEST(ServersCheckpoint, LosesNoPush) {
  const optimizer::sgd values{.learning_rate = 1};
  const auto at_once = [](auto& engine, arena& memory, int number) {
    write_push(memory, engine.worker(), number);
    sleep_for(1e-4 * ((engine.worker() + number) % 3));
    hand_in_all(engine, memory);
  };
  const auto check = [&]<class Strategy>(engine_options<Strategy> set) {
    for (const int stop : {1, 7}) {
      expect_each_once(stopped_and_resumed<Strategy>(3, 12, stop, set, values, at_once), 3, 12);
    }
  };
  check(engine_options<by_gradient>());
  check(engine_options<by_difference>());
  check(engine_options<bounded>());
  check(engine_options<bounded_by_gradient>());
}

/// Where all workers push the same values, the bits do not depend on which comes first or is
/// dropped.
TEST(ServersCheckpoint, GoesOnBitwiseWhereOrderDoesNotMatter) {
  const auto same = [](auto& engine, arena& memory, int number) {
    std::size_t i = 0;
    for (float& each : memory.gradients()) {
      each = static_cast<float>(number % 4) - 1.5f + static_cast<float>(i++ % 5);
    }
    sleep_for(1e-4 * ((engine.worker() + number) % 3));
    hand_in_all(engine, memory);
  };
  const auto check = [&]<class Strategy>(engine_options<Strategy> set) {
    const optimizer::adam values;  // it depends on the number of its step
    const auto whole = stopped_and_resumed<Strategy>(3, 10, 0, set, values, same);
    EXPECT_EQ((stopped_and_resumed<Strategy>(3, 10, 4, set, values, same)), whole);
  };
  engine_options<with_backups> set;
  check(set);
  set.architecture.consistency.backups = 1;
  check(set);
  engine_options<bounded_by_gradient> in_step;
  in_step.architecture.consistency.staleness = 0;
  check(in_step);
}

/// Workers push one after the other, so that all but the last have read older parameters.
TEST(ServersCheckpoint, HoldsWhatEachWorkerHasRead) {
  const auto in_turns = [](auto& engine, arena& memory, int number) {
    for (int turn = 0; turn < engine.workers(); ++turn) {
      if (turn == engine.worker()) {
        std::size_t element = 0;
        for (float& each : memory.gradients()) {
          each = gradient(turn, number, element++);
        }
        hand_in_all(engine, memory);
      }
      engine.average(0);
    }
  };
  engine_options<compensated> set;
  auto& its = set.architecture.consistency;
  its = {.lambda = 0.3, .lambda_is = consistency::delay_compensated::rule::adaptive};
  const optimizer::sgd values{.learning_rate = 0.05f, .momentum = 0.5f};
  const auto whole = stopped_and_resumed<compensated>(3, 6, 0, set, values, in_turns);
  EXPECT_EQ((stopped_and_resumed<compensated>(3, 6, 3, set, values, in_turns)), whole);
}

/// Later workers hand in a step's gradients once worker 0 asks for the next step's learning rate.
TEST(ServersValues, ChangeAfterWhatEveryWorkerHasHandedIn) {
  const auto late = [](auto& engine, arena& memory, int number) {
    write_push(memory, engine.worker(), number);
    sleep_for(0.01 * engine.worker());
    hand_in_all(engine, memory);
    engine.change({.learning_rate = number == 2 ? 0.0f : 1.0f});
  };
  const optimizer::sgd values{.learning_rate = 1};
  expect_each_once(stopped_and_resumed<by_gradient>(3, 2, 0, {}, values, late), 3, 2);
}

// ---- deadlines, and workers that leave

/// A bound holds a worker for longer than its deadline although no worker is late, and a worker
/// that has ended holds none.
template <class Strategy>
void waits_however_long(engine_options<Strategy> set, progress who) {
  set.run.deadline = 0.3;  // all ranks start within it, also if others use the cores
  set.run.progress = who;
  push_counts counted;
  const auto said = errors(4, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
    if (engine.serves()) {
      engine.serve();
      counted = engine.report().pushes;
      return;
    }
    for (int step = 0; step < (engine.worker() == 1 ? 2 : 4); ++step) {
      if (engine.worker() == 1) {
        sleep_for(1.2);
      }
      backward(memory, engine.worker(), step);
      for (std::size_t id = memory.tensors().size(); id-- > 0;) {
        engine.ready(tensor_id(id));
      }
      engine.wait();
    }
  });
  EXPECT_EQ(said, std::vector<std::string>(4));
  EXPECT_GT(counted.held, 0U);
}
TEST(Bounds, WaitsForThemHaveNoDeadline) {
  for (const progress who : both) {
    engine_options<bounded> in_step;
    in_step.architecture.consistency.staleness = 0;
    waits_however_long(in_step, who);
    waits_however_long(engine_options<with_backups>(), who);
  }
}

/// Worker 0 is held by worker 2 and asks both other workers. It continues before worker 1 has
/// received the question, so the answer is under way while worker 0 computes and worker 1 ends.
TEST(Bounds, AnAnswerIsHeardFromAWorkerThatHasEnded) {
  engine_options<bounded> set;
  set.run.deadline = 0.5;
  set.run.progress = progress::by_caller;
  set.architecture.consistency.staleness = 0;
  const auto said = errors(4, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<bounded>(world, memory.tensors(), optimizer_of(), set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    sleep_for(engine.worker() == 2 ? 0.75 : 0);
    backward(memory, engine.worker(), 0);
    for (std::size_t id = memory.tensors().size(); id-- > 0;) {
      engine.ready(tensor_id(id));
    }
    sleep_for(engine.worker() == 1 ? 1 : 0);
    engine.wait();
    sleep_for(engine.worker() == 0 ? 0.6 : 0);
  });
  EXPECT_EQ(said, std::vector<std::string>(4));
}

TEST(Bounds, AWorkerThatFailsEndsThoseWhomItHolds) {
  engine_options<bounded> set;
  set.run.deadline = 20;
  set.architecture.consistency.staleness = 1;
  const auto said = errors(3, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<bounded>(world, memory.tensors(), optimizer_of(), set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < 5; ++step) {
      if (engine.worker() == 1 && step == 1) {
        sleep_for(0.05);
        engine.fail(std::make_exception_ptr(std::runtime_error("its data has ended")));
      }
      for (std::size_t id = memory.tensors().size(); id-- > 0;) {
        engine.ready(tensor_id(id));
      }
      engine.wait();
    }
  });
  for (const std::string& each : said) {
    EXPECT_NE(each.find("its data has ended"), std::string::npos) << each;
  }
}

TEST(Bounds, ThatCannotBeKeptAreRefusedOnEveryRank) {
  engine_options<with_backups> set;
  set.architecture.consistency.backups = 2;
  const auto said = errors(3, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    make_engine<with_backups>(world, memory.tensors(), optimizer_of(), set);
  });
  EXPECT_EQ(said, std::vector<std::string>(3,
                                           "2 backups among 2 workers leave a step no gradient to "
                                           "wait for. Fix: set architecture.backups to at most 1"));
}

TEST(Bounds, AreAgreedUpon) {
  const auto said = errors(3, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    engine_options<bounded> set;
    set.architecture.consistency.staleness = world.rank() == 1 ? 4 : 3;
    make_engine<bounded>(world, memory.tensors(), optimizer_of(), set);
  });
  for (const std::string& each : said) {
    EXPECT_NE(each.find("architecture.staleness"), std::string::npos) << each;
  }
}

// ---- what is counted

TEST(Staleness, IsInTheReportAndOnWorker0) {
  std::string reported;
  push_counts asked;
  transport::run_ranks(3, [&](transport::in_process& world) {
    arena memory(ledger_declarations(2));
    auto engine = make_engine<by_gradient>(world, memory.tensors(), optimizer::sgd());
    if (engine.serves()) {
      engine.serve();
      std::ostringstream out;
      out << engine.report();
      reported = out.str();
      return;
    }
    // Workers take turns, so each finds the updates of the other's pushes since its own last push.
    for (int step = 0; step < 4; ++step) {
      for (int turn = 0; turn < 2; ++turn) {
        if (turn == engine.worker()) {
          engine.ready(tensor_id(1));
          engine.ready(tensor_id(0));
          engine.wait();
        }
        engine.average(0);
      }
    }
    const push_counts seen = engine.pushes();
    EXPECT_EQ(seen.taken(), engine.worker() == 0 ? 16U : 0U);
    if (engine.worker() == 0) {
      asked = seen;
    }
    engine.average(0);
  });
  EXPECT_EQ(asked.staleness[0], 2U);  // worker 0's first push of either tensor
  EXPECT_EQ(asked.staleness[1], 14U);
  EXPECT_DOUBLE_EQ(asked.mean_staleness(), 14.0 / 16);
  EXPECT_NE(reported.find("\n  staleness 0: 2, 1: 14 pushes; 0 dropped, 0 held back\n"),
            std::string::npos)
      << reported;
}

/// Counts continue over a change of plan.
TEST(Staleness, IsCountedOnAfterAReplan) {
  push_counts reported;
  transport::run_ranks(3, [&](transport::in_process& world) {
    arena memory(ledger_declarations(2));
    auto engine = make_engine<by_gradient>(world, memory.tensors(), optimizer::sgd());
    if (engine.serves()) {
      engine.serve();
      reported = engine.report().pushes;
      return;
    }
    for (int step = 0; step < 5; ++step) {
      if (step == 2) {
        engine.replan({});
      }
      hand_in_all(engine, memory);
    }
    engine.average(0);
    EXPECT_EQ(engine.pushes().taken(), engine.worker() == 0 ? 20U : 0U);
    engine.average(0);
  });
  EXPECT_EQ(reported.taken(), 20U);
}

}  // namespace
}  // namespace tutti::test
