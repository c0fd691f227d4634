// The strategy laws between real processes.
#include <cstddef>
#include <exception>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/joining.hpp"
#include "support/mpi_world.hpp"
#include "support/replanning.hpp"
#include "support/replica_oracle.hpp"
#include "support/strategy_laws.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/collective/native.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {

struct negotiated_by_priority
    : listed::with_defaults<listed::in_rank_order<fusion::when_ready, coordination::negotiated,
                                                  partition::into, schedule::by_priority>> {
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 100'000, .cycle = 1e-4},
             .partition = {.bytes = 50'000},
             .coordination = {.by = coordination::identity::name, .cache = 3}}};
  }
};
/// Three steps on means, and then models that are averaged in every second step.
struct means_and_then_models
    : listed::with_defaults<
          compose<architecture::switch_at<architecture::all_reduce<collective::canonical>,
                                          architecture::local_sgd<collective::canonical>>,
                  fusion::up_to>> {
  static std::vector<options> variants() {
    options set{.fusion = {.bytes = 3000}};
    set.architecture.second.period = 2;
    set.architecture.step = 3;
    return {set};
  }
  static expected_payloads expected(int workers, int steps) {
    return {.of_worker = of_replicas(workers, steps, [](auto& all, int step, std::size_t element) {
              if (step < 3) {
                float sum = 0;
                for (std::size_t worker = 0; worker < all.size(); ++worker) {
                  sum += gradient(static_cast<int>(worker), step, element);
                }
                for (replica& each : all) {
                  each.step(sum * (1.0f / static_cast<float>(all.size())));
                }
                return;
              }
              step_alone(all, step, element);
              if ((step + 1) % 2 == 0) {
                const float mean = mean_of(all);
                for (replica& each : all) {
                  each.x = mean;
                }
              }
            })};
  }
};
/// MPI's own all-reduce.
template <class... Policies>
using native =
    listed::with_defaults<compose<architecture::all_reduce<collective::native>, Policies...>>;

template <class Listed>
using between_processes = strategy_on<Listed, on_processes>;
using others = testing::Types<
    between_processes<listed::WFBPUnlimited>, between_processes<negotiated_by_priority>,
    between_processes<listed::hosts_first>, between_processes<native<>>,
    between_processes<native<schedule::in_order>>, between_processes<means_and_then_models>,
    between_processes<listed::gTopKSGD>, between_processes<listed::OkTopk>>;

static_assert(strategies_in<a_few_dense_strategies_on<on_processes>> == 4);
INSTANTIATE_TYPED_TEST_SUITE_P(Few, StrategyLaw, a_few_dense_strategies_on<on_processes>);
static_assert(strategies_in<averaging_strategies_on<on_processes>> == 14);
INSTANTIATE_TYPED_TEST_SUITE_P(Averaging, StrategyLaw, averaging_strategies_on<on_processes>);
static_assert(strategies_in<gathering_strategies_on<on_processes>> == 2);
INSTANTIATE_TYPED_TEST_SUITE_P(Gathering, StrategyLaw, gathering_strategies_on<on_processes>);
INSTANTIATE_TYPED_TEST_SUITE_P(Others, StrategyLaw, others);

