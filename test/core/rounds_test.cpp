// PowerSGD through the engine: each matrix is a chunk by itself and is exchanged in two sums; all
// other tensors are sent as they are.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/low_rank_oracle.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::test {
namespace {

using low_rank = compression::select<matrices, compression::power_sgd, compression::none>;

void expect_trained(const std::vector<float>& parameters, const low_rank_training& wanted) {
  ASSERT_EQ(parameters.size(), wanted.parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ASSERT_NEAR(parameters[i], wanted.parameters[i], wanted.bound) << i;
  }
}

TEST(Rounds, TrainAsTheRecurrenceInEveryWorld) {
  using in_process = compose<low_rank, fusion::up_to, partition::into, schedule::by_priority>;
  using simulated = compose<low_rank>;
  constexpr int steps = 6;
  for (const std::size_t rank : {1u, 2u}) {
    for (int workers = 1; workers <= 5; ++workers) {
      const auto wanted = trained_in_low_rank(workers, steps, rank, 5);
      engine_options<in_process> cut;
      cut.compression = {.chosen = {.rank = rank, .seed = 5}};
      cut.partition.elements = 50;
      const auto& forward = shaped_declarations();
      const auto real = train_on_threads<in_process>(workers, steps, cut, optimizer_of(), forward);
      engine_options<simulated> set;
      set.compression = cut.compression;
      const auto modelled = train_in_simulation<simulated>(workers, steps, set, forward);
      const auto nothing = train_in_simulation<simulated>(workers, 0, set, forward);
      std::uint64_t sent = 0;
      for (std::size_t worker = 0; worker < real.parameters.size(); ++worker) {
        expect_trained(real.parameters[worker], wanted);
        expect_trained(modelled.parameters[worker], wanted);
        EXPECT_EQ(real.parameters[worker], real.parameters[0]);
        EXPECT_EQ(modelled.parameters[worker], modelled.parameters[0]);
        sent += modelled.bytes[worker] - nothing.bytes[worker];
      }
      const auto all = static_cast<std::uint64_t>(2 * (workers - 1) * steps);
      EXPECT_EQ(sent, all * wanted.payload_bytes) << "a ring's, of every payload";
    }
  }
}

/// PyTorch's start_powerSGD_iter: the first steps are plain means and leave no residuals; low-rank
/// factors are sent afterwards.
TEST(Rounds, StartLaterWhereAsked) {
  using strategy = compose<low_rank, fusion::up_to, partition::into>;
  constexpr int steps = 6;
  constexpr int start = 3;
  for (const int workers : {1, 2, 5}) {
    const auto wanted = trained_in_low_rank(workers, steps, 2, 5, {}, start);
    engine_options<strategy> set;
    set.compression = {.chosen = {.rank = 2, .seed = 5}, .start = start};
    set.partition.elements = 50;
    const auto& forward = shaped_declarations();
    const auto real = train_on_threads<strategy>(workers, steps, set, optimizer_of(), forward);
    for (const auto& each : real.parameters) {
      expect_trained(each, wanted);
      EXPECT_EQ(each, real.parameters[0]);
    }
    const auto sent = [&](int count) {
      return train_in_simulation<strategy>(workers, count, set, forward).bytes;
    };
    const auto nothing = sent(0);
    const auto dense = sent(start);
    const auto all = sent(steps);
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    for (std::size_t worker = 0; worker < all.size(); ++worker) {
      before += dense[worker] - nothing[worker];
      after += all[worker] - dense[worker];
    }
    const auto around = static_cast<std::uint64_t>(2 * (workers - 1));
    EXPECT_EQ(before, around * start * 4 * wanted.parameters.size());
    EXPECT_EQ(after, around * (steps - start) * wanted.payload_bytes);
  }
}

/// A tensor cannot be chosen later if its residual of the time before could not be continued.
template <class Chosen, class Otherwise>
std::string refused_start() {
  using selecting = compression::select<matrices, Chosen, Otherwise>;
  try {
    make_policy<selecting>({.start = 2});
  } catch (const usage_error& refused) {
    return refused.what();
  }
  return "";
}
TEST(Rounds, StartLaterOnlyWithMemoryOfOneMeaning) {
  using compression::bf16;
  using compression::error_feedback;
  using compression::momentum_correction;
  using compression::none;
  using compression::power_sgd;
  const std::string why =
      "compression::select: before a start all tensors travel as those that are not chosen, and "
      "what that has remembered of the chosen ones they could not go on with. Fix: start = 0, or a "
      "compressor without memory for what is not chosen";
  EXPECT_EQ((refused_start<none, error_feedback<bf16>>()), why);
  EXPECT_EQ((refused_start<momentum_correction<error_feedback<bf16>>, momentum_correction<bf16>>()),
            why);
  EXPECT_EQ((refused_start<power_sgd, error_feedback<bf16>>()), "");
  EXPECT_EQ((refused_start<error_feedback<bf16>, none>()), "");
}

TEST(Rounds, ServersRefuseALaterStart) {
  using strategy = compose<architecture::parameter_server<>, low_rank>;
  engine_options<strategy> set;
  set.compression.start = 2;
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0, shaped_declarations());
    EXPECT_THROW(make_engine<strategy>(world, memory.tensors(), optimizer_of(), set), usage_error);
  });
}

