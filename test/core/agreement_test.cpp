// Ranks whose settings differ learn it when their engines begin, with the setting's name, both
// ranks and both values, and none of them trains a step.
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/signum.hpp"
#include "tutti/core/settings.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/role/chunk_context.hpp"
#include "tutti/strategies.hpp"
#include "tutti/transport/any_transport.hpp"

namespace tutti::test {
namespace {

/// Returns the error of each rank when only the last rank's settings have been changed, by
/// `change(options, values)`.
template <class Strategy, class Change>
std::vector<std::string> said_when_the_last_has(int ranks, Change change) {
  return errors(ranks, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    engine_options<Strategy> options;
    optimizer::sgd values{.learning_rate = 0.1f};
    if (world.rank() + 1 == world.size()) {
      change(options, values);
    }
    make_engine<Strategy>(world, memory.tensors(), values, options);
  });
}

/// Returns the error that every rank throws for a setting that is `first` on all ranks but the last
/// of `ranks`.
std::vector<std::string> words(int ranks, const std::string& name, const std::string& first,
                               const std::string& last) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks),
                                  name + " is " + first + " on rank 0 and " + last + " on rank " +
                                      std::to_string(ranks - 1) +
                                      ". Fix: set it alike on every rank");
}

using served = compose<architecture::parameter_server<>, compression::block_int8>;
using fused = compose<fusion::up_to, compression::signum>;

TEST(Agreement, AnOptionThatALengthDependsOnIsNamed) {
  // Both plans are the same. Without the comparison of options a server would read past the end of
  // a push.
  for (const int ranks : {2, 3, 5}) {
    EXPECT_EQ(said_when_the_last_has<served>(
                  ranks, [](auto& options, auto&) { options.compression.block = 4; }),
              words(ranks, "compression.block", "256", "4"));
  }
}

TEST(Agreement, AnOptionThatNothingOnTheWireShowsIsNamed) {
  EXPECT_EQ(said_when_the_last_has<fused>(
                3, [](auto& options, auto&) { options.compression.beta = 0.95; }),
            words(3, "compression.beta", "0.9", "0.95"));
}

TEST(Agreement, AnOptionThatTheseTensorsDoNotShowIsNamed) {
  EXPECT_EQ(
      said_when_the_last_has<fused>(2, [](auto& options, auto&) { options.fusion.bytes = 65_MiB; }),
      words(2, "fusion.bytes", "67108864", "68157440"));
  EXPECT_EQ(said_when_the_last_has<fused>(
                2, [](auto& options, auto&) { options.fusion.crossing = fusion::crossing::out; }),
            words(2, "fusion.crossing", "in", "out"));
}

/// Bytes that `padded` adds to the floats. Each rank's thread sets it, and no option shows it.
thread_local std::size_t padding = 8;
struct padded : compression::none {
  static constexpr bool summable = false;
  static constexpr bool identity = false;
  std::size_t more = padding;

  std::size_t wire_bytes(std::size_t elements) const { return elements * sizeof(float) + more; }
  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    queue.copy(out.data, gradient.data(), gradient.size_bytes());
  }
};

/// As `padded`, with a length that only the encoder knows.
struct padded_at_most : padded {
  std::size_t capacity(std::size_t elements) const { return wire_bytes(elements); }
  std::size_t expected(std::size_t elements) const { return wire_bytes(elements); }
  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out, const chunk_context&,
              std::size_t* length) const {
    padded::encode(queue, gradient, out);
    *length = out.size;
  }
};

/// Expects an error when rank 1 pads by `pads` bytes and the others pad by 8.
template <class Compression>
void refuses_a_push(std::size_t pads, const std::string& expected) {
  using strategy = compose<architecture::parameter_server<>, Compression>;
  const auto said = errors(3, [pads](transport::in_process& world) {
    padding = world.rank() == 1 ? pads : 8;
    arena memory = model_of(world.rank(), {{"weight", 10}});
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of());
    if (engine.serves()) {
      engine.serve();
    } else {
      take_step(engine, memory, 0);
      engine.wait();
    }
  });
  const std::string sentence = "rank 1 pushed " + std::to_string(40 + pads) +
                               " bytes of chunk 0 where " + expected +
                               " were expected. Fix: give every rank the same compression options";
  EXPECT_EQ(said[2], sentence);
  for (const int worker : {0, 1}) {
    const auto& words = said[static_cast<std::size_t>(worker)];
    EXPECT_NE(words.find(sentence), std::string::npos) << words;
  }
}
TEST(Agreement, APushThatIsNotAsLongAsItsChunkIsNeverRead) {
  refuses_a_push<padded>(4, "48");
  refuses_a_push<padded>(12, "48");
  refuses_a_push<padded_at_most>(12, "at most 48");
}

