// Architectures that send something other than the mean of this step's gradients, each against its
// recurrence. One file, because all train in one frame: several passes a step, pieces and buckets,
// and a checkpoint on the way.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "support/adaptive_sum_oracle.hpp"
#include "support/dealt.hpp"
#include "support/errors.hpp"
#include "support/oracle.hpp"
#include "support/recurrence.hpp"
#include "support/training.hpp"
#include "tutti/architecture/adasum.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/split_phase.hpp"

namespace tutti::test {
namespace {

using namespace recurring;
using canonical = collective::canonical;

TEST(Architectures, ModelAveragingIsItsRecurrenceAtEveryAlpha) {
  using strategy = cut<architecture::model_averaging<canonical>>;
  for (const double alpha : {0.0, 0.1, 1.0}) {
    auto set = options_for<strategy>();
    set.architecture.alpha = alpha;
    equals<strategy>(
        [alpha](int) {
          return [alpha](replicas& all, int step, std::size_t element) {
            const double mean = mean_of(all);
            for (std::size_t worker = 0; worker < all.size(); ++worker) {
              all[worker].x = (1 - alpha) * all[worker].x + alpha * mean;
              all[worker].step(own_gradient(static_cast<int>(worker), step, element));
            }
          };
        },
        set);
  }
}

TEST(Architectures, ModelAveragingWithoutAnyIsIndependentBitForBit) {
  using averaged = cut<architecture::model_averaging<canonical>>;
  auto set = options_for<averaged>();
  set.architecture.alpha = 0;
  using alone = cut<architecture::independent>;
  EXPECT_EQ(train_in_parts<averaged>(3, 0, set).parameters,
            train_in_parts<alone>(3, 0, options_for<alone>()).parameters);
}

TEST(Architectures, LocalSgdAveragesModelsEveryPeriod) {
  using strategy = cut<architecture::local_sgd<canonical>>;
  for (const int period : {1, 4}) {
    auto set = options_for<strategy>();
    set.architecture.period = period;
    equals<strategy>(
        [period](int) {
          return [period](replicas& all, int step, std::size_t element) {
            for (std::size_t worker = 0; worker < all.size(); ++worker) {
              all[worker].step(own_gradient(static_cast<int>(worker), step, element));
            }
            if ((step + 1) % period == 0) {
              const double mean = mean_of(all);
              for (replica& each : all) {
                each.x = mean;
              }
            }
          };
        },
        set);
  }
}

/// With momentum SGD the mean of models that took their steps alone is the model that took a step
/// by the mean. All gradients point one way, because two that cancel each other would leave only
/// rounding errors.
TEST(Architectures, LocalSgdEveryStepIsSynchronous) {
  const auto falling = [](int worker, int step, std::size_t element) {
    return -std::abs(gradient(worker, step, element));
  };
  using strategy = cut<architecture::local_sgd<canonical>>;
  auto set = options_for<strategy>();
  set.architecture.period = 1;
  using together = cut<architecture::all_reduce<canonical>>;
  for (int workers = 1; workers <= 5; ++workers) {
    const auto one = train_in_parts<strategy>(workers, 0, set, falling).parameters;
    const auto other =
        train_in_parts<together>(workers, 0, options_for<together>(), falling).parameters;
    for (std::size_t worker = 0; worker < one.size(); ++worker) {
      for (std::size_t i = 0; i < one[worker].size(); ++i) {
        ASSERT_NEAR(one[worker][i], other[worker][i], 1e-6f * other[worker][i])
            << i << " of worker " << worker << " of " << workers;
      }
    }
  }
}

/// Where rank 0 decides, a step without messages leaves it nothing to decide, and no rank waits.
TEST(Architectures, LocalSgdRunsUnderAWindowThatRankZeroLeads) {
  using strategy = cut<architecture::local_sgd<canonical>, schedule::by_priority>;
  auto set = options_for<strategy>();
  set.schedule.credit = 1;
  using plain = cut<architecture::local_sgd<canonical>>;
  EXPECT_EQ(train_in_parts<strategy>(3, 0, set).parameters,
            train_in_parts<plain>(3, 0, options_for<plain>()).parameters);
}

TEST(Architectures, SwitchesFromSynchronousToLocalSgd) {
  using strategy = cut<architecture::switch_at<architecture::all_reduce<canonical>,
                                               architecture::local_sgd<canonical>>>;
  auto set = options_for<strategy>();
  set.architecture.second.period = 4;
  switches<strategy>(
      by_the_mean_gradient,
      [](replicas& all, int step, std::size_t element) {
        alone(all, step, element);
        if ((step + 1) % 4 == 0) {
          to_the_mean_model(all, 1);
        }
      },
      set);
}

/// The window is one chunk, and rank 0 decides the order across the switch.
TEST(Architectures, SwitchesFromModelAveragingToLocalSgd) {
  using strategy = cut<architecture::switch_at<architecture::model_averaging<canonical>,
                                               architecture::local_sgd<canonical>>,
                       schedule::by_priority>;
  auto set = options_for<strategy>();
  set.architecture.first.alpha = 0.3;
  set.architecture.second.period = 2;
  set.schedule.credit = 1;
  switches<strategy>(
      [](replicas& all, int step, std::size_t element) {
        to_the_mean_model(all, 0.3);
        alone(all, step, element);
      },
      [](replicas& all, int step, std::size_t element) {
        alone(all, step, element);
        if ((step + 1) % 2 == 0) {
          to_the_mean_model(all, 1);
        }
      },
      set);
}

/// Where only gradients are sent, both collectives give the same sums.
TEST(Architectures, SwitchesBetweenCollectives) {
  using strategy =
      cut<architecture::switch_at<architecture::all_reduce<>, architecture::all_reduce<canonical>>>;
  auto set = options_for<strategy>();
  set.architecture.step = 6;
  equals<strategy>([](int) { return by_the_mean_gradient; }, set);
}

recurrence delayed_by_one(int workers) {
  return [workers](replicas& all, int step, std::size_t element) {
    if (step > 0) {
      for (replica& each : all) {
        each.step(mean_gradient(workers, step - 1, element));
      }
    }
  };
}

TEST(Architectures, DelayedUnderAWindowThatRankZeroLeads) {
  using strategy =
      cut<architecture::delayed<architecture::all_reduce<canonical>>, schedule::by_priority>;
  for (const std::size_t credit : {std::size_t{1}, std::size_t{45'000}}) {
    auto set = options_for<strategy>();
    set.schedule.credit = credit;
    equals<strategy>(delayed_by_one, set);
  }
}
TEST(Architectures, DelayedOverServers) {
  using strategy = cut<architecture::delayed<architecture::parameter_server<>>>;
  auto set = options_for<strategy>();
  set.architecture.servers = 2;
  equals<strategy>(delayed_by_one, set);
}
/// A launch may be under way although its tensors have arrived and its rank has reached the end of
/// training.
TEST(Architectures, DelayedLaunchesEndWhereARankHasABatchTooFew) {
  using strategy = cut<architecture::delayed<architecture::parameter_server<>>>;
  auto set = options_for<strategy>();
  set.run.deadline = 0.2;
  const auto said = errors(3, [&set](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(values), set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < 4 - world.rank(); ++step) {
      hand_in(engine, memory, step);
      engine.wait();
    }
  });
  EXPECT_NE(said[2].find("and nothing moves"), std::string::npos) << said[2];
}

/// Returns worker 0's parameters after `count` steps, once no message is under way.
template <class Strategy>
std::vector<float> trained_for(int count, int workers) {
  std::vector<float> result;
  transport::run_ranks(workers, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(values),
                                        options_for<Strategy>());
    for (int step = 0; step < count; ++step) {
      engine.wait();
      hand_in(engine, memory, step);
    }
    engine.drain();
    if (world.rank() == 0) {
      result.assign(memory.parameters().begin(), memory.parameters().end());
    }
  });
  return result;
}

/// An architecture that states a delay of zero.
struct on_time : architecture::all_reduce<canonical> {
  static constexpr int delay = 0;
};

/// A delayed run of one step more ends with the same bits. The first step applies nothing, and the
/// last step's mean is never applied, however long its launch is waited for.
TEST(Architectures, DelayedIsBitForBitAStepLate) {
  using sums = architecture::all_reduce<canonical>;
  for (const int workers : {1, 3}) {
    for (const int count : {0, 1, 2, 5}) {
      const auto undelayed = trained_for<cut<sums>>(count, workers);
      EXPECT_EQ(trained_for<cut<on_time>>(count, workers), undelayed);
      EXPECT_EQ(trained_for<cut<architecture::delayed<sums>>>(count + 1, workers), undelayed)
          << count << " steps, " << workers << " workers";
    }
    EXPECT_NE(trained_for<cut<sums>>(1, workers), trained_for<cut<sums>>(0, workers));
  }
}

/// Sums up all means so far, and hands that sum to the optimizer.
struct sums_means : architecture::all_reduce<canonical> {
  template <class World>
  struct state : all_reduce::state<World> {
    state(World& its_world, const options_of<all_reduce>& set)
        : all_reduce::state<World>(its_world, set),
          world(&its_world),
          sum(its_world.allocate_parallel()) {}
    void incoming(const chunk& piece, std::span<float> mean) {
      const std::span<float> mine = world->part_of(span_of(sum), piece);
      world->add(mine, mean);
      world->copy(mean, mine);
    }
    World* world;
    typename World::template memory<float> sum;
  };
};
TEST(Architectures, DelayedMeansAreWhatAnArchitectureMakesOfThem) {
  EXPECT_EQ(trained_for<cut<architecture::delayed<sums_means>>>(6, 3),
            trained_for<cut<sums_means>>(5, 3));
  EXPECT_NE(trained_for<cut<sums_means>>(5, 3), trained_for<cut<on_time>>(5, 3));
}

/// Remembers the product of all factors that it is told.
struct rescales_residuals : architecture::all_reduce<canonical> {
  template <class World>
  struct state : all_reduce::state<World> {
    using all_reduce::state<World>::state;
    void rescale(float factor) { grown *= factor; }
    std::vector<std::span<float>> memories() { return {std::span(&grown, 1)}; }
    float grown = 1;
  };
};
template <class Architecture>
void is_told_of_learning_rates() {
  transport::run_ranks(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<Architecture>>(world, memory.tensors(),
                                                     optimizer::sgd{.learning_rate = 0.5f});
    engine.change({.learning_rate = 0.125f});
    engine.change({.learning_rate = 0.25f});
    EXPECT_EQ(engine.memories().back()[0], 2);
  });
}
TEST(Architectures, AreToldOfALearningRateWhateverTheCompressorRemembers) {
  is_told_of_learning_rates<rescales_residuals>();
  is_told_of_learning_rates<
      architecture::switch_at<architecture::all_reduce<canonical>, rescales_residuals>>();
}

