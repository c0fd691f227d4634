// An engine's verbs beside `ready` and `wait`, each compared with explicit arithmetic.
#include "tutti/core/engine.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::test {
namespace {

using architecture::all_reduce;
using architecture::parameter_server;
using canonical = compose<all_reduce<collective::canonical>>;
using adding_servers = compose<parameter_server<>>;
using updating_servers = compose<parameter_server<consistency::synchronous, updated_by::servers>>;

// The order in which policies are named, and naming a default, make no difference.
static_assert(std::is_same_v<compose<fusion::all, partition::into, schedule::by_priority>,
                             compose<schedule::by_priority, fusion::all, partition::into>>);
static_assert(std::is_same_v<compose<>, compose<schedule::as_ready, fusion::none>>);
static_assert(!std::is_same_v<compose<>, compose<fusion::all>>);

std::vector<float> parameters_of(arena& memory) {
  return {memory.parameters().begin(), memory.parameters().end()};
}

/// Runs `body` on every worker with the oracle's model.
template <class Strategy, class Optimizer, class Body>
void on_workers(int workers, Optimizer values, engine_options<Strategy> options, Body body) {
  transport::run_ranks(workers + servers_in<Strategy>(options), [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), values, options);
    if (engine.serves()) {
      EXPECT_EQ(engine.serve(), 0);
      return;
    }
    body(memory, engine);
  });
}

template <class Engine>
void ready_all(Engine& engine) {
  for (std::size_t id = tensor_sizes().size(); id-- > 0;) {
    engine.ready(tensor_id(id));
  }
}

template <class Strategy>
void threads_may_share(progress who) {
  engine_options<Strategy> options;
  options.run.progress = who;
  on_workers<Strategy>(2, optimizer_of(), options, [](arena& memory, auto& engine) {
    for (int step = 0; step < 20; ++step) {
      engine.wait();
      backward(memory, engine.worker(), step);
      const auto order = shuffled(tensor_sizes().size(), engine.worker(), step);
      const auto every_second = [&](std::size_t first) {
        for (std::size_t i = first; i < order.size(); i += 2) {
          engine.ready(order[i]);
        }
        for (std::size_t i = first; i < order.size(); i += 2) {
          engine.wait(order[i]);
        }
      };
      std::thread other(every_second, 1);
      every_second(0);
      other.join();
    }
    engine.wait();
    EXPECT_EQ(parameters_of(memory), trained(2, 20));
  });
}
TEST(Engine, TwoThreadsMayCallItWhileAThirdMovesIt) {
  threads_may_share<canonical>(progress::by_thread);
  threads_may_share<adding_servers>(progress::by_thread);
}
TEST(Engine, TwoThreadsMayCallItAndMoveItInTurn) {
  threads_may_share<canonical>(progress::by_caller);
}

/// What each worker adds up over several backward passes is averaged over workers and passes.
template <class Strategy>
void accumulates() {
  constexpr int workers = 2;
  constexpr int passes = 4;
  engine_options<Strategy> options;
  options.run.accumulation = passes;
  on_workers<Strategy>(workers, optimizer::none{}, options, [](arena& memory, auto& engine) {
    for (int step = 0; step < 3; ++step) {
      std::ranges::fill(memory.gradients(), 0.0f);
      for (int pass = 0; pass < passes; ++pass) {
        engine.wait();
        EXPECT_EQ(engine.steps(), static_cast<std::uint64_t>(step));
        for (std::size_t i = 0; i < memory.gradients().size(); ++i) {
          memory.gradients()[i] += gradient(engine.worker(), step * passes + pass, i);
        }
        ready_all(engine);
      }
      engine.wait();
      for (std::size_t i = 0; i < memory.gradients().size(); ++i) {
        float sum = 0;
        for (int worker = 0; worker < workers; ++worker) {
          float mine = 0;
          for (int pass = 0; pass < passes; ++pass) {
            mine += gradient(worker, step * passes + pass, i);
          }
          sum = worker == 0 ? mine : sum + mine;
        }
        ASSERT_EQ(memory.gradients()[i], sum / static_cast<float>(workers * passes)) << i;
      }
    }
  });
}
TEST(Engine, AccumulationSendsEveryFewPasses) {
  accumulates<canonical>();
  accumulates<adding_servers>();
}

