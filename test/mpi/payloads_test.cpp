// Payloads of unknown length and sums in rounds, between processes: values against the oracles, and
// bytes as the codec makes them.
#include <cstddef>
#include <gtest/gtest.h>

#include "support/low_rank_oracle.hpp"
#include "support/mpi_world.hpp"
#include "support/strategy_laws.hpp"
#include "support/training.hpp"
#include "tutti/strategies/power_sgd.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {

static_assert(strategies_in<coded_strategies_on<on_processes>> == 7);
INSTANTIATE_TYPED_TEST_SUITE_P(Coded, StrategyLaw, coded_strategies_on<on_processes>);

TEST(MpiPayloads, AreAddedInRounds) {
  constexpr int steps = 4;
  on_all_processes([](transport::mpi& world) {
    arena memory = model_of(world.rank(), shaped_declarations());
    auto engine = make_engine<strategies::PowerSGD>(world, memory.tensors(), optimizer_of());
    const auto before = engine.counted().bytes_sent;
    for (int step = 0; step < steps; ++step) {
      take_step(engine, memory, step);
    }
    engine.wait();
    const auto exact = trained_in_low_rank(world.size(), steps, 2, 1);
    for (std::size_t i = 0; i < memory.parameters().size(); ++i) {
      ASSERT_NEAR(memory.parameters()[i], exact.parameters[i], exact.bound) << i;
    }
    EXPECT_EQ(engine.counted().bytes_sent != before, world.size() > 1);
  });
}

}  // namespace tutti::test

int main(int argc, char** argv) { return tutti::test::run_tests_of_processes(argc, argv); }
