// The other half of the covering array, on the virtual clock: the same bits.
#include "support/covering.hpp"

#include <string>
#include <utility>

namespace tutti::test {
namespace {

constexpr int steps = 20;

template <class Row>
task rank_of(transport::simulated& world, engine_options<typename Row::strategy> options,
             covering::parameters_by_rank& result) {
  covering::model mine(world.rank(), Row::scattered);
  auto engine = make_engine<typename Row::strategy>(world, mine.tensors(), optimizer_of(), options);
  co_await engine.started();
  if (!engine.serves()) {
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < mine.tensors().size(); ++i) {
        co_await engine.arrival(tensor_id(i));
      }
      mine.backward(engine.worker(), step);
      for (const tensor_id id : shuffled(mine.tensors().size(), world.rank(), step)) {
        co_await world.sleep(1e-6);
        engine.ready(id);
      }
    }
    for (std::size_t i = 0; i < mine.tensors().size(); ++i) {
      co_await engine.arrival(tensor_id(i));
    }
    result[static_cast<std::size_t>(world.rank())] = mine.parameters();
  }
  co_await engine.close();
}

template <class Row>
void trains_as_the_oracle() {
  for (int workers = 1; workers <= 5; ++workers) {
    const auto options = Row::options(workers);
    covering::parameters_by_rank result(static_cast<std::size_t>(workers));
    transport::run_simulated(
        workers + servers_in<typename Row::strategy>(options), transport::link{1.25e9, 50e-6},
        [&](transport::simulated& world) { return rank_of<Row>(world, options, result); });
    covering::expect_oracle(result, workers, steps);
  }
}

template <unsigned... Rows>
void every_row(std::integer_sequence<unsigned, Rows...>) {
  const auto one = []<unsigned Row>() {
    if constexpr (covering::row<Row>::simulated) {
      SCOPED_TRACE("row " + std::to_string(Row));
      trains_as_the_oracle<covering::row<Row>>();
    }
  };
  (one.template operator()<Rows>(), ...);
}
TEST(Covering, OnTheVirtualClock) { every_row(std::make_integer_sequence<unsigned, 16>()); }

}  // namespace
}  // namespace tutti::test