TEST(Engine, AnAbsentGradientCountsAsZero) {
  on_workers<canonical>(4, optimizer::none{}, {}, [](arena& memory, auto& engine) {
    backward(memory, engine.worker(), 0);
    for (std::size_t id = tensor_sizes().size(); id-- > 0;) {
      if (id == 0 && engine.worker() % 2 == 1) {
        engine.absent(tensor_id(id));
      } else {
        engine.ready(tensor_id(id));
      }
    }
    engine.wait();
    const std::size_t first =
        total_elements() - tensor_sizes()[0];  // tensor 0 is last in backward order
    for (std::size_t i = 0; i < memory.gradients().size(); ++i) {
      float sum = gradient(0, 0, i);
      for (int worker = 1; worker < 4; ++worker) {
        sum += i >= first && worker % 2 == 1 ? 0.0f : gradient(worker, 0, i);
      }
      ASSERT_EQ(memory.gradients()[i], sum / 4.0f) << i;
    }
  });
}

/// A tensor is absent in either pass of an accumulation; the gradients of the other workers stay.
TEST(Engine, AbsentInOnePassKeepsTheOthersGradients) {
  const engine_options<canonical> twice{.run = {.accumulation = 2}};
  on_workers<canonical>(2, optimizer::none{}, twice, [](arena& memory, auto& engine) {
    std::ranges::fill(memory.gradients(), 7.0f);  // left over from earlier training of the model
    const auto add = [&](std::size_t id) {
      for (float& each : memory.tensors()[id].gradient) {
        each += 1;
      }
    };
    for (std::size_t id = tensor_sizes().size(); id-- > 1;) {  // tensor 0 is absent in this pass
      std::ranges::fill(memory.tensors()[id].gradient, 0.0f);
      add(id);
      engine.ready(tensor_id(id));
    }
    engine.absent(tensor_id(0));
    for (std::size_t id = tensor_sizes().size(); id-- > 0;) {
      if (id == 1) {
        engine.absent(tensor_id(id));
      } else {
        add(id);
        engine.ready(tensor_id(id));
      }
    }
    engine.wait();
    for (std::size_t id = 0; id < tensor_sizes().size(); ++id) {
      for (const float each : memory.tensors()[id].gradient) {
        ASSERT_EQ(each, id < 2 ? 0.5f : 1.0f) << id;
      }
    }
  });
}

TEST(Engine, AbsentWhileItIsOnItsWayIsRefusedAndTouchesNothing) {
  using whole = compose<all_reduce<collective::canonical>, fusion::all>;
  on_workers<whole>(2, optimizer_of(), {}, [](arena& memory, auto& engine) {
    backward(memory, engine.worker(), 0);
    engine.ready(tensor_id(2));
    EXPECT_THROW(engine.absent(tensor_id(2)), usage_error);
    for (const std::size_t id : {0U, 1U, 3U, 4U, 5U}) {
      engine.ready(tensor_id(id));
    }
    engine.wait();
    EXPECT_EQ(parameters_of(memory), trained(2, 1));
  });
}

/// Between steps a rank may read what the engine has done, whichever thread drives it.
/// ThreadSanitizer sees an unordered write; other builds would see a count that is too low.
TEST(Engine, StepsAreCountedWhenTheLastTensorHasArrived) {
  engine_options<canonical> options;
  options.run.progress = progress::by_thread;
  on_workers<canonical>(1, optimizer::none{}, options, [](arena&, auto& engine) {
    for (std::uint64_t step = 1; step <= 2000; ++step) {
      ready_all(engine);
      engine.wait();
      ASSERT_EQ(engine.steps(), step);
    }
  });
}