/// Of a model of n elements each of p ranks keeps state for ceil(n / p) or floor(n / p), whether
/// the model is cut whole, tensor by tensor, or into pieces of some elements. The bytes sent are
/// counted chunk by chunk.
TEST(Architectures, SharesAreAllThatTheirOwnersRemember) {
  using strategy = cut<architecture::sharded<canonical>>;
  for (const std::size_t piece : {37U, 1000U, 10'000U, 1'000'000U}) {
    auto set = options_for<strategy>();
    set.fusion.bytes = set.partition.bytes = piece * sizeof(float);
    for (const int workers : {1, 2, 3, 4, 5, 8}) {
      const auto p = static_cast<std::size_t>(workers);
      transport::run_ranks(workers, [&](transport::in_process& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        arena memory = model_of(world.rank());
        auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(values), set);
        const std::size_t owned = dealt(0, total_elements(), rank, p);
        EXPECT_LE(owned, (total_elements() + p - 1) / p);
        std::size_t sent = 0;
        for (const chunk& each : engine.planned().chunks) {
          const std::size_t share = dealt(each.first_element, each.elements, rank, p);
          sent += each.elements - share;  // gradients, to their owners
          sent += (p - 1) * share;        // parameters, to all other ranks
        }
        std::size_t remembered = 0;
        for (const std::span<float> each : engine.memories()) {
          remembered += each.size();
        }
        EXPECT_EQ(remembered, owned) << "rank " << rank << " of " << p;
        EXPECT_EQ(engine.report().optimizer_bytes, sizeof(float) * owned);
        const std::uint64_t before = engine.counted().bytes_sent;
        hand_in(engine, memory, 0);
        engine.wait();
        EXPECT_EQ(engine.counted().bytes_sent - before, sizeof(float) * sent);
      });
    }
  }
}

