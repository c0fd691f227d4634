// Statistics of gradients and parameters, compared with plain loops in double that see every
// rank's; and statistics of times, compared with delays that the test inserts.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/summing.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/monitor/consensus_distance.hpp"
#include "tutti/monitor/counters.hpp"
#include "tutti/monitor/noise_scale.hpp"
#include "tutti/monitor/stragglers.hpp"
#include "tutti/monitor/tee.hpp"
#include "tutti/monitor/variance.hpp"
#include "tutti/transport/network.hpp"

namespace tutti::test {
namespace {

constexpr int steps = 6;

/// Returns what each worker's monitors have seen; `make(memory, rank)` makes a monitor.
template <class Strategy, class Make, class Give = gradient_function>
auto seen_by(int workers, int taken, Make make, Give give = gradient) {
  using monitor_type = decltype(make(std::declval<arena&>(), 0));
  std::vector<std::vector<monitor_type>> all(static_cast<std::size_t>(workers));
  transport::run_ranks(workers, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), {},
                                        make(memory, world.rank()));
    for (int step = 0; step < taken; ++step) {
      std::size_t element = 0;
      for (float& each : memory.gradients()) {
        each = give(world.rank(), step, element++);
      }
      for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
        engine.ready(id);
      }
      engine.wait();
    }
    engine.drain();
    all[static_cast<std::size_t>(world.rank())].push_back(engine.observed());
  });
  return all;
}

// ---- the noise scale

constexpr std::size_t batch = 32;

monitor::noise_scale::settings noise_settings(int workers, unsigned interval = 1) {
  return {.batch_size = batch, .workers = workers, .interval = interval};
}

struct expected_noise {
  double signal{};
  double noise{};

  void take(double small_squares, double large_squares, double workers, bool first) {
    const double b = batch;
    const double large = b * workers;
    const double g = (large * large_squares - b * small_squares) / (large - b);
    const double s = (small_squares - large_squares) / (1 / b - 1 / large);
    signal = first ? g : 0.9 * signal + 0.1 * g;
    noise = first ? s : 0.9 * noise + 0.1 * s;
  }
};

/// Returns KungFu's noise scale as each worker sees it, followed by that of all workers' norms.
std::vector<expected_noise> noise_in_double(int workers, int taken, unsigned interval) {
  std::vector<expected_noise> made(static_cast<std::size_t>(workers) + 1);
  for (int step = 0; step < taken; step += static_cast<int>(interval)) {
    std::vector<double> small(made.size());
    double large = 0;
    for (std::size_t i = 0; i < total_elements(); ++i) {
      double sum = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const auto g = static_cast<double>(gradient(worker, step, i));
        sum += g;
        small[static_cast<std::size_t>(worker)] += g * g;
        small.back() += g * g / workers;
      }
      large += (sum / workers) * (sum / workers);
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i].take(small[i], large, workers, step == 0);
    }
  }
  return made;
}

void expect_near(const monitor::noise_estimate& seen, const expected_noise& wanted) {
  EXPECT_NEAR(seen.signal(), wanted.signal,
              1e-5 * (std::abs(wanted.signal) + wanted.noise / batch));
  EXPECT_NEAR(seen.noise(), wanted.noise, 1e-5 * std::abs(wanted.noise));
}

template <class Strategy>
void noise_is_kungfus() {
  for (int workers = 2; workers <= 5; ++workers) {
    for (const unsigned interval : {1u, 4u}) {
      const auto seen = seen_by<Strategy>(workers, steps, [=](arena& memory, int) {
        return monitor::noise_scale(memory.tensors(), noise_settings(workers, interval));
      });
      const auto wanted = noise_in_double(workers, steps, interval);
      for (std::size_t rank = 0; rank < seen.size(); ++rank) {
        const auto& its = seen[rank].front();
        EXPECT_EQ(its.own().taken(), interval == 1 ? 6U : 2U);
        expect_near(its.own(), wanted[rank]);
        expect_near(its.of_all(), wanted.back());
        EXPECT_EQ(its.of_all().scale(), seen[0].front().of_all().scale()) << "equal on all workers";
        EXPECT_TRUE(rank == 0 || its.own().scale() != seen[0].front().own().scale());
      }
    }
  }
}
TEST(NoiseScale, IsThatOfOneProcessThatSeesAllGradients) {
  noise_is_kungfus<compose<>>();
  noise_is_kungfus<compose<fusion::when_ready>>();  // where means are in buffers that are reused
}

