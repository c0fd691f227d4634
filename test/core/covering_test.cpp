// Any two choices of fusion, partition, schedule, coordination, place and summing occur together in
// a strategy that ends, after a hundred steps, with the bits of one process that adds in rank
// order.
#include "support/covering.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <set>
#include <utility>
#include <vector>

#include "support/training_worlds.hpp"

namespace tutti::test {
namespace {

TEST(Covering, EveryLegalPairMeetsAndNoRowIsSuperfluous) {
  const std::vector<covering::row>& rows = covering::rows();
  const std::vector<bool> none(covering::most_pairs);
  const std::vector<bool> missing = covering::missing_in(rows);
  for (std::size_t i = 0; i < missing.size(); ++i) {
    constexpr std::size_t base = covering::base;
    EXPECT_FALSE(missing[i]) << "factors " << i / base / base / base << " and "
                             << i / base / base % base << ", choices " << i / base % base << " and "
                             << i % base
                             << " never meet. Fix: an engine for them in covering::engines";
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(covering::legal(rows[i]));
    EXPECT_EQ(covering::engines_that_run(rows[i]), 1);
    EXPECT_TRUE(covering::missing_in(covering::without(rows, i)) != none) << i;
  }
}

/// All pairs but two: ranks that decide alone would gather different launches at run time.
TEST(Covering, EveryCoordinationMeetsEveryFusion) {
  std::set<std::pair<std::size_t, std::size_t>> met;
  for (const covering::row& of : covering::rows()) {
    met.emplace(of[covering::fusion], of[covering::coordination]);
  }
  EXPECT_EQ(met.size(),
            covering::choices[covering::fusion] * covering::choices[covering::coordination] - 2);
}

TEST(Covering, OnThreads) {
  const auto train = []<class Engine>(const Engine*, const auto& options) {
    using strategy = typename Engine::strategy;
    if constexpr (Engine::where == covering::on_threads) {
      return train_on_threads<strategy>(covering::workers, covering::steps, options, optimizer_of(),
                                        covering::model());
    } else {
      outcome result(covering::workers, servers_in<strategy>(options));
      on_shaped_threads::run(covering::workers + servers_in<strategy>(options),
                             [&](on_shaped_threads::transport& world) {
                               return rank_on_a_clock<strategy>(world, covering::steps, options,
                                                                result, covering::model());
                             });
      return result;
    }
  };
  const int rows =
      covering::rows_that_train<covering::on_threads, covering::on_shaped_threads>(train);
  EXPECT_GT(rows, 0);
}

}  // namespace
}  // namespace tutti::test