/// Hands in a step whose gradients are written to memory that the engine lends; each pass adds to
/// the passes before.
template <class Engine>
void hand_in_lent(Engine& engine, const std::vector<tensor>& tensors, int step, int of_passes) {
  const auto& made = engine.planned();
  for (int pass = 0; pass < of_passes; ++pass) {
    for (std::size_t id = tensors.size(); id-- > 0;) {
      const std::span<float> room = engine.gradient(tensor_id(id));
      ASSERT_EQ(room.size(), tensors[id].elements);
      for (std::size_t i = 0; i < room.size(); ++i) {
        const float own = gradient(engine.worker(), step * of_passes + pass,
                                   made.first_element[made.position(tensor_id(id))] + i);
        room[i] = pass == 0 ? own : room[i] + own;
      }
      engine.ready(tensor_id(id));
    }
  }
}

/// Expects training with lent gradients to end with the parameters `kept`, in flat order, also
/// across a plan of other buckets. Returns the most memory that was held. Each tensor's parameter
/// begins at a multiple of `alignment`.
template <class Strategy>
std::size_t trains_lent(transport::in_process& world, engine_options<Strategy> set,
                        std::size_t alignment, const std::vector<float>& kept) {
  arena memory(
      declarations(), alignment, [](std::size_t n) { return line_vector<float>(n); },
      [](std::size_t) { return std::span<float>(); });
  const auto in_order = [&](auto visit) {
    std::size_t first = 0;
    for (std::size_t id = memory.tensors().size(); id-- > 0;) {
      const auto here = memory.tensors()[id].parameter;
      visit(here, first);
      first += here.size();
    }
  };
  in_order([&](std::span<float> here, std::size_t first) {
    for (std::size_t i = 0; i < here.size(); ++i) {
      here[i] = world.rank() == 0 ? initial(first + i) : 99.0f;
    }
  });
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(values), set);
  for (int step = 0; step < steps; ++step) {
    if (step == 4) {
      set.fusion.bytes *= 3;
      engine.replan(set);
    }
    for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
      engine.wait(tensor_id(id));
    }
    hand_in_lent(engine, memory.tensors(), step, static_cast<int>(set.run.accumulation));
  }
  engine.wait();
  in_order([&](std::span<float> here, std::size_t first) {
    EXPECT_TRUE(std::ranges::equal(here, std::span(kept).subspan(first, here.size())))
        << world.size() << " ranks, from element " << first;
  });
  EXPECT_EQ(engine.report().own_gradient_bytes, 0U);
  const std::size_t held = engine.report().gradient_bytes;
  if (const std::size_t limit = set.architecture.lent_bytes; limit != 0) {
    std::size_t longest = 0;
    for (const bucket& each : engine.planned().buckets) {
      longest = std::max(longest, sizeof(float) * each.elements);
    }
    EXPECT_LE(held, std::max(limit, longest));
  }
  return held;
}

