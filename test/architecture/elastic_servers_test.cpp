// A centre that servers keep, and workers that none holds up. Where workers take turns they are
// compared with the recurrence in double precision; otherwise with what no order of the workers
// changes.
#include "tutti/architecture/elastic_servers.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test {
namespace {

using strategy = compose<architecture::elastic_servers, fusion::up_to, partition::into>;

engine_options<strategy> options_of(int servers, double force, int period = 1) {
  engine_options<strategy> set;
  set.fusion.bytes = 3000;
  set.partition.bytes = 20'000;
  set.architecture = {servers, force, period};
  return set;
}

/// Returns the centre in flat order. Every worker must call it; only worker 0 gets the values.
template <class Engine>
std::vector<float> centre_of(Engine& engine) {
  engine.drain();
  const auto all = engine.collect_from_others();
  std::vector<float> centre(total_elements());
  std::vector<std::size_t> next(all.size());
  for (const chunk& each : engine.planned().chunks) {
    if (!all.empty()) {
      const auto server = static_cast<std::size_t>(each.placed_on - engine.workers());
      const std::vector<float>& part = all[server][next[server]++];
      EXPECT_EQ(part.size(), each.elements);
      std::copy(part.begin(), part.end(),
                centre.begin() + static_cast<std::ptrdiff_t>(each.first_element));
    }
  }
  return centre;
}

constexpr sgd_values values{};

struct descending {
  double x{};
  double momentum{};
  void step(double gradient) {
    momentum = values.momentum * momentum + (gradient + values.weight_decay * x);
    x -= values.learning_rate * momentum;
  }
};

/// Returns, for one element, the models of all workers, which take their steps in turn, and the
/// centre.
std::pair<std::vector<double>, double> in_turns(int workers, int steps, double force, int period,
                                                std::size_t element) {
  std::vector<descending> all(static_cast<std::size_t>(workers), {initial(element), 0});
  double centre = initial(element);
  for (int step = 0; step < steps; ++step) {
    for (int worker = 0; worker < workers; ++worker) {
      descending& mine = all[static_cast<std::size_t>(worker)];
      if (step % period == 0) {
        const double pull = force / workers * (mine.x - centre);
        mine.x -= pull;
        centre += pull;
      }
      mine.step(gradient(worker, step, element));
    }
  }
  std::vector<double> models;
  for (const descending& each : all) {
    models.push_back(each.x);
  }
  return {models, centre};
}

struct turns {
  int workers;
  int servers;
  double force;
  int period;
};

TEST(ElasticServers, AreTheirRecurrenceWhereWorkersTakeTurns) {
  constexpr int steps = 6;
  for (const turns& its : {turns{1, 2, 0.5, 3}, {2, 1, 0.9, 1}, {3, 1, 1.0, 2}, {4, 2, 0.9, 1}}) {
    transport::run_ranks(its.workers + its.servers, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(),
                                          options_of(its.servers, its.force, its.period));
      if (engine.serves()) {
        engine.serve();
        return;
      }
      for (int step = 0; step < steps; ++step) {
        for (int turn = 0; turn < its.workers; ++turn) {
          if (world.rank() == turn) {
            take_step(engine, memory, step);
            engine.wait();
          }
          engine.average(0);
        }
      }
      const std::vector<float> centre = centre_of(engine);
      for (std::size_t i = 0; i < total_elements(); ++i) {
        const auto expected = in_turns(its.workers, steps, its.force, its.period, i);
        ASSERT_NEAR(memory.parameters()[i], expected.first[static_cast<std::size_t>(world.rank())],
                    1e-4)
            << i << " on worker " << world.rank() << " of " << its.workers;
        if (world.rank() == 0) {
          ASSERT_NEAR(centre[i], expected.second, 1e-4) << i << " of " << its.workers;
        }
      }
      // Between two exchanges of a worker there is one of each other worker; before its first there
      // are those of the workers whose turn came before its own.
      push_counts expected;
      for (int worker = 0; worker < its.workers; ++worker) {
        for (int step = 0; step < steps; step += its.period) {
          expected.staleness[static_cast<std::size_t>(step == 0 ? worker : its.workers - 1)] +=
              engine.planned().chunks.size();
        }
      }
      const push_counts seen = engine.pushes();
      EXPECT_TRUE(seen == (world.rank() == 0 ? expected : push_counts())) << seen;
    });
  }
}

