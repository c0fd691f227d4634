// Ranks that run out of batches one after the other, compared with plain loops in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/extent.hpp"
#include "support/joining.hpp"
#include "support/training.hpp"
#include "support/training_worlds.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::test {
namespace {

template <class Strategy, class World = on_threads>
std::vector<ending> trained_in(const batches_of_ranks& epochs, engine_options<Strategy> options,
                               sgd_values set = {}) {
  const std::size_t size = epochs[0].size();
  std::vector<ending> all(size);
  options.run.deadline = 20;
  const auto said = errors<World>(static_cast<int>(size), [&](auto& world) {
    all[static_cast<std::size_t>(world.rank())] =
        joined_over<Strategy>(world, epochs, options, set);
  });
  EXPECT_EQ(said, std::vector<std::string>(size));
  return all;
}

template <class Strategy, class World = on_threads>
void join_one_after_the_other(engine_options<Strategy> options = {}) {
  for (int size = 1; size <= 5; size += all_of_a_product ? 1 : 2) {
    for (const auto& epochs : settings(size)) {
      are_as_expected(trained_in<Strategy, World>(epochs, options), epochs,
                      options.run.accumulation);
    }
  }
}

using negotiated = compose<coordination::negotiated>;
using gathered = compose<coordination::negotiated, fusion::when_ready>;
using windowed = compose<coordination::negotiated, partition::into, schedule::by_priority>;

TEST(Join, WhoHasNoBatchLeftTakesPartWithZeros) {
  for (const progress who : {progress::by_caller, progress::by_thread}) {
    engine_options<negotiated> options;
    options.run.progress = who;
    join_one_after_the_other<negotiated>(options);
  }
}

TEST(Join, LaunchesThatAreGatheredAreNamed) {
  engine_options<gathered> options;
  options.fusion = {.bytes = 4000, .cycle = 1e-4};
  options.coordination = {coordination::identity::name, 3};
  options.run.progress = progress::by_thread;
  join_one_after_the_other<gathered>(options);
}

TEST(Join, AWindowOfCreditGoesOn) {
  engine_options<windowed> options;
  options.partition.bytes = 8192;
  options.schedule = {8192, schedule::credit_rule::fits};
  join_one_after_the_other<windowed>(options);
}

TEST(Join, PassesThatWereAddedUpAreSentFirst) {
  engine_options<negotiated> options;
  options.run.accumulation = 3;
  join_one_after_the_other<negotiated>(options);
}

/// A tensor that has had both passes of the step has no zeros added, and one that has had one has
/// one more: no tensor takes a third step.
TEST(Join, WithinAStepOnlyWhatIsMissingIsHandedIn) {
  engine_options<negotiated> options;
  options.run.accumulation = 2;
  const auto trained = [&options](unsigned last_passes) {
    std::vector<ending> all(2);
    transport::run_ranks(2, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<negotiated>(world, memory.tensors(), optimizer_of(), options);
      for (int step = 0; step < 2; ++step) {
        engine.wait();
        backward(memory, world.rank(), step);
        for (std::size_t i = memory.tensors().size(); i-- > 0;) {
          const bool is_short = world.rank() == 1 && step == 1 && i > 0;
          for (unsigned pass = 0; pass < (is_short ? last_passes : 2); ++pass) {
            engine.ready(tensor_id(i));
          }
        }
      }
      engine.join();
      ending& mine = all[static_cast<std::size_t>(world.rank())];
      mine.parameters.assign(memory.parameters().begin(), memory.parameters().end());
      mine.steps = engine.steps();
    });
    return all;
  };
  const auto whole = trained(2);
  const auto cut = trained(1);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(cut[rank].steps, 2U);
    EXPECT_EQ(cut[rank].parameters, whole[0].parameters);
  }
}

/// A rank joins within a step, and the memory for the zeros of the rest exceeds the limit, because
/// no other gradient would be given back while the rank waits.
TEST(Join, MemoryForZerosIsLentAtOnce) {
  using lending =
      compose<coordination::negotiated,
              architecture::sharded<collective::canonical, architecture::gradients::given_back>>;
  engine_options<lending> options;
  options.architecture.lent_bytes = 1;
  options.run.deadline = 5;
  const auto said = errors(2, [&options](transport::in_process& world) {
    arena memory(declarations(), without_gradients());
    auto engine = make_engine<lending>(world, memory.tensors(), optimizer_of(), options);
    for (int step = 0; step < 2; ++step) {
      const std::size_t last = step == 1 && world.rank() == 1 ? memory.tensors().size() - 1 : 0;
      for (std::size_t i = memory.tensors().size(); i-- > last;) {
        engine.wait(tensor_id(i));
        std::ranges::fill(engine.gradient(tensor_id(i)), 1.0f);
        engine.ready(tensor_id(i));
      }
    }
    engine.join();
    EXPECT_EQ(engine.steps(), 2u);
  });
  EXPECT_EQ(said, std::vector<std::string>(2));
}

