#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <type_traits>
#include <vector>

#include "support/extent.hpp"
#include "support/model_on.hpp"
#include "support/oracle.hpp"
#include "support/payload_oracle.hpp"
#include "support/strategies.hpp"
#include "support/training.hpp"
#include "tutti/core/engine_types.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/role/transport.hpp"

/// Laws that every strategy keeps in every world. A world joins with
/// `INSTANTIATE_TYPED_TEST_SUITE_P(Mine, StrategyLaw, dense_strategies_on<my_world>)`, a strategy
/// by its place in a list of strategies.hpp.
namespace tutti::test {

/// Whether ranks take their steps one after the other. This is needed where no rank waits for
/// another, so that it is known which models each of them finds.
template <class Listed>
constexpr bool takes_turns = requires {
  requires Listed::takes_turns;
};

/// A pair of a strategy and a world. A world has a `transport` and `run(ranks, body)`, which runs
/// `body(transport)` on every rank and returns false if this process does not belong to exactly
/// that many ranks. Where the transport has a clock of its own, `body` is a coroutine.
template <class Listed, class World>
struct strategy_on {
  using listed = Listed;
  using world = World;
  using transport = typename World::transport;
  using strategy = strategy_of<typename Listed::strategy>;
  using types = engine_types<strategy, transport, optimizer::sgd, monitor::none>;
  using architecture = typename types::architecture;

  /// Whether no rule of tutti's refuses the strategy in this world.
  static constexpr bool legal =
      rule::peers_must_be_addressable<architecture, transport>::holds &&
      rule::native_needs_the_transport<architecture, transport>::holds &&
      rule::senders_must_be_known<architecture, transport>::holds &&
      rule::lengths_must_be_known<typename strategy::compression, transport>::holds;

  using options = typename Listed::options;
  static constexpr bool depends_on_options = requires { Listed::expected(options(), 1, 1); };
  static constexpr bool has_own_oracle = depends_on_options || requires { Listed::expected(1, 1); };

  /// The gradients have few digits, unless sums have the same bits as in one process that adds in
  /// rank order.
  static constexpr gradient_function gradients = [] {
    if constexpr (requires { typename architecture::collective; }) {
      return architecture::collective::rank_ordered ? gradient : gradient_of_few_digits;
    } else {
      return has_own_oracle || has_servers<strategy> ? gradient : gradient_of_few_digits;
    }
  }();

  /// Returns the expected parameters. Where it states no bytes, what workers send is not checked.
  static expected_payloads expected([[maybe_unused]] const options& set, int workers, int steps) {
    if constexpr (depends_on_options) {
      return Listed::expected(set, workers, steps);
    } else if constexpr (has_own_oracle) {
      return {Listed::expected(workers, steps)};
    } else {
      return {trained(workers, steps, {}, gradients)};
    }
  }
};

namespace detail {

template <class... Lists>
struct joined;
template <class... All>
struct joined<testing::Types<All...>> {
  using type = testing::Types<All...>;
};
template <class... First, class... Second, class... Rest>
struct joined<testing::Types<First...>, testing::Types<Second...>, Rest...>
    : joined<testing::Types<First..., Second...>, Rest...> {};

template <class List>
struct legal_of;
template <class... Cells>
struct legal_of<testing::Types<Cells...>>
    : joined<testing::Types<>,
             std::conditional_t<Cells::legal, testing::Types<Cells>, testing::Types<>>...> {};

template <class List>
constexpr int size_of = 0;
template <class... Cells>
constexpr int size_of<testing::Types<Cells...>> = static_cast<int>(sizeof...(Cells));

}  // namespace detail

template <class World>
struct in_training_world {
  template <class Listed>
  using pair = strategy_on<Listed, World>;
};

/// The strategies of a list that no rule refuses in a world.
template <class World>
using dense_strategies_on = typename detail::legal_of<
    listed::each_dense_strategy<in_training_world<World>::template pair>>::type;
template <class World>
using lossy_strategies_on = typename detail::legal_of<
    listed::each_lossy_strategy<in_training_world<World>::template pair>>::type;
template <class World>
using coded_strategies_on = typename detail::legal_of<
    listed::each_coded_strategy<in_training_world<World>::template pair>>::type;
template <class World>
using averaging_strategies_on = typename detail::legal_of<
    listed::each_averaging_strategy<in_training_world<World>::template pair>>::type;
template <class World>
using gathering_strategies_on = typename detail::legal_of<
    listed::each_gathering_strategy<in_training_world<World>::template pair>>::type;
template <class World>
using a_few_dense_strategies_on = typename detail::legal_of<
    listed::a_few_dense_strategies<in_training_world<World>::template pair>>::type;

/// The number of strategies in a list. A world that joins states it, so that no strategy is left
/// out unnoticed.
template <class List>
constexpr int strategies_in = detail::size_of<List>;

/// Trains one rank, as a call or, on a virtual clock, as a coroutine. Tensors become ready in an
/// order that differs from rank to rank and step to step. A step may have several passes. The rank
/// waits for all tensors before a forward pass, or for one at a time in between.
template <class Cell>
class trained_rank {
  using transport = typename Cell::transport;
  using listed = typename Cell::listed;
  static constexpr bool on_a_clock = has_virtual_time<transport>;
  using queue = std::conditional_t<on_a_clock, inline_queue, typename transport::queue_type>;

