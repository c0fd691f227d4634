#pragma once

#include <gtest/gtest.h>

#include "support/oracle.hpp"

namespace tutti::test {

inline constexpr int oracle_steps = 20;

/// `train(workers, steps)` leaves each of 1 to 5 workers with the oracle's parameters, bit for bit.
template <class Train>
void expect_oracle_of(Train train) {
  for (int workers = 1; workers <= 5; ++workers) {
    const auto result = train(workers, oracle_steps);
    const auto expected = trained(workers, oracle_steps);
    ASSERT_EQ(result.parameters.size(), static_cast<std::size_t>(workers));
    for (const auto& each : result.parameters) {
      EXPECT_EQ(each, expected) << workers << " workers";
    }
  }
}

}  // namespace tutti::test