TEST(Join, WhoAveragesMeanwhileIsNamedWithItsCall) {
  engine_options<negotiated> options;
  options.run.deadline = 1;
  for (const int joins : {0, 1}) {
    const auto said = errors(2, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<negotiated>(world, memory.tensors(), optimizer_of(), options);
      if (world.rank() == joins) {
        engine.join();
      } else {
        engine.average(1);
      }
    });
    const std::string owed = joins == 0 ? "rank 0 called join() and never called average()"
                                        : "rank 0 called average() and never submitted tensor5";
    EXPECT_EQ(said, std::vector<std::string>(2, owed));
  }
}

TEST(Join, GradientsLieInStreams) {
  join_one_after_the_other<gathered, on_host_streams>();
  join_one_after_the_other<windowed, in_stream_order>({.partition = {8192}, .schedule = {8192}});
}

/// What is contributed equals what is applied plus the residuals, including those of ranks that
/// have joined.
TEST(Join, ErrorFeedbackLosesNothing) {
  using strategy =
      compose<coordination::negotiated, compression::error_feedback<compression::top_k>>;
  const batches_of_ranks epochs{{2, 5, 3}};
  engine_options<strategy> options;
  options.compression.density = 0.05;
  const auto all = trained_in<strategy>(epochs, options, {1.0f, 0.0f, 0.0f});
  double worst = 0;
  for (std::size_t i = 0; i < total_elements(); ++i) {
    double contributed = 0;
    double residuals = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      residuals += static_cast<double>(all[at].residuals[i]);
      residuals += 3 * static_cast<double>(all[at].of_means[i]);
      for (int step = 0; step < epochs[0][at]; ++step) {
        contributed += static_cast<double>(gradient(rank, step, i));
      }
    }
    const double applied =
        3 * (static_cast<double>(initial(i)) - static_cast<double>(all[0].parameters[i]));
    worst = std::max(worst, std::abs(contributed - applied - residuals));
  }
  EXPECT_LE(worst, 3 * allowed(epochs));
  EXPECT_EQ(all[1].parameters, all[0].parameters);
  EXPECT_EQ(all[2].parameters, all[0].parameters);
}

template <class Strategy>
task simulated_rank(transport::simulated& world, const std::vector<int>& batches,
                    engine_options<Strategy> options, std::vector<ending>& all) {
  const auto rank = static_cast<std::size_t>(world.rank());
  arena memory = model_of(world.rank());
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
  co_await engine.started();
  for (int step = 0; step < batches[rank]; ++step) {
    for (std::size_t i = 0; i < memory.tensors().size(); ++i) {
      co_await engine.arrival(tensor_id(i));
    }
    backward(memory, world.rank(), step);
    for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
      co_await world.sleep(1e-6);
      engine.ready(id);
    }
  }
  co_await engine.joined();
  all[rank].parameters.assign(memory.parameters().begin(), memory.parameters().end());
  all[rank].steps = engine.steps();
  all[rank].agenda = engine.agenda();
  co_await engine.close();
}

TEST(Join, InSimulation) {
  engine_options<gathered> options;
  options.fusion = {.bytes = 4000, .cycle = 1e-4};
  for (int size = 1; size <= 5; ++size) {
    const batches_of_ranks epochs = settings(size)[0];
    std::vector<ending> all(static_cast<std::size_t>(size));
    transport::run_simulated(size, transport::link{1.25e9, 50e-6},
                             [&](transport::simulated& world) {
                               return simulated_rank<gathered>(world, epochs[0], options, all);
                             });
    are_as_expected(all, epochs);
  }
}

// ---- who leaves without joining