/// Lent memory does not change the result of training. With one pass a step the memory goes from
/// bucket to bucket; with several it is held through all of them. Exchanges are whole or split, and
/// parameters are neighbours in memory or not.
TEST(Architectures, LentGradientsEndAsKeptOnes) {
  using architecture::gradients;
  using kept = cut<architecture::sharded<canonical>>;
  using whole = cut<architecture::sharded<canonical, gradients::given_back>>;
  using split = cut<architecture::sharded<canonical, gradients::given_back>, schedule::split_phase>;
  for (const int workers : {1, 2, 3, 5}) {
    auto once = options_for<kept>();
    once.run.accumulation = 1;
    const auto of_one = train_on_threads<kept>(workers, steps, once, optimizer_of(values));
    const auto of_several = train_in_parts<kept>(workers, 0, options_for<kept>()).parameters;
    transport::run_ranks(workers, [&](transport::in_process& world) {
      auto set = options_for<whole>();
      const std::size_t in_passes = trains_lent<whole>(world, set, 1, of_several[0]);
      EXPECT_GE(in_passes, sizeof(float) * total_elements());
      set.run.accumulation = 1;
      trains_lent<whole>(world, set, 1, of_one.parameters[0]);
      trains_lent<whole>(world, set, 4, of_one.parameters[0]);
      if (workers == 3) {
        for (const std::size_t limit : {std::size_t{1}, 2 * total_elements()}) {
          set.architecture.lent_bytes = limit;
          trains_lent<whole>(world, set, 1, of_one.parameters[0]);
        }
      }
    });
    transport::run_ranks(workers, [&](transport::in_process& world) {
      auto set = options_for<split>();
      set.run.accumulation = 1;
      trains_lent<split>(world, set, 1, of_one.parameters[0]);
      trains_lent<split>(world, set, 4, of_one.parameters[0]);
    });
  }
}