/// A sum is not a mean, and that of the step before is not this step's: with four workers, and
/// gradients that shrink by a tenth each step, the noise was -1986 and -27 times what it is.
template <class Architecture>
constexpr bool goes_with = rule::monitors_see_means<Architecture, monitor::noise_scale>::holds;
static_assert(goes_with<architecture::all_reduce<>> && goes_with<architecture::parameter_server<>>);
static_assert(!goes_with<architecture::delayed<architecture::all_reduce<>>>);
static_assert(!goes_with<architecture::all_reduce<collective::ring, architecture::mean::none>>);

/// Worker 1 has a batch in the first two steps only.
TEST(NoiseScale, LeavesOutStepsInWhichAWorkerHasNoBatch) {
  using strategy = compose<coordination::negotiated>;
  const auto wanted = noise_in_double(2, 2, 1);
  transport::run_ranks(2, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), {},
                                        monitor::noise_scale(memory.tensors(), noise_settings(2)));
    for (int step = 0; step < (world.rank() == 0 ? 5 : 2); ++step) {
      take_step(engine, memory, step);
    }
    engine.wait();
    engine.join();
    engine.drain();
    const auto& its = engine.observed();
    EXPECT_EQ(its.own().taken(), 2U);
    EXPECT_EQ(its.of_all().taken(), 2U);
    expect_near(its.own(), wanted[static_cast<std::size_t>(world.rank())]);
    expect_near(its.of_all(), wanted.back());
  });
}

TEST(NoiseScale, KeepsNegativeValues) {
  monitor::noise_estimate seen(32, 64, 0.9);
  seen.take(2, 1);  // |G|^2 = 0 / 32, S = 1 / (1 / 64)
  EXPECT_EQ(seen.signal(), 0);
  EXPECT_EQ(seen.noise(), 64);
  seen.take(4, 1);  // -64 / 32, 3 * 64
  EXPECT_DOUBLE_EQ(seen.signal(), -0.2);
  EXPECT_DOUBLE_EQ(seen.noise(), 0.9 * 64 + 0.1 * 192);
  EXPECT_DOUBLE_EQ(seen.scale(), (0.9 * 64 + 0.1 * 192) / -0.2);
  monitor::noise_estimate large(32, 64, 0.6);
  large.take(1, 2);
  EXPECT_EQ(large.noise(), -64) << "a mean longer than the gradient";
}

/// The gradients of a batch: a constant, plus normal noise of unit deviation divided by the root of
/// the batch size. The noise was drawn once into a pool, and each worker and step begins at another
/// place of it.
class gaussian {
 public:
  static constexpr std::size_t elements = 100'003;

  explicit gaussian(double constant) : constant_(constant), pool_(std::size_t{1} << 20) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal(constant, 1 / std::sqrt(1.0 * batch));
    for (float& each : pool_) {
      each = static_cast<float>(normal(random));
    }
  }
  void fill(std::span<float> gradient, int worker, int step) const {
    std::mt19937_64 random(static_cast<std::uint64_t>(step) * 64 +
                           static_cast<std::uint64_t>(worker));
    const std::size_t at = random() % (pool_.size() - gradient.size());
    std::copy_n(pool_.begin() + static_cast<std::ptrdiff_t>(at), gradient.size(), gradient.begin());
  }
  double scale() const { return 1 / (constant_ * constant_); }

 private:
  double constant_;
  std::vector<float> pool_;
};