 public:
  trained_rank(const typename listed::options& options, layout how, int steps, outcome& result)
      : options_(&options), how_(how), steps_(steps), result_(&result) {}

  void operator()(transport& world) const requires(!on_a_clock) {
    queue compute;
    model_on<queue> model(compute, world.rank(), how_, Cell::gradients);
    auto engine =
        make_engine<typename listed::strategy>(world, model.tensors(), optimizer_of(), *options_);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    const std::size_t tensors = model.tensors().size();
    const std::uint64_t before = engine.counted().bytes_sent;
    for (int step = 0; step < steps_; ++step) {
      for (int turn = 0; takes_turns<listed> && turn < world.rank(); ++turn) {
        engine.average(0);  // waits while an earlier rank has its turn
      }
      for (std::size_t i = 0; i < tensors && step % 2 == 0; ++i) {  // a forward pass
        engine.wait(tensor_id(i), compute);
      }
      for (unsigned pass = 1; pass <= options_->run.accumulation; ++pass) {
        for (const tensor_id id : shuffled(tensors, world.rank(), step)) {
          if (pass == 1) {
            engine.wait(id, compute);
          }
          hand_in(engine, model, id, step, pass);
          engine.ready(id, compute);
        }
      }
      if constexpr (takes_turns<listed>) {
        engine.wait();
        for (int turn = world.rank(); turn < world.size(); ++turn) {
          engine.average(0);
        }
      }
    }
    engine.wait();
    report(engine, model, before);
  }

  task operator()(transport& world) const requires(on_a_clock) {
    queue compute;
    model_on<queue> model(compute, world.rank(), how_, Cell::gradients);
    auto engine =
        make_engine<typename listed::strategy>(world, model.tensors(), optimizer_of(), *options_);
    co_await engine.started();
    const std::size_t tensors = model.tensors().size();
    const std::uint64_t before = engine.counted().bytes_sent;
    for (int step = 0; step < steps_ && !engine.serves(); ++step) {
      while (takes_turns<listed> && *turns_ != step * world.size() + world.rank()) {
        co_await world.sleep(1e-4);
      }
      for (std::size_t i = 0; i < tensors && step % 2 == 0; ++i) {  // a forward pass
        co_await engine.arrival(tensor_id(i));
      }
      for (unsigned pass = 1; pass <= options_->run.accumulation; ++pass) {
        for (const tensor_id id : shuffled(tensors, world.rank(), step)) {
          if (pass == 1) {
            co_await engine.arrival(id);
          }
          hand_in(engine, model, id, step, pass);
          co_await world.sleep(1e-6);
          engine.ready(id);
        }
      }
      if constexpr (takes_turns<listed>) {
        for (std::size_t i = 0; i < tensors; ++i) {
          co_await engine.arrival(tensor_id(i));
        }
        ++*turns_;
      }
    }
    if (!engine.serves()) {
      for (std::size_t i = 0; i < tensors; ++i) {
        co_await engine.arrival(tensor_id(i));
      }
      report(engine, model, before);
    }
    co_await engine.close();
  }

