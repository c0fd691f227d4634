// Every two choices of different roles meet in a strategy that trains on threads bitwise as one
// process does that adds in rank order.
#include "support/covering.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {
namespace {

constexpr int steps = 20;

template <class Row>
void trains_as_the_oracle() {
  using strategy = typename Row::strategy;
  for (int workers = 1; workers <= 5; ++workers) {
    const auto options = Row::options(workers);
    covering::parameters_by_rank result(static_cast<std::size_t>(workers));
    transport::run_ranks(
        workers + servers_in<strategy>(options), [&](transport::in_process& world) {
          covering::model mine(world.rank(), Row::scattered);
          auto engine = make_engine<strategy>(world, mine.tensors(), optimizer_of(), options);
          if (engine.serves()) {
            engine.serve();
            return;
          }
          for (int step = 0; step < steps; ++step) {
            for (std::size_t i = 0; i < mine.tensors().size(); ++i) {
              engine.wait(tensor_id(i));
            }
            mine.backward(engine.worker(), step);
            for (const tensor_id id : shuffled(mine.tensors().size(), world.rank(), step)) {
              engine.ready(id);
            }
          }
          engine.wait();
          result[static_cast<std::size_t>(world.rank())] = mine.parameters();
        });
    covering::expect_oracle(result, workers, steps);
  }
}

template <unsigned... Rows>
void every_row(std::integer_sequence<unsigned, Rows...>) {
  const auto one = []<unsigned Row>() {
    if constexpr (!covering::row<Row>::simulated) {
      SCOPED_TRACE("row " + std::to_string(Row));
      trains_as_the_oracle<covering::row<Row>>();
    }
  };
  (one.template operator()<Rows>(), ...);
}
TEST(Covering, OnThreads) { every_row(std::make_integer_sequence<unsigned, 16>()); }

/// That the array covers what it says.
template <unsigned... Rows>
std::vector<std::vector<unsigned>> levels(std::integer_sequence<unsigned, Rows...>) {
  using covering::row;
  return {{row<Rows>::fusion...},
          {row<Rows>::schedule...},
          {row<Rows>::architecture...},
          {row<Rows>::cut...},
          {row<Rows>::place...}};
}
TEST(Covering, EveryPairOfLevelsMeetsOnce) {
  const auto columns = levels(std::make_integer_sequence<unsigned, 16>());
  for (std::size_t a = 0; a < columns.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      std::vector<unsigned> pairs;
      for (std::size_t i = 0; i < 16; ++i) {
        pairs.push_back(4 * columns[a][i] + columns[b][i]);
      }
      std::ranges::sort(pairs);
      EXPECT_EQ(std::ranges::adjacent_find(pairs), pairs.end()) << a << " and " << b;
    }
  }
}

}  // namespace
}  // namespace tutti::test
