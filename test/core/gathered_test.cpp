// Launches that are gathered at run time: residuals stay with their elements, and the report states
// what waited. Their sums are checked in strategy_laws.hpp.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "support/device_training.hpp"
#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/natural.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/by_arrival.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

using fusion::when_ready;

/// Expects applied = (given - residuals of the ranks) / p - residuals of the owners, exactly where
/// p is a power of two, because values have few digits. An element's owner is a function of the
/// plan alone, whatever it is launched with.
template <class Architecture, class Fusion = when_ready,
          class Coordination = coordination::negotiated>
void loses_nothing(int ranks, options_of<Fusion> fusion = {.bytes = 100, .cycle = 0}) {
  using strategy =
      compose<Architecture, compression::error_feedback<compression::top_k>, Fusion, Coordination>;
  constexpr std::array<std::size_t, 5> sizes{9, 1, 24, 0, 6};
  constexpr int steps = 40;
  std::vector<double> given(40);
  std::vector<double> kept(40);
  std::vector<double> owned(40);
  int owners = 0;
  std::vector<std::vector<float>> applied(static_cast<std::size_t>(ranks));
  std::mutex one_at_a_time;
  transport::run_ranks(ranks, [&](transport::in_process& world) {
    std::vector<std::vector<float>> parameters;
    std::vector<std::vector<float>> gradients;
    for (const std::size_t each : sizes) {
      parameters.emplace_back(each);
      gradients.emplace_back(each);
    }
    std::vector<tensor> tensors;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      tensors.emplace_back("t" + std::to_string(i), parameters[i], gradients[i]);
    }
    engine_options<strategy> options;
    options.fusion = fusion;
    options.compression.density = 0.2;
    auto engine =
        make_engine<strategy>(world, tensors, optimizer::sgd{.learning_rate = 1.0f}, options);
    std::vector<double> mine(40);
    for (int step = 0; step < steps; ++step) {
      for (const tensor_id id : shuffled(sizes.size(), world.rank(), step)) {
        engine.wait(id);
        std::size_t element = 0;
        for (std::size_t later = sizes.size(); later-- > index(id) + 1;) {
          element += sizes[later];
        }
        for (float& each : gradients[index(id)]) {
          each = gradient_of_few_digits(world.rank(), step, element);
          mine[element++] += each;
        }
        engine.ready(id);
      }
    }
    engine.wait();
    const auto remembered = engine.memories();
    const std::scoped_lock alone(one_at_a_time);
    for (std::size_t i = 0; i < 40; ++i) {
      given[i] += mine[i];
      kept[i] += remembered[0][i];
      owned[i] += remembered[1].empty() ? 0.0 : remembered[1][i];
    }
    if constexpr (facts::owns_parts<Architecture>) {
      for (const chunk& each : engine.planned().chunks) {
        const chunk part = each.part(at(ranks), at(world.rank()));
        for (std::size_t i = each.first_element; i < each.first_element + each.elements; ++i) {
          const bool is_mine = part.first_element <= i && i < part.first_element + part.elements;
          const float left = remembered[1][i];
          EXPECT_TRUE(left == 0 || is_mine) << world.rank() << " remembers " << left;
          owners += left != 0;
        }
      }
    }
    auto& all = applied[static_cast<std::size_t>(world.rank())];
    for (std::size_t i = sizes.size(); i-- > 0;) {
      all.insert(all.end(), parameters[i].begin(), parameters[i].end());
    }
  });
  for (const auto& each : applied) {
    ASSERT_EQ(each.size(), 40U);
    for (std::size_t i = 0; i < 40; ++i) {
      const double expected = (given[i] - kept[i]) / ranks - owned[i];
      EXPECT_NEAR(-each[i], expected, std::has_single_bit(unsigned(ranks)) ? 0 : 1e-4) << i;
    }
  }
  // With one rank the owner selects the same elements again and leaves nothing.
  EXPECT_EQ(owners > 0, ranks > 1 && facts::owns_parts<Architecture>);
}

TEST(Gathered, ResidualsGoWithTheirElements) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    loses_nothing<architecture::all_gather>(ranks);
    loses_nothing<architecture::reduce_scatter_all_gather>(ranks);
    loses_nothing<architecture::reduce_scatter_all_gather, fusion::by_arrival,
                  coordination::learned>(ranks, {.bytes = 100, .first_bytes = 40});
  }
}

/// The first and the last tensor are launched together, and the one between them is launched alone.
/// Positions in the launch of two are those of the other tensor's elements in the model.
TEST(Gathered, NoTwoLaunchesDrawTheSameNumbers) {
  using strategy = compose<compression::natural, architecture::all_gather, fusion::by_arrival,
                           coordination::learned>;
  constexpr std::size_t n = 64;
  constexpr int steps = 20;
  // Equal draws of the first and second tensor, the second and third, the third and first.
  std::array<int, 3> alike{};
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"first", n}, {"between", n}, {"last", n}});
    const std::size_t together = 2 * n * sizeof(float);
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer::none{},
                                        {.fusion = {.bytes = together, .first_bytes = together}});
    for (int step = 0; step < steps; ++step) {
      std::ranges::fill(memory.gradients(), 1.5f);  // is rounded to 1 or 2 at random
      for (const int each : {0, 2, 1}) {
        engine.ready(tensor_id(each));
      }
      engine.wait();
      for (std::size_t tensor = 0; tensor < alike.size() && step > 0; ++tensor) {
        const auto one = memory.tensors()[tensor].gradient;
        const auto next = memory.tensors()[(tensor + 1) % alike.size()].gradient;
        for (std::size_t i = 0; i < n; ++i) {
          alike[tensor] += one[i] == next[i] ? 1 : 0;
        }
      }
    }
  });
  for (const int each : alike) {
    EXPECT_NEAR(each, (steps - 1) * int(n) / 2, 5 * std::sqrt((steps - 1) * double(n)) / 2);
  }
}