TEST(Agreement, OtherServersAreNamedThoughTheRanksPlanOtherwise) {
  EXPECT_EQ(said_when_the_last_has<served>(
                4, [](auto& options, auto&) { options.architecture.servers = 2; }),
            words(4, "architecture.servers", "1", "2"));
}

TEST(Agreement, TheOptimizersValuesAreCompared) {
  EXPECT_EQ(said_when_the_last_has<compose<>>(
                2, [](auto&, auto& values) { values.learning_rate = 0.2f; }),
            words(2, "optimizer.learning_rate", "0.1", "0.2"));
}

TEST(Agreement, HowGradientsAddUpIsCompared) {
  EXPECT_EQ(said_when_the_last_has<compose<>>(
                2, [](auto& options, auto&) { options.run.accumulation = 4; }),
            words(2, "run.accumulation", "1", "4"));
}

TEST(Agreement, DeadlinesAndProgressAreEachRanksOwn) {
  EXPECT_EQ(said_when_the_last_has<compose<>>(3,
                                              [](auto& options, auto&) {
                                                options.run.deadline = 7;
                                                options.run.progress = progress::by_thread;
                                              }),
            std::vector<std::string>(3));
}

/// The profile is no option of a policy; differences in it show only in the plan.
TEST(Agreement, AProfileThatPlansOtherwiseIsNamed) {
  EXPECT_EQ(said_when_the_last_has<compose<fusion::merge_gradients>>(
                3, [](auto& options,
                      auto&) { options.profile.backward.assign(tensor_sizes().size(), 1.0); }),
            std::vector<std::string>(3,
                                     "rank 0 and rank 2 plan the same tensors differently. Fix: "
                                     "give every rank the same profile"));
}

TEST(Agreement, AnotherPolicyIsNamed) {
  const auto said = errors(3, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    if (world.rank() == 1) {
      make_engine<compose<fusion::up_to>>(world, memory.tensors(), optimizer::sgd{});
    } else {
      make_engine<compose<>>(world, memory.tensors(), optimizer::sgd{});
    }
  });
  EXPECT_EQ(said,
            std::vector<std::string>(3,
                                     "fusion is tutti::fusion::none on rank 0 and "
                                     "tutti::fusion::up_to on rank 1. Fix: set it alike on every "
                                     "rank"));
}

TEST(Agreement, AnotherOptimizerIsNamed) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    if (world.rank() == 1) {
      make_engine<compose<>>(world, memory.tensors());
    } else {
      make_engine<compose<>>(world, memory.tensors(), optimizer::sgd{});
    }
  });
  EXPECT_EQ(said,
            std::vector<std::string>(2,
                                     "optimizer is tutti::optimizer::sgd on rank 0 and "
                                     "tutti::optimizer::none on rank 1. Fix: set it alike on every "
                                     "rank"));
}

TEST(Agreement, OtherTensorsComeBeforeOtherSettings) {
  const auto said = errors(2, [](transport::in_process& world) {
    const std::vector<arena::declaration> declared{{"w", 8u + static_cast<unsigned>(world.rank())}};
    arena memory(declared);
    make_engine<compose<>>(world, memory.tensors(),
                           optimizer::sgd{.momentum = world.rank() == 0 ? 0.0f : 0.5f});
  });
  EXPECT_EQ(said,
            std::vector<std::string>(2,
                                     "tensor 0 is w (8 elements) on rank 0 and w (9 elements) on "
                                     "rank 1. Fix: declare the same model on every rank"));
}

/// Changes the `wanted`th value that is visited, and remembers its name.
struct changing {
  std::size_t wanted;
  std::size_t visited = 0;
  std::string name{};