template <class Engine, class Block>
task blocks_when_it_arrives(Engine& engine, Block block) {
  co_await engine.arrival(tensor_id(0));
  block(engine);
}
/// A blocking call inside a coroutine would wait for the thread that runs it. Rank 1 follows when
/// rank 0's coroutine waits.
template <class Block>
void blocks_inside(Block block) {
  std::atomic<bool> waits{false};
  const engine_options<canonical> options{.run = {.progress = progress::by_caller}};
  on_workers<canonical>(2, optimizer::none{}, options, [&](arena&, auto& engine) {
    if (engine.worker() == 1) {
      while (!waits) {
        std::this_thread::yield();
      }
      engine.ready(tensor_id(0));
      engine.wait();
      return;
    }
    engine.ready(tensor_id(1));
    engine.ready(tensor_id(0));
    task inside = blocks_when_it_arrives(engine, block);
    inside.start(engine.world().ready_coroutines());
    waits = true;
    engine.wait(tensor_id(0));
  });
}
TEST(EngineDeathTest, NothingBlocksInsideACoroutine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(blocks_inside([](auto& engine) { engine.wait(); }), "inside a coroutine");
  EXPECT_DEATH(blocks_inside([](auto& engine) { engine.average(1); }), "inside a coroutine");
}

/// Ends as a program does whose engine has static storage: the engine is destroyed after the
/// thread's own variables.
[[noreturn]] void ends_before_its_engine(progress moved) {
  static transport::in_process::fabric job(1);
  static arena memory = model_of(0);
  static auto engine =
      make_engine<canonical>(job.end(0), memory.tensors(), optimizer_of(),
                             engine_options<canonical>{.run = {.progress = moved}});
  ready_all(engine);
  engine.wait();
  std::exit(0);
}
TEST(EngineDeathTest, OneOfStaticStorageEndsWithTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ends_before_its_engine(progress::by_caller), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ends_before_its_engine(progress::by_thread), testing::ExitedWithCode(0), "");
}

/// `ready` returns to the backward pass whether or not a peer is ready, too. Waiting for a late
/// peer would cost more than a microsecond a tensor. The gradients are so short that the measured
/// time is that of the calls alone. The rank that comes last never waits, and serves as the
/// reference.
TEST(Engine, ReadyWaitsForNobody) {
  using strategy = compose<architecture::all_reduce<collective::addressable>>;
  constexpr std::size_t tensors = 50;
  constexpr int steps = 20;       // rank 1 is late in every second step
  std::atomic<int> handed_in{0};  // how often a rank has handed in all tensors of a step
  std::array<seconds, 2> shortest{1, 1};
  transport::run_ranks(2, [&](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>(tensors, {"each", 8}));
    const engine_options<strategy> options{.run = {.progress = progress::by_caller}};
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), options);
    for (int step = 0; step < steps; ++step) {
      const int late = step % 2;
      const seconds begin = world.now();
      while (handed_in < 2 * step + (world.rank() == late ? 1 : 0)) {
        if (world.now() - begin > 30) {
          throw std::runtime_error("ready() waits for a peer");
        }
        std::this_thread::yield();
      }
      const seconds before = world.now();
      for (std::size_t id = tensors; id-- > 0;) {
        engine.ready(tensor_id(id));
      }
      if (world.rank() == 0) {
        seconds& least = shortest[static_cast<std::size_t>(late)];
        least = std::min(least, world.now() - before);
      }
      ++handed_in;
      engine.wait();
    }
  });
  // A rank that waits for its peer spends a hundred microseconds a tensor. Sanitizers slow down
  // everything else.
#ifdef TUTTI_SANITIZED
  constexpr seconds bound = 50e-6;
#else
  constexpr seconds bound = 1e-6;