 private:
  /// Hands in the sum of so many equal passes. Two make twice the gradient, and its mean has the
  /// same bits.
  template <class Engine>
  static void hand_in(const Engine& engine, model_on<queue>& model, tensor_id id, int step,
                      unsigned passes) {
    model.backward(id, [&](std::size_t element) {
      return static_cast<float>(passes) * Cell::gradients(engine.worker(), step, element);
    });
  }

  template <class Engine>
  void report(const Engine& engine, model_on<queue>& model, std::uint64_t before) const {
    const auto worker = static_cast<std::size_t>(engine.worker());
    result_->parameters[worker] = model.parameters();
    result_->agendas[worker] = engine.agenda();
    result_->bytes[worker] = engine.counted().bytes_sent - before;
  }

  const typename listed::options* options_;
  layout how_;
  int steps_;
  outcome* result_;
  /// The number of steps that the ranks of this process have taken, where they take turns.
  std::shared_ptr<std::atomic<int>> turns_ = std::make_shared<std::atomic<int>>(0);
};

template <class Cell>
class StrategyLaw : public ::testing::Test {};
TYPED_TEST_SUITE_P(StrategyLaw);

/// Parameters are bitwise those of one process that has all gradients. Where the ranks agree on one
/// order of launches, every rank has it. Where they do not, they send nothing but payloads, and the
/// bytes are those of the oracle if it states them.
TYPED_TEST_P(StrategyLaw, EndsAsTheOracle) {
  using strategy = typename TypeParam::listed::strategy;
  constexpr int steps = compared_steps;
  constexpr bool agree_on_one = TypeParam::types::coordination::one_order;
  bool took_part = false;
  for (auto options : TypeParam::listed::variants()) {
    for (const int workers : compared_workers) {
      options.run.accumulation = workers < 4 ? 1 : 2;
      const layout how = workers % 2 == 0 ? layout::together : layout::apart;
      outcome result(workers);
      if (!TypeParam::world::run(workers + servers_in<strategy>(options),
                                 trained_rank<TypeParam>(options, how, steps, result))) {
        continue;
      }
      took_part = true;
      if constexpr (requires { TypeParam::world::share(result.agendas); }) {
        TypeParam::world::share(result.agendas);
      }
      const auto expected = TypeParam::expected(options, workers, steps);
      for (std::size_t worker = 0; worker < result.parameters.size(); ++worker) {
        if (TypeParam::world::holds(static_cast<int>(worker))) {
          EXPECT_EQ(result.parameters[worker], expected.parameters_of(worker))
              << "worker " << worker << " of " << workers;
          EXPECT_TRUE(agree_on_one || expected.bytes.empty() ||
                      result.bytes[worker] == expected.bytes[worker])
              << result.bytes[worker] << " bytes, worker " << worker << " of " << workers;
          EXPECT_TRUE(!agree_on_one || result.agendas[worker] == result.agendas[0])
              << "worker " << worker << " of " << workers;
        }
      }
    }
  }
  if (!took_part) {
    GTEST_SKIP() << "no number of workers and servers makes so many processes";
  }
}

REGISTER_TYPED_TEST_SUITE_P(StrategyLaw, EndsAsTheOracle);

}  // namespace tutti::test