namespace {

TEST(Processes, ReplanOnTheWay) {
  using strategy = compose<architecture::all_reduce<collective::canonical>, fusion::up_to,
                           partition::into, schedule::by_priority>;
  on_all_processes([](transport::mpi& world) {
    EXPECT_EQ(trained_over<strategy>(world, {3, 6}), trained(world.size(), replanned_steps));
  });
}

/// Expects training through two re-plans to give the oracle's result for that many workers.
template <class UpdatedBy>
void replans_with_servers(std::vector<float> (*oracle)(int workers)) {
  using strategy = compose<architecture::parameter_server<consistency::synchronous, UpdatedBy>,
                           fusion::up_to, partition::into>;
  on_all_processes([oracle](transport::mpi& world) {
    const int workers = world.size() - servers_in<strategy>(plan_of<strategy>(0));
    if (workers < 1) {
      GTEST_SKIP() << "servers leave no worker";
    }
    const auto mine = trained_over<strategy>(world, {3, 6});
    EXPECT_EQ(mine, world.rank() < workers ? oracle(workers) : std::vector<float>());
  });
}

TEST(Processes, ReplanWithServersThatUpdate) {
  replans_with_servers<updated_by::servers>(
      [](int workers) { return trained(workers, replanned_steps); });
}

/// Returns the parameters if each worker's gradient is a step of its own, in rank order.
std::vector<float> stepped_by_push(int workers) {
  constexpr sgd_values set{};
  std::vector<float> x(total_elements());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = initial(i);
    float momentum = 0;
    for (int step = 0; step < replanned_steps; ++step) {
      for (int worker = 0; worker < workers; ++worker) {
        momentum = set.momentum * momentum + (gradient(worker, step, i) + set.weight_decay * x[i]);
        x[i] -= set.learning_rate * momentum;
      }
    }
  }
  return x;
}
TEST(Processes, ServersThatStepByPush) {
  replans_with_servers<updated_by::servers_by_push>(stepped_by_push);
}

TEST(Processes, GradientsInMemoryThatIsLent) {
  using strategy =
      compose<architecture::sharded<collective::canonical, architecture::gradients::given_back>,
              fusion::up_to, partition::into, schedule::split_phase>;
  on_all_processes([](transport::mpi& world) {
    arena memory(declarations(), without_gradients());
    initialise(memory, world.rank());
    engine_options<strategy> set;
    set.fusion.bytes = 3000;
    set.partition.bytes = 20'000;
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), set);
    for (int step = 0; step < replanned_steps; ++step) {
      engine.wait();
      std::size_t element = 0;
      for (std::size_t id = memory.tensors().size(); id-- > 0;) {
        for (float& each : engine.gradient(tensor_id(id))) {
          each = gradient(world.rank(), step, element++);
        }
        engine.ready(tensor_id(id));
      }
    }
    engine.wait();
    const auto parameters = memory.parameters();
    EXPECT_EQ(std::vector<float>(parameters.begin(), parameters.end()),
              trained(world.size(), replanned_steps));
  });
}

TEST(Processes, ReplanWhileTheyAverageInPairs) {
  using strategy = compose<architecture::pair_averaging, fusion::up_to, partition::into>;
  on_all_processes([](transport::mpi& world) {
    EXPECT_EQ(paired_in_turns<strategy>(world, {3, 6}),
              paired_in_one_process(world.size())[static_cast<std::size_t>(world.rank())]);
  });
}

TEST(Processes, JoinOneAfterTheOther) {
  using strategy = compose<coordination::negotiated, fusion::when_ready>;
  on_all_processes([](transport::mpi& world) {
    for (const auto& epochs : settings(world.size())) {
      are_as_expected({joined_over<strategy>(world, epochs, {})}, epochs);
    }
  });
}

/// Nothing of rank 1's is under way, and no deadline has passed.
TEST(Processes, HearAtOnceOfWhoThrowsBetweenSteps) {
  using strategy = compose<architecture::all_reduce<>>;
  on_all_processes([](transport::mpi& world) {
    if (world.size() == 1) {
      GTEST_SKIP() << "one rank ends alone";
    }
    std::string said;
    const double begin = world.now();
    try {
      arena memory = model_of(world.rank());
      engine_options<strategy> options;
      options.run.deadline = 20;
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), options);
      for (int step = 0; step < 100; ++step) {
        if (world.rank() == 1 && step == 3) {
          throw std::runtime_error("out of data");
        }
        take_step(engine, memory, step);
        engine.wait();
      }
    } catch (const std::exception& failed) {
      said = failed.what();
    }
    EXPECT_EQ(said, world.rank() == 1 ? "out of data" : "rank 1 left by an exception");
    EXPECT_LT(world.now() - begin, 10);
  });
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) { return tutti::test::run_tests_of_processes(argc, argv); }