/// A rank that waits for lent memory would wait for gradients that it has to write itself, and so
/// forever.
TEST(Architectures, ALimitThatNobodyCouldKeepIsRefused) {
  using architecture::gradients;
  using lending = architecture::sharded<canonical, gradients::given_back>;
  const auto refusal = []<class Strategy>(std::type_identity<Strategy>, std::size_t alignment) {
    const auto said = errors(1, [alignment](transport::in_process& world) {
      arena memory(
          declarations(), alignment, [](std::size_t n) { return line_vector<float>(n); },
          [](std::size_t) { return std::span<float>(); });
      auto set = options_for<Strategy>();
      set.run.accumulation = 1;
      set.architecture.lent_bytes = 1;
      make_engine<Strategy>(world, memory.tensors(), optimizer_of(values), set);
    });
    return said[0];
  };
  EXPECT_EQ(refusal(std::type_identity<cut<lending>>(), 1), "");
  EXPECT_NE(refusal(std::type_identity<cut<lending>>(), 4).find("contiguous in memory"),
            std::string::npos);
  EXPECT_NE(refusal(std::type_identity<cut<lending, schedule::at_end>>(), 1).find("hold it back"),
            std::string::npos);
}

TEST(Architectures, GradientsThatNobodyHasWrittenAreRefused) {
  using architecture::gradients;
  using lending = cut<architecture::sharded<canonical, gradients::given_back>>;
  const auto refusal = [](auto act) {
    try {
      act();
      return std::string();
    } catch (const usage_error& refused) {
      return std::string(refused.what());
    }
  };
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena lent(declarations(), without_gradients());
    EXPECT_EQ(refusal([&] {
                make_engine<cut<architecture::sharded<>>>(world, lent.tensors(), optimizer_of());
              }),
              "the model's gradients have no memory, and this strategy lends none. Fix: declare "
              "tensor(name, parameter, gradient), or use architecture::sharded<..., "
              "gradients::given_back>");
    auto mixed = lent.tensors();
    std::vector<float> own(mixed[0].elements);
    mixed[0].gradient = own;
    EXPECT_EQ(refusal([&] { make_engine<lending>(world, mixed, optimizer_of()); }),
              mixed[0].name + " has memory for its gradient, but " + mixed.back().name +
                  " has none. Fix: give every tensor's gradient memory, or let the engine lend all "
                  "of it");
    auto engine = make_engine<lending>(world, lent.tensors(), optimizer_of());
    const std::string name = lent.tensors()[0].name;
    EXPECT_EQ(refusal([&] { engine.ready(tensor_id(0)); }),
              name +
                  " is ready, but its gradient has no memory yet. Fix: in every pass, write it "
                  "where gradient(id) says");
    EXPECT_EQ(refusal([&] { engine.ready(tensor_id(0), own); }),
              name +
                  " is ready, but its values are not in the memory that was lent for them. Fix: "
                  "write them where gradient(id) says, then call ready(id)");
    for (std::size_t id = 0; id < lent.tensors().size(); ++id) {
      engine.absent(tensor_id(id));
    }
    engine.wait();
  });
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    auto engine = make_engine<lending>(world, memory.tensors(), optimizer_of());
    EXPECT_EQ(refusal([&] { engine.gradient(tensor_id(0)); }),
              memory.tensors()[0].name +
                  " has its own memory for its gradient, or is a phantom, so it is lent none. Fix: "
                  "declare it by tensor::without_gradient");
    EXPECT_EQ(engine.report().gradient_bytes, sizeof(float) * total_elements());
    EXPECT_EQ(engine.report().own_gradient_bytes, sizeof(float) * total_elements());
  });
}

TEST(Architectures, ServersStepByEachWorkersPushInRankOrder) {
  using strategy =
      cut<architecture::parameter_server<consistency::synchronous, updated_by::servers_by_push>>;
  auto set = options_for<strategy>();
  set.architecture.servers = 2;
  equals<strategy>(
      [](int workers) {
        return [workers](replicas& all, int step, std::size_t element) {
          for (replica& each : all) {
            for (int worker = 0; worker < workers; ++worker) {
              each.step(own_gradient(worker, step, element));
            }
          }
        };
      },
      // Five workers would round more in 45 steps than `equals` allows.
      set, {1, 2, 3, 4});
}