TEST(NoiseScale, RecoversThatOfAKnownGaussianWithinFivePerCent) {
  constexpr int workers = 2;
  constexpr int taken = 200;
  const gaussian given(0.1875);  // the square times the large batch is 2.25 times the noise
  std::vector<double> own(workers);
  std::vector<double> of_all(workers);
  transport::run_ranks(workers, [&](transport::in_process& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    arena memory(std::vector<arena::declaration>{{"all", gaussian::elements}});
    auto engine =
        make_engine<compose<>>(world, memory.tensors(), optimizer_of(), {},
                               monitor::noise_scale(memory.tensors(), noise_settings(workers)));
    for (int step = 0; step < taken; ++step) {
      given.fill(memory.gradients(), world.rank(), step);
      engine.ready(tensor_id{0});
      engine.drain();
      own[rank] += engine.observed().own().scale() / taken;
      of_all[rank] += engine.observed().of_all().scale() / taken;
    }
  });
  for (const auto& each : {own, of_all}) {
    for (const double mean : each) {
      EXPECT_NEAR(mean, given.scale(), 0.05 * given.scale());
    }
  }
}

TEST(NoiseScale, OfOneWorkerIsRefused) {
  arena memory = model_of(0);
  EXPECT_THROW(monitor::noise_scale(memory.tensors(), noise_settings(1)), usage_error);
  EXPECT_NO_THROW(monitor::noise_scale(memory.tensors(), noise_settings(1, 0)));
}

TEST(Monitors, OfGradientsThatAreNotThereAreRefused) {
  std::vector<float> parameter(3);
  std::vector<std::uint16_t> narrow(3);
  for (const tensor& each : {tensor("of sixteen bits", parameter, narrow, element_type::bf16),
                             tensor::without_gradient("lent", parameter)}) {
    try {
      monitor::variance(std::span(&each, 1), 2);
      ADD_FAILURE() << each.name;
    } catch (const usage_error& refused) {
      EXPECT_NE(std::string(refused.what()).find(each.name), std::string::npos) << refused.what();
    }
    EXPECT_THROW(monitor::noise_scale(std::span(&each, 1), noise_settings(2)), usage_error);
  }
}

// ---- the variance

double variance_in_double(int workers, int step) {
  double sum = 0;
  std::size_t element = 0;
  for (std::size_t id = tensor_sizes().size(); id-- > 0;) {
    double squares = 0;
    for (std::size_t i = 0; i < tensor_sizes()[id]; ++i, ++element) {
      double mean = 0;
      double mean_square = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const auto g = static_cast<double>(gradient(worker, step, element));
        mean += g / workers;
        mean_square += g * g / workers;
      }
      squares += (mean_square - mean * mean) * (mean_square - mean * mean);
    }
    sum += std::sqrt(squares);
  }
  return sum;
}

TEST(Variance, IsThatOfOneProcessThatSeesAllGradientsAndEqualOnAllRanks) {
  for (int workers = 1; workers <= 5; ++workers) {
    for (const unsigned interval : {1u, 4u}) {
      const auto seen = seen_by<compose<>>(workers, steps, [=](arena& memory, int) {
        return monitor::variance(memory.tensors(), workers, interval);
      });
      const double wanted = variance_in_double(workers, interval == 1 ? 5 : 4);
      for (const auto& its : seen) {
        EXPECT_EQ(its.front().taken(), interval == 1 ? 6U : 2U);
        EXPECT_NEAR(its.front().value(), wanted, 1e-9 * (1 + wanted));
        EXPECT_EQ(its.front().value(), seen[0].front().value());
      }
    }
  }
}

// ---- the distance from consensus

/// Returns the distance of models that workers train by their own gradients only.
double distance_in_double(int workers, int taken) {
  std::vector<std::vector<float>> models;
  for (int worker = 0; worker < workers; ++worker) {
    models.push_back(
        descended(taken, {}, [=](int step, std::size_t i) { return gradient(worker, step, i); }));
  }
  double sum = 0;
  for (std::size_t i = 0; i < total_elements(); ++i) {
    double mean = 0;
    for (const auto& model : models) {
      mean += static_cast<double>(model[i]) / workers;
    }
    for (const auto& model : models) {
      sum += (static_cast<double>(model[i]) - mean) * (static_cast<double>(model[i]) - mean);
    }
  }
  return std::sqrt(sum / workers);
}

