// Servers that do not wait for all workers keep what they hold of each chunk where a plan changes,
// by a re-plan or a checkpoint, and refuse options under which it would mean something else.
#include <cstddef>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/optimizer/adam.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::test {
namespace {

template <class Consistency, class UpdatedBy = updated_by::servers>
using served = compose<architecture::parameter_server<Consistency, UpdatedBy>, fusion::up_to>;
using with_backups = served<consistency::backup_workers>;
using compensated = served<consistency::delay_compensated>;

constexpr int steps = 9;
constexpr int servers = 2;

arena small_model(int rank) {
  return model_of(rank, {{"a", 37}, {"b", 1}, {"c", 500}, {"d", 0}, {"e", 64}});
}

/// Returns options of one of two plans that fuse other tensors and place chunks on other servers.
template <class Strategy>
engine_options<Strategy> plan_of(int which) {
  engine_options<Strategy> set;
  set.run.deadline = 20;
  set.fusion.bytes = which == 0 ? 100 : 4000;
  set.architecture.servers = servers;
  set.architecture.placed_by =
      which == 0 ? architecture::placed_by::naive : architecture::placed_by::built_in;
  return set;
}

/// How training goes on under other options before a step.
enum class by { nothing, replan, checkpoint };

/// Returns each worker's parameters after all steps. `plan(which)` returns the options of either
/// plan, and the second one is in use from step `at` on. Workers take their steps in turn, so that
/// it is known in which order servers get pushes.
template <class Strategy, class Optimizer, class Plan>
std::vector<std::vector<float>> in_turns(int workers, const Optimizer& values, by how, int at,
                                         Plan plan) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(workers));
  std::vector<std::string> files(all.size());
  const auto part = [&](int first, int last, int which) {
    transport::run_ranks(workers + servers, [&](transport::in_process& world) {
      arena memory = small_model(world.rank());
      auto engine = make_engine<Strategy>(world, memory.tensors(), values, plan(which));
      if (engine.serves()) {
        engine.serve();
        return;
      }
      const auto rank = static_cast<std::size_t>(world.rank());
      if (first != 0) {
        std::istringstream in(files[rank]);
        load(engine, in);
      }
      for (int step = first; step < last; ++step) {
        if (step == at && how == by::replan) {
          engine.replan(plan(1));
        }
        for (int turn = 0; turn < workers; ++turn) {
          if (turn == world.rank()) {
            take_step(engine, memory, step);
            engine.wait();
          }
          engine.average(0);
        }
      }
      std::ostringstream out;
      save(engine, out);
      files[rank] = out.str();
      all[rank].assign(memory.parameters().begin(), memory.parameters().end());
    });
  };
  part(0, how == by::checkpoint ? at : steps, 0);
  if (how == by::checkpoint) {
    part(at, steps, 1);
  }
  return all;
}

template <class Strategy, class Optimizer>
void changes_nothing(const Optimizer& values) {
  for (const int workers : {1, 2, 3, 5}) {
    const auto trained = [&](by how) {
      return in_turns<Strategy>(workers, values, how, 5, plan_of<Strategy>);
    };
    EXPECT_EQ(trained(by::replan), trained(by::nothing)) << workers << " workers";
  }
}
/// The optimizer of a server counts updates, which are those of all workers.
TEST(ReplannedServers, GoOnWithEveryWorkersPushes) {
  const optimizer::adam values{.learning_rate = 0.01f};
  changes_nothing<served<consistency::asynchronous>>(values);
  changes_nothing<served<consistency::bounded_staleness>>(values);
  changes_nothing<compensated>(values);
}
TEST(ReplannedServers, GoOnWithEveryWorkersDifferences) {
  changes_nothing<served<consistency::asynchronous, updated_by::workers>>(optimizer_of());
  changes_nothing<served<consistency::bounded_staleness, updated_by::workers>>(optimizer_of());
}

/// Two or three gradients of the one worker make a step of its servers, so that some have been
/// added up at most of the moments at which the plan changes.
TEST(ReplannedServers, KeepGradientsOfAStepThatHasBegun) {
  for (const int backups : {-1, -2}) {
    for (int at = 1; at < steps; ++at) {
      const auto trained = [backups, at](by how, int second) {
        return in_turns<with_backups>(1, optimizer_of(), how, at, [&](int which) {
          auto set = plan_of<with_backups>(which * second);
          set.architecture.consistency.backups = backups;
          return set;
        });
      };
      const auto whole = trained(by::nothing, 0);
      EXPECT_EQ(trained(by::replan, 1), whole) << backups << ", step " << at;
      EXPECT_EQ(trained(by::checkpoint, 0), whole) << backups << ", step " << at;
    }
  }
}

/// Returns the errors of a worker and its server where the options change from `was` to `wanted`
/// after a step.
template <class Strategy>
std::vector<std::string> said(by how, const engine_options<Strategy>& was,
                              const engine_options<Strategy>& wanted) {
  std::string file;
  const auto part = [&](const engine_options<Strategy>& set, auto act) {
    return errors(1 + servers, [&](transport::in_process& world) {
      arena memory = small_model(world.rank());
      auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
      if (engine.serves()) {
        engine.serve();
        return;
      }
      act(engine, memory);
    });
  };
  auto first = part(was, [&](auto& engine, arena& memory) {
    take_step(engine, memory, 0);
    engine.wait();
    if (how == by::replan) {
      engine.replan(wanted);
    }
    std::ostringstream out;
    save(engine, out);
    file = out.str();
  });
  return how == by::replan ? first : part(wanted, [&](auto& engine, arena&) {
    std::istringstream in(file);
    load(engine, in);
  });
}

/// A server may be the first to refuse.
void expect_said(const std::vector<std::string>& all, const std::string& why) {
  EXPECT_NE(all[0].find(why), std::string::npos) << all[0];
}
TEST(ReplannedServers, RefuseAMeanSquareThatTheyDoNotHave) {
  using rule = consistency::delay_compensated::rule;
  for (const by how : {by::replan, by::checkpoint}) {
    for (const rule first : {rule::constant, rule::adaptive}) {
      auto was = plan_of<compensated>(0);
      was.architecture.consistency.lambda_is = first;
      auto wanted = was;
      wanted.architecture.consistency.lambda = 0.1;
      EXPECT_EQ(said(how, was, wanted)[0], "");
      wanted.architecture.consistency.lambda_is =
          first == rule::constant ? rule::adaptive : rule::constant;
      expect_said(said(how, was, wanted),
                  "architecture.lambda_is cannot change while a model trains, because the mean "
                  "square that the adaptive form divides by is remembered from the first push on. "
                  "Fix: keep it, or start again");
    }
  }
}
TEST(ReplannedServers, RefuseStepsOfAnotherNumberOfGradientsOnceTheyAreSeveralEach) {
  for (const by how : {by::replan, by::checkpoint}) {
    auto was = plan_of<with_backups>(0);
    auto wanted = was;
    wanted.architecture.consistency.backups = -1;
    expect_said(
        said(how, was, wanted),
        "architecture.backups cannot change from 0 to -1 after 1 steps, because tokens have "
        "been dealt out for steps of more gradients than there are workers. Fix: keep it");
    std::swap(was, wanted);
    expect_said(
        said(how, was, wanted),
        "architecture.backups cannot change from -1 to 0 after 1 steps, because tokens have "
        "been dealt out for steps of more gradients than there are workers. Fix: keep it");
  }
}

}  // namespace
}  // namespace tutti::test