/// A rank's state is placed by the plan, so the owners under another plan would take it for theirs.
TEST(Architectures, SharesOfAnotherPlanAreRefused) {
  using strategy = cut<architecture::sharded<canonical>>;
  auto set = options_for<strategy>();
  set.partition.bytes = 3 * 4'000;  // so that shares may have equal lengths under both plans
  std::vector<std::string> files(3);
  const auto run = [&](auto each_rank) {
    transport::run_ranks(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(values), set);
      each_rank(engine, files[static_cast<std::size_t>(world.rank())]);
      engine.average(0);  // because a rank that leaves first would end the others
    });
  };
  run([](auto& engine, std::string& file) {
    std::ostringstream out;
    save(engine, out);
    file = out.str();
  });
  set.partition.bytes = 3 * 8'000;
  run([](auto& engine, std::string& file) {
    std::istringstream in(file);
    try {
      load(engine, in);
      ADD_FAILURE() << "it is taken";
    } catch (const usage_error& refused) {
      EXPECT_STREQ(refused.what(),
                   "the checkpoint was saved where ranks update parts of other chunks. Fix: load "
                   "it with the options that it was saved with, then replan");
    }
  });
}

/// Workers push the differences by which their parameters moved. With one worker that is training
/// alone.
TEST(Architectures, AsynchronousServersAddDifferences) {
  using architecture =
      architecture::parameter_server<consistency::asynchronous, updated_by::workers>;
  using strategy = cut<architecture>;
  auto set = options_for<strategy>();
  const ended alone = train_in_parts<strategy>(1, 0, set);
  const auto rule = [](replicas& all, int step, std::size_t element) {
    all[0].step(own_gradient(0, step, element));
  };
  expect_near(alone, recurred(1, rule));
  EXPECT_EQ(train_in_parts<strategy>(1, 5, set).parameters, alone.parameters);
}

/// With several workers every push counts once, whichever comes first. Without momentum a gradient
/// moves the parameters by the same amount wherever they are.
TEST(Architectures, AsynchronousServersAddEveryDifferenceOnce) {
  using strategy = cut<architecture::parameter_server<consistency::asynchronous,  //
                                                      updated_by::workers>>;
  constexpr float rate = 0.01f;
  constexpr int workers = 3;
  auto set = options_for<strategy>();
  set.architecture.servers = 2;
  std::vector<float> pulled;
  transport::run_ranks(workers + 2, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine =
        make_engine<strategy>(world, memory.tensors(), optimizer::sgd{.learning_rate = rate}, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < steps; ++step) {
      engine.wait();
      hand_in(engine, memory, step);
    }
    engine.wait();
    engine.average(0);  // now every worker has pushed
    if (engine.worker() == 0) {
      std::ranges::fill(memory.gradients(), 0.0f);
      for (unsigned pass = 0; pass < passes; ++pass) {
        for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
          engine.ready(tensor_id(id));
        }
      }
      engine.wait();
      pulled.assign(memory.parameters().begin(), memory.parameters().end());
    }
  });
  ASSERT_EQ(pulled.size(), total_elements());
  for (std::size_t i = 0; i < pulled.size(); ++i) {
    double expected = initial(i);
    for (int step = 0; step < steps; ++step) {
      expected -= rate * workers * mean_gradient(workers, step, i);
    }
    ASSERT_NEAR(pulled[i], expected, 1e-4) << i;
  }
}

/// The adaptive sum is of the means over each rank's passes, and a checkpoint holds all state of
/// the ranks.
template <class Architecture>
void adds_adaptively(std::vector<float> (*oracle)(int, int, gradient_function)) {
  using strategy = compose<fusion::up_to, Architecture>;
  engine_options<strategy> set;
  set.fusion.bytes = 3000;
  set.run.accumulation = passes;
  set.run.deadline = 20;
  const gradient_function mean_of_passes = [](int worker, int step, std::size_t element) {
    return static_cast<float>(own_gradient(worker, step, element));
  };
  for (const int workers : {1, 3}) {
    const ended whole = train_in_parts<strategy>(workers, 0, set);
    const auto expected = oracle(workers, steps, mean_of_passes);
    expect_near(whole, std::vector(static_cast<std::size_t>(workers),
                                   std::vector<double>(expected.begin(), expected.end())));
    EXPECT_EQ(train_in_parts<strategy>(workers, 5, set).parameters, whole.parameters);
  }
}
TEST(Architectures, AdasumOfGradientsGoesOnFromACheckpoint) {
  adds_adaptively<architecture::adasum<carries::gradient>>(of_adaptive_sums);
}
TEST(Architectures, AdasumOfStepsGoesOnFromACheckpoint) {
  adds_adaptively<architecture::adasum<carries::difference>>(of_adaptive_steps);
}