TEST(ConsensusDistance, IsThatOfOneProcessThatSeesAllModels) {
  const auto watching = [](int workers, unsigned interval) {
    return [=](arena& memory, int) {
      return monitor::consensus_distance(memory.tensors(), workers, interval);
    };
  };
  for (int workers = 1; workers <= 5; ++workers) {
    const auto apart =
        seen_by<compose<architecture::independent>>(workers, steps, watching(workers, 1));
    const double wanted = distance_in_double(workers, steps);
    for (const auto& its : apart) {
      EXPECT_NEAR(its.front().value(), wanted, 1e-6 * wanted + 1e-5);
      EXPECT_EQ(its.front().value(), apart[0].front().value());
    }
  }
  const auto sometimes = seen_by<compose<architecture::independent>>(3, steps, watching(3, 4));
  EXPECT_EQ(sometimes[0].front().taken(), 2U);
  EXPECT_NEAR(sometimes[0].front().value(), distance_in_double(3, 5), 1e-4);
  EXPECT_LT(seen_by<compose<>>(3, steps, watching(3, 1))[0].front().value(), 1e-4);
}

// ---- several, and what they cost

TEST(Tee, LetsBothSeeAllAndAddsUpBothsSums) {
  using monitor::counters;
  constexpr int workers = 3;
  const auto noise = [](arena& memory, int) {
    return monitor::noise_scale(memory.tensors(), noise_settings(workers, 2));
  };
  const auto varied = [](arena& memory, int) {
    return monitor::variance(memory.tensors(), workers, 3);
  };
  const auto both = seen_by<compose<>>(workers, steps, [&](arena& memory, int rank) {
    return monitor::tee(monitor::tee(counters(), noise(memory, rank)),
                        monitor::tee(varied(memory, rank), summing(memory)));
  });
  const auto summing_alone =
      seen_by<compose<>>(workers, steps, [](arena& memory, int) { return summing(memory); });
  const auto noise_alone = seen_by<compose<>>(workers, steps, noise);
  const auto variance_alone = seen_by<compose<>>(workers, steps, varied);
  for (std::size_t rank = 0; rank < workers; ++rank) {
    auto its = both[rank].front();
    EXPECT_EQ(monitor::part_of<counters>(its).count(event::ready), steps * tensor_sizes().size());
    // Norms are added in the order in which tensors arrive, which differs from run to run.
    expect_near(
        monitor::part_of<monitor::noise_scale>(its).own(),
        {noise_alone[rank].front().own().signal(), noise_alone[rank].front().own().noise()});
    expect_near(
        monitor::part_of<monitor::noise_scale>(its).of_all(),
        {noise_alone[rank].front().of_all().signal(), noise_alone[rank].front().of_all().noise()});
    EXPECT_EQ(monitor::part_of<monitor::variance>(its).value(),
              variance_alone[rank].front().value());
    EXPECT_EQ(monitor::part_of<monitor::variance>(its).taken(), 2U);
    const auto& each_step = monitor::part_of<summing>(its).steps;
    ASSERT_EQ(each_step.size(), summing_alone[rank].front().steps.size());
    for (std::size_t step = 0; step < each_step.size(); ++step) {
      const double wanted = summing_alone[rank].front().steps[step][0];
      EXPECT_NEAR(each_step[step][0], wanted, 1e-9 * wanted) << "each step begins from zero";
    }
  }
  static_assert(!facts::has_sums<monitor::tee<counters, counters>>);
  static_assert(!facts::sees_means<monitor::tee<counters, monitor::variance>>);
  static_assert(facts::sees_means<monitor::tee<counters, monitor::noise_scale>>);
  static_assert(!facts::reads_memory<monitor::tee<counters, monitor::stragglers>>);
}

