// The sums that monitors make over all workers, step by step, compared with plain loops in double.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/summing.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/monitor/counters.hpp"

namespace tutti::test {
namespace {

constexpr int steps = 4;

/// Expects rank 0's monitor to get the sums, across a re-plan, and every other rank's monitor to
/// get equal ones.
template <class Strategy>
void sums_of_all_workers(progress who) {
  for (int workers = 1; workers <= 5; ++workers) {
    std::vector<std::vector<summing::totals>> seen(static_cast<std::size_t>(workers));
    engine_options<Strategy> options;
    options.run.progress = who;
    options.run.deadline = 20;
    transport::run_ranks(workers + servers_in(options), [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer::none(), options,
                                          summing(memory));
      if (engine.serves()) {
        engine.serve();
        return;
      }
      train_and_sum(engine, memory, 0, steps / 2);
      engine.replan(options);
      train_and_sum(engine, memory, steps / 2, steps);
      seen[static_cast<std::size_t>(world.rank())] = engine.observed().steps;
    });
    for (const auto& each : seen) {
      EXPECT_EQ(each, seen[0]);
    }
    expect_sums(seen[0], workers, steps);
  }
}
TEST(Sums, AreThoseOfAllWorkers) {
  for (const progress who : {progress::by_caller, progress::by_thread}) {
    sums_of_all_workers<compose<>>(who);
    sums_of_all_workers<compose<architecture::parameter_server<>>>(who);
  }
}

/// Steps overlap, so what a rank adds for one step may reach another rank during the next. Nothing
/// is lost.
TEST(Sums, OfStepsThatOverlapAreInTheOrderOfSteps) {
  std::vector<std::vector<summing::totals>> seen(3);
  transport::run_ranks(3, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<fusion::up_to>>(world, memory.tensors(), optimizer::none(),
                                                      {}, summing(memory));
    const auto tensors = memory.tensors().size();
    for (int step = 0; step < 50; ++step) {
      for (std::size_t i = tensors; i-- > 0;) {
        engine.wait(tensor_id(i));
        engine.ready(tensor_id(i));
      }
    }
    engine.drain();
    seen[static_cast<std::size_t>(world.rank())] = engine.observed().steps;
  });
  ASSERT_EQ(seen[0].size(), 50U);
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
  double arrived = 0;
  for (const auto& each : seen[0]) {
    arrived += each[2];
  }
  EXPECT_EQ(arrived, 50.0 * 3 * static_cast<double>(tensor_sizes().size()));
}

template <class Strategy>
task simulated_rank(transport::simulated& world, int its_steps,
                    std::vector<std::vector<summing::totals>>& seen) {
  arena memory = model_of(world.rank());
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), {}, summing(memory));
  co_await engine.started();
  for (int step = 0; step < its_steps; ++step) {
    backward(memory, engine.worker(), step);
    for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
      co_await world.sleep(1e-6);
      engine.ready(id);
    }
    for (std::size_t i = 0; i < memory.tensors().size(); ++i) {
      co_await engine.arrival(tensor_id(i));
    }
  }
  co_await engine.close();
  seen[static_cast<std::size_t>(world.rank())] = engine.observed().steps;
}

TEST(Sums, InSimulation) {
  for (int workers = 1; workers <= 5; ++workers) {
    std::vector<std::vector<summing::totals>> seen(static_cast<std::size_t>(workers));
    transport::run_simulated(
        workers, transport::link{1.25e9, 50e-6},
        [&](transport::simulated& world) { return simulated_rank<compose<>>(world, steps, seen); });
    for (const auto& each : seen) {
      EXPECT_EQ(each, seen[0]);
    }
    expect_sums(seen[0], workers, steps);
  }
}

/// Workers that do not wait for each other may take unequally many steps. The totals are those of
/// the steps that all have taken, and no worker waits for more of another that has ended.
TEST(Sums, EndWithTheWorkerThatTakesTheFewestSteps) {
  using alone = compose<architecture::independent>;
  for (const auto& taken : {std::array{1, 3, 2}, {3, 1, 2}, {0, 2, 3}, {2, 2, 0}}) {
    std::vector<std::vector<summing::totals>> seen(3);
    transport::run_ranks(3, [&](transport::in_process& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      arena memory = model_of(world.rank());
      auto engine =
          make_engine<alone>(world, memory.tensors(), optimizer_of(), {}, summing(memory));
      train_and_sum(engine, memory, 0, taken[rank]);
      seen[rank] = engine.observed().steps;
    });
    std::vector<std::vector<summing::totals>> simulated(3);
    transport::run_simulated(3, transport::link{1.25e9, 50e-6}, [&](transport::simulated& world) {
      return simulated_rank<alone>(world, taken[static_cast<std::size_t>(world.rank())], simulated);
    });
    const auto expected = summed_in_double(3, std::ranges::min(taken));
    for (const auto& totals :
         {seen[0], seen[1], seen[2], simulated[0], simulated[1], simulated[2]}) {
      ASSERT_EQ(totals.size(), expected.size());
      for (std::size_t step = 0; step < totals.size(); ++step) {
        EXPECT_NEAR(totals[step][0], expected[step][0], 1e-12 * expected[step][0]);
      }
    }
  }
}