/// One rank computes slowly; the others end long before it.
TEST(Architectures, PairAveragingWaitsForNobody) {
  std::vector<double> ended_at(4);
  transport::run_simulated(4, transport::link{1.25e9, 50e-6}, [&](transport::simulated& world) {
    return [](transport::simulated& self, std::vector<double>& ends) -> task {
      arena memory = model_of(self.rank());
      auto engine = make_engine<compose<architecture::pair_averaging>>(self, memory.tensors(),
                                                                       optimizer_of(values));
      co_await engine.started();
      for (int step = 0; step < 20; ++step) {
        co_await self.sleep(self.rank() == 1 ? 1.0 : 0.1);
        for (std::size_t id = memory.tensors().size(); id-- > 0;) {
          engine.ready(tensor_id(id));
        }
        for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
          co_await engine.arrival(tensor_id(id));
        }
      }
      ends[static_cast<std::size_t>(self.rank())] = self.now();
      co_await engine.close();
    }(world, ended_at);
  });
  for (const std::size_t fast : {0u, 2u, 3u}) {
    EXPECT_LT(ended_at[fast], 2.0 / 0.9);
  }
  EXPECT_GT(ended_at[1], 20.0);
}

TEST(Architectures, PairAveragingGoesOnFromACheckpoint) {
  using strategy = compose<architecture::pair_averaging>;
  engine_options<strategy> set;
  set.run.accumulation = passes;
  set.run.deadline = 20;
  const ended alone = train_in_parts<strategy>(1, 5, set);
  const auto rule = [](replicas& all, int step, std::size_t element) {
    all[0].step(own_gradient(0, step, element));
  };
  expect_near(alone, recurred(1, rule));
  // The result of several ranks depends on timing, so only finite parameters are expected.
  for (const auto& each : train_in_parts<strategy>(3, 5, set).parameters) {
    for (const float x : each) {
      ASSERT_TRUE(std::isfinite(x));
    }
  }
}

/// Only the servers' parameters contain what other workers have pushed since this worker last
/// pulled.
TEST(Architectures, AsynchronousServersKeepTheirParametersInACheckpoint) {
  using strategy =
      compose<architecture::parameter_server<consistency::asynchronous, updated_by::servers>>;
  // Worker 0 takes one step and saves what it pulled; worker 1 takes three steps more.
  const auto pulled_after = [](int resumed) {
    static std::string files[2];
    float seen = 0;
    transport::run_ranks(3, [&](transport::in_process& world) {
      std::vector<float> x(1, 100.0f);
      std::vector<float> g(1, 1.0f);
      auto engine =
          make_engine<strategy>(world, {tensor("x", x, g)}, optimizer::sgd{.learning_rate = 1.0f});
      if (engine.serves()) {
        engine.serve();
        return;
      }
      auto& file = files[engine.worker()];
      if (resumed == 0) {
        for (int step = 0; step < (engine.worker() == 0 ? 1 : 4); ++step) {
          engine.ready(tensor_id(0));
          engine.wait();
          if (engine.worker() == 0) {
            engine.average(0);  // worker 0 has pulled before worker 1 continues
          } else if (step == 0) {
            engine.average(0);
          }
          g[0] = 1.0f;
        }
        engine.average(0);
        std::ostringstream out;
        save(engine, out);
        file = out.str();
      } else {
        std::istringstream in(file);
        load(engine, in);
      }
      engine.average(0);
      if (engine.worker() == 0) {
        g[0] = 0.0f;
        engine.ready(tensor_id(0));
        engine.wait();
        seen = x[0];
      }
    });
    return seen;
  };
  const float uninterrupted = pulled_after(0);
  EXPECT_EQ(uninterrupted, 95.0f);  // five pushes of 1
  EXPECT_EQ(pulled_after(1), uninterrupted);
}

}  // namespace
}  // namespace tutti::test