#endif
  EXPECT_LT(shortest[1], shortest[0] + bound * tensors);
}

/// Says that its payloads add, but they begin with a number that only `wire_bytes` shows.
struct with_a_header : compression::none {
  static constexpr bool identity = false;
  static std::size_t wire_bytes(std::size_t elements) { return 4 + 4 * elements; }
};
/// A collective may cut payloads anywhere, so a payload must hold nothing but its elements.
TEST(Engine, AddsNoPayloadsThatHoldMoreThanTheirElements) {
  using strategy = compose<with_a_header, all_reduce<>>;
  const auto refused = [](std::size_t elements, const std::string& sentence) {
    const auto said = errors(2, [elements](transport::in_process& world) {
      arena memory(std::vector<arena::declaration>{{"weight", elements}});
      make_engine<strategy>(world, memory.tensors(), optimizer_of());
    });
    EXPECT_NE(said[0].find("with_a_header is declared summable, but its payload is " + sentence),
              std::string::npos)
        << said[0];
    EXPECT_EQ(said[1], said[0]);
  };
  refused(10, "44 bytes for 10 elements, 8 for one and 4 for none. Fix: ");
  refused(1, "8 bytes for 1 elements, 8 for one and 4 for none. Fix: ");
}

TEST(Engine, AStepHasAPass) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory(declarations());
    make_engine<canonical>(world, memory.tensors(), optimizer_of(), {.run = {.accumulation = 0}});
  });
  for (const std::string& each : said) {
    EXPECT_NE(each.find("run.accumulation = 0 leaves"), std::string::npos) << each;
  }
}

TEST(Engine, AWaitHasALength) {
  for (const seconds deadline : {0.0, -1.0, std::numeric_limits<seconds>::quiet_NaN()}) {
    const auto said = errors(2, [deadline](transport::in_process& world) {
      arena memory(declarations());
      make_engine<canonical>(world, memory.tensors(), optimizer_of(),
                             {.run = {.deadline = deadline}});
    });
    for (const std::string& each : said) {
      EXPECT_NE(each.find("run.deadline must be above 0. Fix: "), std::string::npos) << each;
    }
  }
}

/// Returns what each of three ranks says if all of them call `act(engine)` and then train.
template <class Strategy, class Act>
std::vector<std::string> said_of_an_act_of_all(Act act) {
  return errors(3, [&act](transport::in_process& world) {
    arena memory(declarations());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of());
    act(engine);
    ready_all(engine);
    engine.wait();
  });
}

/// No worker's act fails before the server's. `drain` is what save, load and replan begin with.
TEST(Engine, AServerDoesNotTrain) {
  const auto refused = [](auto act) {
    EXPECT_EQ(said_of_an_act_of_all<adding_servers>(act)[2],
              "this rank is a server and does not train. Fix: if (engine.serves()) return "
              "engine.serve();");  // the last of three ranks serves
  };
  refused([](auto& engine) { engine.ready(tensor_id(0)), engine.wait(tensor_id(0)); });
  refused([](auto& engine) { engine.average(0); });
  refused([](auto& engine) { engine.drain(); });
  refused([](auto& engine) { engine.change({.learning_rate = 3}); });
}
TEST(Engine, AWorkerDoesNotServe) {
  for (const std::string& each :
       said_of_an_act_of_all<canonical>([](auto& engine) { engine.serve(); })) {
    EXPECT_TRUE(each.starts_with("this rank trains and is no server. Fix: ")) << each;
  }
}

TEST(Engine, AverageIsTheWorkersMean) {
  const auto check = [](arena&, auto& engine) {
    for (int again = 0; again < 3; ++again) {
      EXPECT_EQ(engine.average(3.0 * engine.worker() + again), 3.0 + again);
    }
  };
  on_workers<canonical>(3, optimizer_of(), {}, check);
  on_workers<adding_servers>(3, optimizer_of(), {.architecture = {.servers = 2}}, check);
}