/// A server may be in the next engine before the workers have ended their sums.
TEST(Sums, AreThoseOfOneEngineAfterAnother) {
  using served = compose<architecture::parameter_server<>>;
  transport::run_ranks(5, [&](transport::in_process& world) {
    for (int engines = 0; engines < 10; ++engines) {
      arena memory = model_of(world.rank());
      auto engine =
          make_engine<served>(world, memory.tensors(), optimizer::none(), {}, summing(memory));
      if (engine.serves()) {
        engine.serve();
        continue;
      }
      for (int step = 0; step < 3; ++step) {
        take_step(engine, memory, step);
      }
      engine.wait();
    }
  });
}

/// Returns the bytes that each rank sends for its strategy, and those that it sends for its
/// monitor.
template <class Watching>
std::vector<std::pair<traffic, traffic>> sent(Watching watching) {
  std::vector<std::pair<traffic, traffic>> all(3);
  transport::run_ranks(3, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<architecture::parameter_server<>>>(
        world, memory.tensors(), optimizer_of(), {}, watching(memory));
    if (engine.serves()) {
      engine.serve();
      return;
    }
    train_and_sum(engine, memory, 0, steps);
    all[static_cast<std::size_t>(world.rank())] = {engine.counted(), engine.counted_observing()};
  });
  return all;
}

TEST(Sums, AreCountedApart) {
  const auto plain = sent([](arena&) { return monitor::counters(); });
  const auto adding = sent([](arena& memory) { return summing(memory); });
  for (std::size_t rank = 0; rank < 2; ++rank) {  // rank 1 sends a count and then its numbers
    EXPECT_EQ(adding[rank].first.bytes_sent, plain[rank].first.bytes_sent);
    EXPECT_EQ(adding[rank].first.messages_sent, plain[rank].first.messages_sent);
    EXPECT_GT(plain[rank].first.bytes_sent, 0U);
    EXPECT_EQ(plain[rank].second.bytes_sent, 0U);
    EXPECT_EQ(adding[rank].second.messages_sent, (1 + rank) * steps);
    EXPECT_EQ(adding[rank].second.bytes_sent, steps * (1 + summing::width) * sizeof(double));
  }
}

TEST(Sums, EndWithTheOtherRanks) {
  const auto said = errors(3, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine =
        make_engine<compose<>>(world, memory.tensors(), optimizer::none(), {}, summing(memory));
    train_and_sum(engine, memory, 0, 2);
    if (world.rank() == 1) {
      throw std::runtime_error("out of data");
    }
    train_and_sum(engine, memory, 2, 3);
  });
  EXPECT_EQ(said[1], "out of data");
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_NE(said[rank].find("rank 1"), std::string::npos) << said[rank];
  }
}

TEST(Sums, AreOfEquallyManyNumbersOnEveryRank) {
  for (const int fewer : {0, 2}) {
    const auto said = errors(3, [fewer](transport::in_process& world) {
      arena memory = model_of(world.rank());
      summing adds(memory);
      adds.fewer = world.rank() == fewer ? 1 : 0;
      auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer::none(), {}, adds);
      train_and_sum(engine, memory, 0, 2);
    });
    const std::string wanted =
        fewer == 0 ? "rank 0's monitor sums 2 numbers in a step and rank 1's 3. Fix: "
                   : "rank 0's monitor sums 3 numbers in a step and rank 2's 2. Fix: ";
    for (const std::string& each : said) {
      EXPECT_NE(each.find(wanted), std::string::npos) << each;
    }
  }
}

struct misspelt : monitor::counters {
  std::span<const float> sums() const { return {}; }
};
struct half : monitor::counters {
  void summed(std::span<const double>) {}
};
struct of_any_element : monitor::counters {
  template <class Element>
  std::span<Element> sums() const {
    return {};
  }
};
static_assert(!monitor_policy<misspelt> && !monitor_policy<half>);
static_assert(!monitor_policy<of_any_element>);

}  // namespace
}  // namespace tutti::test