/// What a model loses the centre gains. In whatever order workers come, the sum of models and
/// centre changes only by the gradients.
TEST(ElasticServers, LoseNothingInAnyOrder) {
  for (const int workers : {1, 2, 3, 5}) {
    std::vector<double> sum(total_elements());
    std::atomic<int> their_turn{0};
    transport::run_ranks(workers + 2, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(),
                                          optimizer::sgd{.learning_rate = 1}, options_of(2, 1.0));
      if (engine.serves()) {
        engine.serve();
        return;
      }
      take_step(engine, memory, 0);
      engine.wait();
      for (int step = 0; step < 20; ++step) {
        std::ranges::fill(memory.gradients(), 0.0f);
        for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
          engine.ready(id);
        }
        engine.wait();
      }
      const std::vector<float> centre = centre_of(engine);
      while (their_turn != world.rank()) {
        std::this_thread::yield();
      }
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += double{memory.parameters()[i]} + double{centre[i]};  // 0 except on worker 0
      }
      ++their_turn;
    });
    for (std::size_t i = 0; i < sum.size(); ++i) {
      double expected = (workers + 1) * double{initial(i)};
      for (int worker = 0; worker < workers; ++worker) {
        expected -= gradient(worker, 0, i);
      }
      ASSERT_NEAR(sum[i], expected, 1e-3) << i << " of " << workers;
    }
  }
}

/// Worker 1 computes without calling the engine until the others have taken all their steps. Before
/// that it may have asked for the centre, which it does not read meanwhile.
TEST(ElasticServers, HoldNobodyUp) {
  for (const bool asks : {false, true}) {
    std::atomic<bool> computes{false};
    std::atomic<int> ended{0};
    const auto said = errors(4, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto set = options_of(1, 0.9);
      set.run.progress = progress::by_caller;
      set.run.deadline = 10;
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), set);
      if (engine.serves()) {
        engine.serve();
        return;
      }
      if (world.rank() == 1) {
        if (asks) {
          take_step(engine, memory, 0);
        }
        computes = true;
      }
      const seconds end = world.now() + 60;
      while (world.now() < end && (world.rank() == 1 ? ended != 2 : !computes)) {
        std::this_thread::yield();
      }
      for (int step = 0; step < 5; ++step) {
        take_step(engine, memory, step);
      }
      engine.wait();
      ++ended;
    });
    EXPECT_EQ(said, std::vector<std::string>(4));
    EXPECT_EQ(ended, 3);
  }
}

TEST(ElasticServers, GoOnFromACheckpoint) {
  const auto train = [](int from, int to, std::vector<std::string>& files) {
    std::vector<float> ends;
    transport::run_ranks(2, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine =
          make_engine<strategy>(world, memory.tensors(), optimizer_of(), options_of(1, 0.9, 2));
      if (engine.serves()) {
        engine.serve();
        return;
      }
      if (from > 0) {
        std::istringstream in(files.front());
        load(engine, in);
      }
      for (int step = from; step < to; ++step) {
        take_step(engine, memory, step);
      }
      engine.wait();
      std::ostringstream out;
      save(engine, out);
      files.push_back(out.str());
      ends.assign(memory.parameters().begin(), memory.parameters().end());
    });
    return ends;
  };
  std::vector<std::string> none;
  const auto whole = train(0, 7, none);
  std::vector<std::string> half;
  train(0, 3, half);
  EXPECT_EQ(train(3, 7, half), whole);
}

/// The result does not depend on how buckets are cut, and on which server they are, from the fourth
/// step on.
TEST(ElasticServers, OutliveAPlan) {
  const auto ends = [](bool changes) {
    std::pair<std::vector<float>, std::vector<float>> model_and_centre;
    transport::run_ranks(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto set = options_of(2, 0.9);
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), set);
      if (engine.serves()) {
        engine.serve();
        return;
      }
      for (int step = 0; step < 7; ++step) {
        if (changes && step == 4) {
          set.fusion.bytes = 200;
          set.partition.bytes = 7000;
          engine.replan(set);
        }
        take_step(engine, memory, step);
      }
      engine.wait();
      model_and_centre = {{memory.parameters().begin(), memory.parameters().end()},
                          centre_of(engine)};
    });
    return model_and_centre;
  };
  EXPECT_EQ(ends(true), ends(false));
}

TEST(ElasticServers, RefuseForcesAndPeriodsThatCannotBe) {
  const auto said = [](const engine_options<strategy>& set) {
    return errors(2,
                  [&](transport::in_process& world) {
                    arena memory = model_of(world.rank());
                    make_engine<strategy>(world, memory.tensors(), optimizer_of(), set);
                  })
        .front();
  };
  EXPECT_NE(said(options_of(1, 1.5)).find("force must be from 0 to 1"), std::string::npos);
  EXPECT_NE(said(options_of(1, 0.5, 0)).find("period must be at least 1 step"), std::string::npos);
  EXPECT_NE(said(options_of(2, 0.5)).find("leave no worker"), std::string::npos);
}

}  // namespace
}  // namespace tutti::test
