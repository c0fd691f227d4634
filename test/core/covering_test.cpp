// Every two choices of different roles meet in a strategy that trains on threads bitwise as one
// process does that adds in rank order.
#include "support/covering.hpp"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "support/strategy_laws.hpp"
#include "support/training_worlds.hpp"

namespace tutti::test {

static_assert(strategies_in<covering::rows_on<on_threads>> == 8);
INSTANTIATE_TYPED_TEST_SUITE_P(Covering, StrategyLaw, covering::rows_on<on_threads>);

namespace {

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