/// Servers that add do not know of factors: each round is a push and an answer of equal length.
TEST(Rounds, TrainAsTheRecurrenceBesideServersThatAdd) {
  using server = architecture::parameter_server<>;
  using in_process =
      compose<server, low_rank, fusion::up_to, partition::into, schedule::by_priority>;
  using simulated = compose<server, low_rank>;
  constexpr int steps = 6;
  for (int workers = 1; workers <= 5; ++workers) {
    const auto wanted = trained_in_low_rank(workers, steps, 2, 5);
    for (const int servers : {1, 3}) {
      engine_options<in_process> cut;
      cut.compression = {.chosen = {.rank = 2, .seed = 5}};
      cut.partition.elements = 50;
      cut.schedule.credit = 1;
      cut.architecture.servers = servers;
      const auto& forward = shaped_declarations();
      const auto real = train_on_threads<in_process>(workers, steps, cut, optimizer_of(), forward);
      engine_options<simulated> set;
      set.compression = cut.compression;
      set.architecture.servers = servers;
      const auto modelled = train_in_simulation<simulated>(workers, steps, set, forward);
      const auto nothing = train_in_simulation<simulated>(workers, 0, set, forward);
      for (std::size_t worker = 0; worker < real.parameters.size(); ++worker) {
        expect_trained(real.parameters[worker], wanted);
        expect_trained(modelled.parameters[worker], wanted);
        EXPECT_EQ(real.parameters[worker], real.parameters[0]);
        EXPECT_EQ(modelled.bytes[worker] - nothing.bytes[worker], steps * wanted.payload_bytes);
      }
    }
  }
}

/// All tensors of one class share a bucket, which a partition may cut, but a matrix is always one
/// chunk, whatever its size.
TEST(Rounds, HaveMatricesAloneAndWhole) {
  using strategy = compose<low_rank, fusion::up_to, partition::into>;
  engine_options<strategy> set;
  set.partition.elements = 10;
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0, shaped_declarations());
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), set);
    const plan& made = engine.planned();
    std::vector<std::size_t> tensors;
    for (const bucket& each : made.buckets) {
      tensors.push_back(each.tensors);
    }
    // In the order of completion: last | kernel | column, nothing, shift, scale, bias | first.
    EXPECT_EQ(tensors, (std::vector<std::size_t>{1, 1, 5, 1}));
    std::vector<std::size_t> elements;
    for (const chunk& each : made.chunks) {
      elements.push_back(each.elements);
      EXPECT_EQ(each.chosen, each.elements > 21);
    }
    EXPECT_EQ(elements, (std::vector<std::size_t>{33 * 9, 8 * 9, 10, 10, 10, 10, 10, 3, 16 * 10}));
    EXPECT_NE(made.chunks[0].kind, made.chunks[1].kind) << "every matrix is of its own kind";
    EXPECT_EQ(made.chunks[2].kind, made.chunks[7].kind);
  });
}

/// Residuals and factors are part of a checkpoint, so the run continues bit for bit.
TEST(Rounds, AreResumedBitForBit) {
  using strategy = compose<low_rank>;
  for (const int workers : {1, 3}) {
    std::vector<std::vector<float>> ends(2 * static_cast<std::size_t>(workers));
    std::vector<std::string> kept(static_cast<std::size_t>(workers));
    for (const bool resumes : {false, true}) {
      transport::run_ranks(workers, [&](transport::in_process& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        arena memory = model_of(world.rank(), shaped_declarations());
        auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of());
        if (resumes) {
          std::istringstream in(kept[rank]);
          load(engine, in);
        }
        for (int step = resumes ? 3 : 0; step < 6; ++step) {
          if (step == 3 && !resumes) {
            std::ostringstream out;
            save(engine, out);
            kept[rank] = out.str();
          }
          backward(memory, world.rank(), step);
          for (std::size_t i = 0; i < memory.tensors().size(); ++i) {
            engine.ready(tensor_id(i));
          }
          engine.wait();
        }
        ends[2 * rank + (resumes ? 1 : 0)].assign(memory.parameters().begin(),
                                                  memory.parameters().end());
      });
    }
    for (std::size_t rank = 0; rank < kept.size(); ++rank) {
      EXPECT_EQ(ends[2 * rank], ends[2 * rank + 1]) << rank;
    }
  }
}

TEST(Rounds, RefuseAShapeThatIsNotTheTensors) {
  transport::run_ranks(1, [](transport::in_process& world) {
    std::vector<float> memory(12);
    const tensor wrong("weight", memory, memory, {3, 5});
    EXPECT_THROW((make_engine<compose<low_rank>>(world, {wrong}, optimizer_of())), usage_error);
  });
}

}  // namespace
}  // namespace tutti::test
