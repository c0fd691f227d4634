#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "support/training.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/role/monitor.hpp"

// A monitor that adds up what the gradient noise scale needs, and the sums that it must reach.
namespace tutti::test {

class summing {
 public:
  using role = tutti::role::monitor;
  static constexpr bool observes = true;
  static constexpr std::size_t width = 3;
  using totals = std::array<double, width>;

  /// Reads the rank's own gradients, and their means where the engine leaves means in that memory.
  explicit summing(arena& memory) : memory_(&memory) {}

  void record(event what, std::uint32_t which, seconds) {
    if (what == event::ready || what == event::arrived) {
      double squares = 0;
      for (const float each : memory_->tensors()[which].gradient) {
        squares += static_cast<double>(each) * static_cast<double>(each);
      }
      mine_[what == event::ready ? 0 : 1] += squares;
      mine_[2] += what == event::arrived ? 1 : 0;
    }
  }
  std::span<double> sums() { return std::span(mine_).first(width - fewer); }
  void summed(std::span<const double> all) {
    auto& step = steps.emplace_back();
    std::ranges::copy(all, step.begin());
  }

  std::vector<totals> steps{};
  std::size_t fewer = 0;  ///< numbers that this rank does not sum

 private:
  arena* memory_;
  totals mine_{};
};
static_assert(monitor_policy<summing>);

/// Returns the expected sums in double, for the model of support/oracle.hpp.
inline std::vector<summing::totals> summed_in_double(int workers, int steps) {
  std::vector<summing::totals> all;
  for (int step = 0; step < steps; ++step) {
    double small = 0;
    double big = 0;
    for (std::size_t i = 0; i < total_elements(); ++i) {
      double sum = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const auto g = static_cast<double>(gradient(worker, step, i));
        small += g * g;
        sum += g;
      }
      big += sum * sum / workers;  // the mean's square, once for each worker
    }
    all.push_back(
        {small, big, static_cast<double>(workers) * static_cast<double>(tensor_sizes().size())});
  }
  return all;
}

inline void expect_sums(const std::vector<summing::totals>& seen, int workers, int steps) {
  const auto expected = summed_in_double(workers, steps);
  ASSERT_EQ(seen.size(), expected.size()) << workers << " workers";
  for (std::size_t step = 0; step < seen.size(); ++step) {
    EXPECT_NEAR(seen[step][0], expected[step][0], 1e-12 * expected[step][0]) << step;
    // A mean of floats has an error of one rounding for each worker and one more.
    EXPECT_NEAR(seen[step][1], expected[step][1],
                2 * (workers + 1) * std::ldexp(expected[step][0], -24));
    EXPECT_EQ(seen[step][2], expected[step][2]);
  }
}

/// Takes the steps [first, end) with a barrier between them.
template <class Engine>
void train_and_sum(Engine& engine, arena& memory, int first, int end) {
  for (int step = first; step < end; ++step) {
    backward(memory, engine.worker(), step);
    for (const tensor_id id : shuffled(memory.tensors().size(), engine.worker(), step)) {
      engine.ready(id);
    }
    engine.wait();
  }
  engine.drain();
}

}  // namespace tutti::test