/// The first and the last tensor are launched together, where the last one's second element has the
/// place of the second tensor's in the model.
TEST(Gathered, NotANumberIsOfTheLaunchAndOfNoOtherTensor) {
  using strategy = compose<architecture::reduce_scatter_all_gather,
                           compression::error_feedback<compression::top_k>, fusion::by_arrival,
                           coordination::learned>;
  const auto said = errors(1, [](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"first", 4}, {"between", 4}, {"last", 4}});
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer::sgd{},
                                        {.fusion = {.bytes = 32, .first_bytes = 32}});
    for (int step = 0; step < 2; ++step) {
      std::ranges::fill(memory.gradients(), 1.0f);
      memory.tensors()[2].gradient[1] = step == 1 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
      for (const int each : {0, 2, 1}) {
        engine.ready(tensor_id(each));
      }
      engine.wait();
    }
  });
  EXPECT_EQ(said[0].find("an element of the launch that begins with last's gradient is not a"), 0u)
      << said[0];
}

/// Doubles each mean that comes back.
struct doubles_means : architecture::all_gather {
  template <class World>
  struct state : all_gather::state<World> {
    state(World& its_world, const no_options& none)
        : all_gather::state<World>(its_world, none), world(&its_world) {}
    void incoming(const chunk&, std::span<float> mean) { world->blend(mean, mean, 1.0f, 1.0f); }
    World* world;
  };
};
/// Sends each gradient doubled.
struct doubles_gradients : architecture::all_gather {
  template <class World>
  struct state : all_gather::state<World> {
    state(World& its_world, const no_options& none)
        : all_gather::state<World>(its_world, none), world(&its_world) {}
    void outgoing(const chunk& piece, std::span<float> buffer) {
      world->read_gradients(piece, buffer);
      world->blend(buffer, buffer, 1.0f, 1.0f);
    }
    World* world;
  };
};

/// The first and the last tensor are launched together in a buffer, the one between them alone in
/// its place.
template <class Architecture>
void gives_the_optimizer_what_came_back() {
  using strategy = compose<Architecture, fusion::by_arrival, coordination::learned>;
  transport::run_ranks(2, [&](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"first", 3}, {"between", 5}, {"last", 1}});
    auto engine =
        make_engine<strategy>(world, memory.tensors(), optimizer::sgd{.learning_rate = 1.0f},
                              {.fusion = {.bytes = 16, .first_bytes = 16}});
    for (int step = 1; step <= 4; ++step) {
      std::ranges::fill(memory.gradients(), world.rank() == 0 ? 1.0f : 2.0f);
      for (const int each : {0, 2, 1}) {
        engine.ready(tensor_id(each));
      }
      engine.wait();
      for (const float each : memory.parameters()) {
        EXPECT_EQ(each, -3.0f * static_cast<float>(step)) << step;
      }
    }
  });
}
TEST(Gathered, OptimizersAreGivenWhatAnArchitectureMakesOfMeans) {
  gives_the_optimizer_what_came_back<doubles_means>();
}
TEST(Gathered, OptimizersAreGivenTheMeanOfWhatAnArchitectureSends) {
  gives_the_optimizer_what_came_back<doubles_gradients>();
}

template <class Strategy>
std::string reported(progress who) {
  std::ostringstream out;
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    engine_options<Strategy> options;
    options.run.progress = who;
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
    out << engine.report();
  });
  return out.str();
}

TEST(Gathered, TheReportSaysThatCyclesWaitedForTheCaller) {
  const std::string fix = "Fix: set run.progress = progress::by_thread\n";
  EXPECT_TRUE(reported<strategies::Horovod>(progress::by_caller).ends_with(fix));
  EXPECT_EQ(reported<strategies::Horovod>(progress::by_thread).find("Fix"), std::string::npos);
  EXPECT_EQ(reported<compose<>>(progress::by_caller).find("Fix"), std::string::npos);
}

/// A fusion whose option has another name than when_ready's.
struct in_periods : fusion::when_ready {
  struct options {
    double period{0.001};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("period", self.period, "seconds between two looks at what is ready");
    }
  };
  in_periods() = default;
  explicit in_periods(const options&) {}

  struct state : fusion::when_ready::state {
    state(const plan& made, const options& set)
        : fusion::when_ready::state(made, {.cycle = set.period}) {}
  };
};

TEST(Gathered, ACycleThatIsLongerThanTheDeadlineIsRefused) {
  using periodic = compose<in_periods, coordination::negotiated>;
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    engine_options<periodic> options;
    options.fusion.period = 12.5;
    options.run.deadline = 1;
    auto engine = make_engine<periodic>(world, memory.tensors(), optimizer_of(), options);
    for (std::size_t i = memory.tensors().size(); i-- > 0;) {
      engine.ready(tensor_id(i));
    }
    engine.wait();
  });
  for (const std::string& each : said) {
    EXPECT_EQ(
        each,
        "the fusion's cycle is 12.5 seconds and run.deadline 1, so ranks that wait for a cycle "
        "would be taken for stuck. Fix: a shorter cycle, such as 0.001, or a longer deadline");
  }
}

}  // namespace
}  // namespace tutti::test