/// Returns the error of each of three ranks, each of which takes its `batches` and leaves. `who`
/// drives the communication.
template <class Strategy>
std::vector<std::string> left(const std::vector<int>& batches, progress who,
                              engine_options<Strategy> options = {}) {
  options.run.deadline = 60;  // the tests must not depend on it
  options.run.progress = who;
  return errors(3, [&](transport::in_process& world) {
    const int mine = batches[static_cast<std::size_t>(world.rank())];
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
    for (int step = 0; step < mine; ++step) {
      backward(memory, world.rank(), step);
      const bool last = step + 1 == *std::ranges::max_element(batches);
      for (std::size_t i = last ? 2 : memory.tensors().size(); i-- > 0;) {
        engine.ready(tensor_id(i));
      }
      engine.wait();
    }
  });
}

/// The last step has two tensors that only ranks with a batch report.
TEST(Leaving, WhoLeavesOthersWaitingIsNamedWithTheTensors) {
  const std::string fix =
      ". Fix: give every rank as many batches, or call join() where there are no more; call "
      "replan() on every rank between the same two steps";
  for (const progress who : {progress::by_caller, progress::by_thread}) {
    for (const auto by : {coordination::identity::number, coordination::identity::name}) {
      engine_options<gathered> options;
      options.fusion = {.bytes = 4000, .cycle = 0};
      options.coordination.by = by;
      for (const std::vector<int>& batches :
           {std::vector<int>{2, 1, 2}, std::vector<int>{1, 2, 2}, std::vector<int>{2, 1, 1}}) {
        const auto said = left<gathered>(batches, who, options);
        int named = 0;
        for (std::size_t rank = 0; rank < said.size(); ++rank) {
          if (batches[rank] == 1 && said[rank].empty()) {
            continue;  // it had ended before it heard that others had
          }
          ++named;
          const auto has = [&](const std::string& words) {
            return said[rank].find(words) != std::string::npos;
          };
          for (std::size_t other = 0; other < said.size(); ++other) {
            if (batches[other] == 1) {
              EXPECT_TRUE(has("is missing from") && has("rank " + std::to_string(other)))
                  << said[rank];
            }
          }
          EXPECT_TRUE(has(" has left or called replan(), and others wait: tensor")) << said[rank];
          EXPECT_TRUE(has("tensor1 is missing from") || has("tensor0 is missing from"))
              << said[rank];
          EXPECT_TRUE(said[rank].ends_with(fix)) << said[rank];
          EXPECT_EQ(said[rank].find('\n'), std::string::npos);
        }
        EXPECT_GT(named, 0);
      }
    }
  }
}

TEST(Leaving, WhoLeavesWithTheOthersIsNot) {
  for (const progress who : {progress::by_caller, progress::by_thread}) {
    EXPECT_EQ(left<negotiated>({0, 0, 0}, who), std::vector<std::string>(3));
  }
}

/// To re-plan is to leave the plan, here to a rank that takes one more step.
TEST(Leaving, WhoReplansWhileOthersWaitIsSaidToHaveDoneSo) {
  for (const int first : {0, 1}) {
    const auto said = errors(2, [&](transport::in_process& world) {
      arena memory = model_of(world.rank(), {{"only", 5}});
      auto engine = make_engine<negotiated>(world, memory.tensors(), optimizer_of());
      if (world.rank() == first) {
        engine.replan({});
      } else {
        engine.ready(tensor_id(0));
        engine.wait();
      }
    });
    const auto rank = std::to_string(first);
    EXPECT_EQ(said, std::vector<std::string>(
                        2, "rank " + rank +
                               " has left or called replan(), and others wait: only is missing "
                               "from rank " +
                               rank +
                               ". Fix: give every rank as many batches, or call join() where there "
                               "are no more; call replan() on every rank between the same two "
                               "steps"));
  }
}

TEST(Leaving, WhoeverThrowsSaysWhy) {
  for (const int guilty : {0, 1}) {
    const auto said = errors(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<negotiated>(world, memory.tensors(), optimizer_of());
      if (world.rank() == guilty) {
        throw std::runtime_error("out of data");
      }
      for (std::size_t i = memory.tensors().size(); i-- > 0;) {
        engine.ready(tensor_id(i));
      }
      engine.wait();
    });
    const auto rank = "rank " + std::to_string(guilty);
    for (int other = 0; other < 3; ++other) {
      EXPECT_EQ(said[static_cast<std::size_t>(other)],
                other == guilty ? "out of data" : rank + " failed: out of data");
    }
  }
}

}  // namespace
}  // namespace tutti::test
