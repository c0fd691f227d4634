// The strategy laws on the virtual clock, and over the same network in real time.
#include <cstddef>
#include <gtest/gtest.h>
#include <type_traits>

#include "support/extent.hpp"
#include "support/low_rank_oracle.hpp"
#include "support/strategy_laws.hpp"
#include "support/training.hpp"
#include "support/training_worlds.hpp"
#include "tutti/strategies/byteps.hpp"
#include "tutti/strategies/power_sgd.hpp"
#include "tutti/transport/any_transport.hpp"

namespace tutti::test {

static_assert(strategies_in<dense_strategies_on<on_the_virtual_clock>> == 13);
INSTANTIATE_TYPED_TEST_SUITE_P(OnTheVirtualClock, StrategyLaw,
                               dense_strategies_on<on_the_virtual_clock>);

static_assert(strategies_in<averaging_strategies_on<on_the_virtual_clock>> == 14);
INSTANTIATE_TYPED_TEST_SUITE_P(AveragingOnTheVirtualClock, StrategyLaw,
                               averaging_strategies_on<on_the_virtual_clock>);

static_assert(strategies_in<a_few_dense_strategies_on<on_shaped_threads>> == 4);
INSTANTIATE_TYPED_TEST_SUITE_P(OnShapedThreads, StrategyLaw,
                               a_few_dense_strategies_on<on_shaped_threads>);
using hosts_first_on_shaped_threads = strategy_on<listed::hosts_first, on_shaped_threads>;
INSTANTIATE_TYPED_TEST_SUITE_P(HostsFirstOnShapedThreads, StrategyLaw,
                               hosts_first_on_shaped_threads);
static_assert(strategies_in<averaging_strategies_on<on_shaped_threads>> == 14);
using a_few_on_shaped_threads =
    testing::Types<strategy_on<listed::in_two_halves, on_shaped_threads>,
                   strategy_on<listed::models_of_neighbours, on_shaped_threads>,
                   strategy_on<listed::models_on_springs, on_shaped_threads>>;
using averaging_on_shaped_threads =
    std::conditional_t<all_of_a_product, averaging_strategies_on<on_shaped_threads>,
                       a_few_on_shaped_threads>;
INSTANTIATE_TYPED_TEST_SUITE_P(AveragingOnShapedThreads, StrategyLaw, averaging_on_shaped_threads);
static_assert(strategies_in<gathering_strategies_on<on_shaped_threads>> == 2);
INSTANTIATE_TYPED_TEST_SUITE_P(GatheringOnShapedThreads, StrategyLaw,
                               gathering_strategies_on<on_shaped_threads>);
using codes_on_shaped_threads =
    strategy_on<listed::coded<way::gathered, strategies::QSGD>, on_shaped_threads>;
INSTANTIATE_TYPED_TEST_SUITE_P(CodesOnShapedThreads, StrategyLaw, codes_on_shaped_threads);

TEST(RoundsOnShapedThreads, TrainAsTheRecurrence) {
  constexpr int steps = 6;
  for (int workers = 1; workers <= 5; ++workers) {
    outcome result(workers);
    on_shaped_threads::run(workers, [&](on_shaped_threads::transport& world) {
      return rank_on_a_clock<strategies::PowerSGD>(world, steps, {}, result, shaped_declarations());
    });
    const auto wanted = trained_in_low_rank(workers, steps, 2, 1);
    for (const auto& parameters : result.parameters) {
      ASSERT_EQ(parameters.size(), wanted.parameters.size());
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        ASSERT_NEAR(parameters[i], wanted.parameters[i], wanted.bound) << i << " of " << workers;
      }
    }
  }
}

/// A thread's queue with the type of a virtual clock's.
class queue_in_real_time : public transport::virtual_queue {};
using thread_in_real_time = transport::basic_in_process<queue_in_real_time, transport::by_mailbox>;
using either = transport::any_like<transport::simulated>;
static_assert(has_virtual_time<either> && may_be_in_real_time<either>);
static_assert(!may_be_in_real_time<transport::simulated>);

/// Expects one type of engine to give the same bits on either clock, and on the virtual clock to
/// make the same events as without type erasure.
template <class Strategy>
void trains_on_either_clock(engine_options<Strategy> options) {
  constexpr int steps = 4;
  const int servers = servers_in<Strategy>(options);
  const auto forward = declarations();
  for (int workers = 1; workers <= 5; ++workers) {
    SCOPED_TRACE(workers);
    const auto simulate = [&](auto rank) {
      return transport::run_simulated(workers + servers, transport::link{1.25e9, 50e-6}, rank);
    };
    outcome bare(workers, servers);
    const auto without = simulate([&](transport::simulated& world) {
      return rank_on_a_clock<Strategy>(world, steps, options, bare, forward);
    });
    outcome erased(workers, servers);
    const auto with = simulate([&](transport::simulated& inner) -> task {
      either world(inner);
      EXPECT_FALSE(world.in_real_time());
      task rank = rank_on_a_clock<Strategy>(world, steps, options, erased, forward);
      co_await rank;
    });
    EXPECT_EQ(with.time, without.time);
    EXPECT_EQ(with.events, without.events);
    EXPECT_EQ(erased.bytes, bare.bytes);
    EXPECT_EQ(erased.parameters, bare.parameters);
    for (const progress moved : {progress::by_caller, progress::by_thread}) {
      outcome real(workers, servers);
      options.run.progress = moved;
      transport::run_ranks<thread_in_real_time>(workers + servers, [&](auto& inner) {
        either world(inner);
        EXPECT_TRUE(world.in_real_time());
        train_a_rank<Strategy>(world, steps, options, optimizer_for<Strategy>(), real, forward);
      });
      EXPECT_EQ(real.parameters, bare.parameters);
      EXPECT_EQ(real.agendas, bare.agendas);
    }
  }
}

TEST(EitherClock, IsKnownWhenAnEngineIsMade) {
  trains_on_either_clock<compose<>>({});
  trains_on_either_clock<strategies::BytePS>({.architecture = {.servers = 2}});
}

}  // namespace tutti::test
