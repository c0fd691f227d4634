// Communication overlaps with computing on real processes whose gradients become final in another
// order on each rank: a chunk's first byte leaves within a millisecond of `ready`, while the other
// layers still compute. A schedule that waits for the end must fail the same check.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/training.hpp"
#include "tutti/base/median.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti/transport/recording.hpp"

namespace tutti::test {
namespace {

using recorded_mpi = transport::recording<transport::mpi>;
using transport::recorded;

transport::mpi* processes = nullptr;

constexpr std::size_t layers = 8;
constexpr int steps = 12;
constexpr seconds compute = 2e-3;

void compute_for(const recorded_mpi& world, seconds duration) {
  const seconds end = world.now() + duration;
  while (world.now() < end) {
  }
}

/// Returns the median seconds from `ready` to the first send of the tensor's chunk, over all
/// tensors but each step's last.
template <class Strategy>
seconds median_delay() {
  recorded_mpi world(*processes, 1 << 16);
  std::vector<arena::declaration> declared;
  for (std::size_t i = 0; i < layers; ++i) {
    declared.push_back({"layer" + std::to_string(i), 4096});
  }
  arena memory(declared);
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of());
  std::vector<seconds> delays;
  for (int step = 0; step < steps; ++step) {
    engine.wait();
    engine.average(0);  // so that the ranks begin a step together
    std::vector<seconds> given(layers);
    const auto order = shuffled(layers, world.rank(), step);
    const std::size_t before = world.log().size();
    for (const tensor_id id : order) {
      compute_for(world, compute);
      given[index(id)] = world.now();
      engine.ready(id);
    }
    engine.wait();
    const auto log = world.log().subspan(before);
    for (const tensor_id id : order) {
      const auto chunk = static_cast<std::uint32_t>(engine.planned().position(id));
      const auto first = std::ranges::find_if(log, [&](const recorded& each) {
        return each.what == recorded::kind::send && each.where == tag{channel::data, chunk, 0};
      });
      if (id != order.back() && first != log.end()) {
        delays.push_back(first->time - given[index(id)]);
      }
    }
  }
  EXPECT_EQ(world.missed(), 0U);
  EXPECT_EQ(delays.size(), steps * (layers - 1));
  return delays.empty() ? 1 : median(delays);
}

TEST(Overlap, TheFirstByteLeavesWhileLaterLayersCompute) {
  if (processes->size() == 1) {
    GTEST_SKIP() << "one rank sends nothing";
  }
  EXPECT_LT(median_delay<compose<architecture::all_reduce<>>>(), 1e-3);
}

TEST(Overlap, AtTheEndThereIsNone) {
  if (processes->size() == 1) {
    GTEST_SKIP() << "one rank sends nothing";
  }
  const seconds delay = median_delay<compose<architecture::all_reduce<>, schedule::at_end>>();
  EXPECT_GT(delay, 1e-3);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_over(tutti::test::processes, argc, argv);
}