  template <class Value>
  void operator()(std::string_view role, std::string_view its_name, Value& value) {
    if (visited++ != wanted) {
      return;
    }
    name = std::string(role) + "." + std::string(its_name);
    if constexpr (std::is_enum_v<Value>) {
      value = static_cast<Value>(value == Value{} ? 1 : 0);
    } else {
      value = static_cast<Value>(value + 1);
    }
  }
};

template <class Strategy>
std::size_t every_value_shows() {
  const auto plain = settings_of<Strategy>(engine_options<Strategy>{}, optimizer::sgd{});
  for (std::size_t i = 0;; ++i) {
    engine_options<Strategy> options;
    optimizer::sgd values;
    changing change{i};
    const auto visit = [&change](std::string_view role, auto& described) {
      std::remove_cvref_t<decltype(described)>::describe(
          described, [&change, role](std::string_view name, auto& value, std::string_view) {
            change(role, name, value);
          });
    };
    policy_options<strategy_of<Strategy>>::each(options, visit);
    visit("optimizer", values);
    visit("run", options.run);
    if (change.name.empty()) {
      return i;
    }
    const auto changed = settings_of<Strategy>(options, values);
    const auto said = detail::other_setting(plain, 3, changed);
    EXPECT_EQ(said.substr(0, said.find(' ')), change.name) << Strategy::name << ": " << said;
    EXPECT_NE(said.find("on rank 0 and"), std::string::npos) << said;
    EXPECT_NE(said.find("on rank 3"), std::string::npos) << said;
  }
}

TEST(Agreement, EveryValueOfEveryNamedStrategyIsCompared) {
  const auto all = []<class... Strategies>(std::tuple<Strategies...>*) {
    return (every_value_shows<Strategies>() + ...);
  }(static_cast<strategies::all*>(nullptr));
  EXPECT_GE(all, 4 * std::tuple_size_v<strategies::all>);  // sgd's three and accumulation, at least
}

TEST(Agreement, LongNamesAreShownWhereTheyDiffer) {
  const std::string same(400, 'x');
  const auto said = detail::other_setting("compression=" + same + "first\n", 1,
                                          "compression=" + same + "second\n");
  EXPECT_EQ(said,
            "compression is ...first on rank 0 and ...second on rank 1. Fix: set it alike on every "
            "rank");
}

TEST(Agreement, WhatOnlyOneRankDescribesIsNamed) {
  EXPECT_EQ(detail::other_setting("a=1\nb=2\n", 1, "a=1\n"),
            "b is 2 on rank 0 and nothing on rank 1. Fix: set it alike on every rank");
  EXPECT_EQ(detail::other_setting("a=1\n", 1, "a=1\nb=2\n"),
            "b is nothing on rank 0 and 2 on rank 1. Fix: set it alike on every rank");
  EXPECT_EQ(detail::other_setting("a=1\n", 1, "a=1\n"), "");
}

/// Trains on a rank of `world`, expects `again` to be refused a second engine, and continues to
/// train.
template <class World, class Again>
void trains_beside_a_refused_engine(World& world, Again& again) {
  arena memory = model_of(world.rank());
  arena other = model_of(world.rank());
  auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of());
  try {
    make_engine<compose<>>(again, other.tensors(), optimizer_of());
    ADD_FAILURE() << "a second engine on one transport";
  } catch (const usage_error& refused) {
    EXPECT_EQ(refused.what(),
              "rank " + std::to_string(world.rank()) +
                  " trains over this transport already, and a second engine would take the first "
                  "one's messages. Fix: give it its own transport (a second transport::mpi "
                  "duplicates the communicator; any other kind is made anew, or by another "
                  "run_ranks), or end the first engine");
  }
  backward(memory, world.rank(), 0);
  for (std::size_t i = memory.tensors().size(); i-- > 0;) {
    engine.ready(tensor_id(i));
  }
  engine.wait();
  EXPECT_EQ(engine.steps(), 1u);
}

TEST(Agreement, ASecondEngineOnOneTransportIsRefusedAndTheFirstGoesOn) {
  for (const int ranks : {1, 3}) {
    transport::run_ranks(
        ranks, [](transport::in_process& world) { trains_beside_a_refused_engine(world, world); });
  }
}