/// Checks the bytes that ranks send in 16 steps for a monitor that observes every `interval`th
/// step.
TEST(Monitors, ReportWhatTheySendAtIntervalsOfOneAndEight) {
  for (const unsigned interval : {1u, 8u}) {
    std::vector<report> reports(3);
    transport::run_ranks(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<compose<>>(
          world, memory.tensors(), optimizer_of(), {},
          monitor::tee(monitor::noise_scale(memory.tensors(), noise_settings(3, interval)),
                       monitor::variance(memory.tensors(), 3, interval)));
      for (int step = 0; step < 16; ++step) {
        take_step(engine, memory, step);
      }
      engine.drain();
      reports[static_cast<std::size_t>(world.rank())] = engine.report();
    });
    const std::uint64_t looks = 16 / interval;
    // Each way, a number stands before these.
    const std::uint64_t bytes = looks * sizeof(double) * (1 + 2 + 2 * total_elements());
    EXPECT_EQ(reports[0].observing.bytes_sent, 2 * bytes) << "rank 0 tells both others";
    EXPECT_EQ(reports[2].observing.bytes_sent, bytes);
    EXPECT_EQ(reports[2].observing.messages_sent, 2 * looks);
    EXPECT_GT(reports[2].observing_seconds, 0);
    std::ostringstream said;
    said << reports[2];
    EXPECT_NE(said.str().find("its monitor, per step: "), std::string::npos) << said.str();
  }
}

// ---- stragglers

struct slow {
  int rank{};
  seconds computes{};  ///< added to each step
  bool has_narrow_nic{};
};

template <class Strategy>
task watched_rank(transport::simulated& world, int workers, slow who,
                  std::vector<monitor::stragglers>& seen) {
  arena memory = model_of(world.rank());
  monitor::stragglers watching(memory.tensors().size(), world.rank(), workers);
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), {}, watching);
  co_await engine.started();
  if (engine.serves()) {
    co_await engine.close();
    co_return;
  }
  for (int step = 0; step < steps; ++step) {
    co_await world.sleep(1e-3 + (world.rank() == who.rank ? who.computes : 0));
    for (std::size_t i = memory.tensors().size(); i-- > 0;) {
      engine.ready(tensor_id(i));
    }
    for (std::size_t i = 0; i < memory.tensors().size(); ++i) {
      co_await engine.arrival(tensor_id(i));
    }
  }
  co_await engine.close();
  seen.push_back(engine.observed());
}

template <class Strategy>
std::vector<monitor::stragglers> watched(int workers, slow who) {
  constexpr transport::link nic{1e8, 1e-6};
  const int ranks = workers + (has_servers<Strategy> ? 1 : 0);
  transport::network over(ranks, nic);
  if (who.has_narrow_nic) {
    over.change_nic(0, static_cast<std::size_t>(who.rank),
                    {nic.bytes_per_second / 20, nic.latency});
  }
  std::vector<monitor::stragglers> seen;
  transport::run_simulated(over, [&](transport::simulated& world) {
    return watched_rank<Strategy>(world, workers, who, seen);
  });
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(workers));
  return seen;
}

TEST(Stragglers, ADelayIsPutOnTheRightRankAndPhase) {
  using servers = compose<architecture::parameter_server<>>;
  for (const int rank : {0, 2, 3}) {
    for (const auto& each : watched<compose<>>(4, {.rank = rank, .computes = 5e-3})) {
      EXPECT_EQ(each.worst().rank, rank);
      EXPECT_EQ(each.worst().phase, monitor::phase::computing);
      EXPECT_NEAR(each.worst().late, (steps - 1) * 5e-3, 1e-9) << "but for the first step";
    }
    for (const auto& each : watched<servers>(4, {.rank = rank, .computes = 5e-3})) {
      EXPECT_EQ(each.worst().rank, rank);
      EXPECT_EQ(each.worst().phase, monitor::phase::computing);
    }
    for (const auto& each : watched<servers>(4, {.rank = rank, .has_narrow_nic = true})) {
      EXPECT_EQ(each.worst().rank, rank);
      EXPECT_EQ(each.worst().phase, monitor::phase::sending);
      EXPECT_GT(each.worst().late, 0);
    }
  }
  for (const auto& each : watched<compose<>>(4, {})) {
    EXPECT_NEAR(each.worst().late, 0, 1e-3) << "nobody is late";
  }
}

}  // namespace
}  // namespace tutti::test