/// Returns the oracle's parameters with another learning rate from step `when` on.
std::vector<float> trained_with_a_change(int workers, int steps, int when, float rate) {
  const std::size_t n = total_elements();
  const sgd_values set;
  std::vector<float> x(n);
  std::vector<float> m(n, 0.0f);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = initial(i);
    for (int step = 0; step < steps; ++step) {
      float sum = gradient(0, step, i);
      for (int worker = 1; worker < workers; ++worker) {
        sum += gradient(worker, step, i);
      }
      m[i] = set.momentum * m[i] +
             (sum * (1.0f / static_cast<float>(workers)) + set.weight_decay * x[i]);
      x[i] -= (step < when ? set.learning_rate : rate) * m[i];
    }
  }
  return x;
}

template <class Strategy>
void changes_the_optimizer(engine_options<Strategy> options = {}) {
  constexpr int workers = 3;
  on_workers<Strategy>(workers, optimizer_of(), options, [](arena& memory, auto& engine) {
    for (int step = 0; step < 9; ++step) {
      if (step == 4) {
        auto other = engine.values();
        other.learning_rate = 0.01f;
        engine.change(other);
      }
      engine.wait();
      backward(memory, engine.worker(), step);
      ready_all(engine);
    }
    engine.wait();
    EXPECT_EQ(parameters_of(memory), trained_with_a_change(workers, 9, 4, 0.01f));
  });
}
TEST(Engine, TheOptimizerMayChangeBetweenSteps) {
  changes_the_optimizer<canonical>();
  changes_the_optimizer<adding_servers>();
  changes_the_optimizer<updating_servers>({.architecture = {.servers = 2}});
}

/// Without an optimizer, means are returned in the gradients' memory and parameters are left alone.
template <class Strategy>
void gives_means(engine_options<Strategy> options = {}) {
  on_workers<Strategy>(3, optimizer::none{}, options, [](arena& memory, auto& engine) {
    for (int step = 0; step < 3; ++step) {
      engine.wait();
      backward(memory, engine.worker(), step);
      ready_all(engine);
      engine.wait();
      for (std::size_t i = 0; i < memory.gradients().size(); ++i) {
        const float sum = gradient(0, step, i) + gradient(1, step, i) + gradient(2, step, i);
        ASSERT_EQ(memory.gradients()[i], sum * (1.0f / 3.0f)) << i;
        ASSERT_EQ(memory.parameters()[i], initial(i)) << i;
      }
    }
  });
}
TEST(Engine, WithoutAnOptimizerGradientsAreAveraged) {
  gives_means<compose<all_reduce<collective::canonical>, fusion::all, partition::into>>(
      {.partition = {.bytes = 5000}});
  gives_means<adding_servers>();
}

TEST(Engine, EverybodyStartsWithRankZerosParameters) {
  const auto check = [](arena& memory, auto&) {
    for (std::size_t i = 0; i < memory.parameters().size(); ++i) {
      ASSERT_EQ(memory.parameters()[i], initial(i)) << i;
    }
  };
  on_workers<canonical>(5, optimizer_of(), {}, check);
  on_workers<updating_servers>(2, optimizer_of(), {.architecture = {.servers = 3}}, check);
}

TEST(Engine, ReadyTwiceThrowsAndOneCanGoOn) {
  using whole = compose<all_reduce<collective::canonical>, fusion::all>;
  on_workers<whole>(2, optimizer_of(), {}, [](arena& memory, auto& engine) {
    backward(memory, engine.worker(), 0);
    engine.ready(tensor_id(3));
    EXPECT_THROW(engine.ready(tensor_id(3)), usage_error);
    for (const std::size_t id : {0U, 1U, 2U, 4U, 5U}) {
      engine.ready(tensor_id(id));
    }
    engine.wait();
    EXPECT_EQ(parameters_of(memory), trained(2, 1));
  });
}

}  // namespace
}  // namespace tutti::test