TEST(Agreement, ASecondEngineOnAWrappedTransportIsRefusedToo) {
  transport::run_ranks(2, [](transport::in_process& world) {
    transport::any_transport wrapped(world);
    trains_beside_a_refused_engine(world, wrapped);
  });
}

TEST(Agreement, ATransportTakesAnEngineAfterAnother) {
  transport::run_ranks(2, [](transport::in_process& world) {
    for (int i = 0; i < 3; ++i) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of());
      engine.wait();
    }
  });
}

TEST(Agreement, TwoTransportsTakeAnEngineEach) {
  transport::run_ranks(2, [](transport::in_process& outer) {
    arena memory = model_of(outer.rank());
    auto engine = make_engine<compose<>>(outer, memory.tensors(), optimizer_of());
    if (outer.rank() == 0) {
      transport::run_ranks(2, [](transport::in_process& inner) {
        arena own = model_of(inner.rank());
        make_engine<compose<>>(inner, own.tensors(), optimizer_of()).wait();
      });
    }
  });
}

/// Gives rank `other` a rate of its own on the way, and returns what each of `ranks` workers says
/// then.
template <class Strategy>
std::vector<std::string> said_after_a_change(int ranks, int other) {
  const engine_options<Strategy> set;
  auto said = errors(ranks + servers_in<Strategy>(set), [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_for<Strategy>(), set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < 2; ++step) {
      take_step(engine, memory, step);
      optimizer::sgd values = engine.values();
      values.learning_rate = step == 1 && world.rank() == other ? 0.3f : 0.2f;
      engine.change(values);
      engine.average(0);
    }
  });
  said.resize(static_cast<std::size_t>(ranks));
  return said;
}
TEST(Agreement, ValuesThatAreGivenOnTheWayAreComparedWhenWorkersNextAverage) {
  for (const int ranks : {2, 3, 5}) {
    const std::vector<std::string> all(
        static_cast<std::size_t>(ranks),
        "rank 0 and rank 1 have given different values to change(). Fix: give the same ones "
        "between the same two steps on every rank");
    const std::vector<std::string> none(static_cast<std::size_t>(ranks));
    EXPECT_EQ(said_after_a_change<fused>(ranks, 0), all);
    EXPECT_EQ(said_after_a_change<fused>(ranks, 1), all);
    EXPECT_EQ(said_after_a_change<fused>(ranks, -1), none);
    EXPECT_EQ(said_after_a_change<served>(ranks, 1), all);
    EXPECT_EQ(said_after_a_change<served>(ranks, -1), none);
  }
}

/// A single value counts as a span of one. Nobody is given a mean of values that do not belong
/// together, and training can go on.
TEST(Agreement, UnequallyManyValuesAreNotAveraged) {
  const std::vector<std::size_t> counts{2, 2, 3};
  for (const std::size_t first : {0U, 1U, 2U}) {
    const auto said = errors(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<fused>(world, memory.tensors(), optimizer_for<fused>());
      const std::vector<double> mine(counts[(first + static_cast<std::size_t>(world.rank())) % 3],
                                     7);
      std::vector<double> values = mine;
      const auto expect_the_mean = [&engine] {
        std::vector<double> one{3.0 * engine.worker()};
        engine.worker() == 1 ? static_cast<void>(one[0] = engine.average(one[0]))
                             : engine.average(one);
        EXPECT_EQ(one[0], 3);
      };
      expect_the_mean();
      try {
        engine.average(values);
      } catch (const disagreement&) {
        EXPECT_EQ(values, mine);
        expect_the_mean();
        throw;
      }
    });
    const std::size_t other = counts[(first + 1) % 3] == counts[first] ? 2 : 1;
    EXPECT_EQ(said,
              std::vector<std::string>(
                  3, "rank 0 averages " + std::to_string(counts[first]) + " values and rank " +
                         std::to_string(other) + " " + std::to_string(counts[(first + other) % 3]) +
                         ". Fix: call average(), change(), replan(), save() and load() in "
                         "one order on every rank, and average equally many values"));
  }
}

}  // namespace
}  // namespace tutti::test
