// Strategies that real processes replay over an emulated network take the simulated time.
#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/mpi_world.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/strategies/byteps.hpp"
#include "tutti/strategies/bytescheduler.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/strategies/wfbp.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti/transport/shaped.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

using transport::device;
using transport::network;
using transport::simulated;
using processes = transport::shaped<transport::mpi>;

transport::mpi* carrier = nullptr;

/// Returns twelve layers, the last the longest, with 4 MB of gradient: 48 ms of a ring of four.
std::vector<computation> model() {
  std::vector<computation> layers;
  for (std::size_t i = 0; i < 12; ++i) {
    layers.push_back({"layer" + std::to_string(i), 26'000 + 10'000 * i, 1e-3, 2e-3});
  }
  return layers;
}

template <class Strategy>
void comes_to_what_is_simulated(payloads what, int per_host = 1) {
  if (carrier->size() != 4) {
    GTEST_SKIP() << "four processes";
  }
  const network over(4, {1.25e8, 5e-5}, per_host, {1.25e9, 1e-5});
  const device each{1e10};
  const replay_options length{.iterations = 4, .warmup = 1};
  auto set = engine_options<Strategy>();
  replay<Strategy> simulation(model(), set, payloads::counted, length);
  run_simulated(over, each, [&](simulated& world) { return simulation(world); });
  const seconds expected = simulation.result().quantile(0.5);
  // A run does not count if it reports that this host was too busy, or if one message was later
  // than the tolerance. Where all ranks wait for that message, the iteration is as late.
  const seconds tolerance = 0.05 * expected;
  enum verdict : int { given, not_yet, never };
  int came = not_yet;
  for (const double begin = MPI_Wtime(); came == not_yet;) {
    replay<Strategy> emulation(model(), set, what, length);
    const auto run =
        run_shaped(*carrier, over, each, [&](processes& world) { return emulation(world); });
    if (carrier->rank() == 0) {  // the rank that has the result
      const seconds measured = emulation.result().quantile(0.5);
      std::printf("%.3f ms, simulated %.3f ms; wall / logical %.4f, late %.0f us (worst %.0f us)\n",
                  1e3 * measured, 1e3 * expected, run.wall / run.time, 1e6 * run.mean_lateness,
                  1e6 * run.worst_lateness);
      const bool usable = !run.unusable(expected) && run.worst_lateness < tolerance;
      came = usable ? given : MPI_Wtime() - begin < 4 ? not_yet : never;
      if (came == given) {
        EXPECT_NEAR(measured, expected, tolerance);
        EXPECT_EQ(emulation.result().planned.hash, simulation.result().planned.hash);
      }
    }
    MPI_Bcast(&came, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  if (came == never) {
    GTEST_SKIP() << "this host was too busy for every run in 4 seconds";
  }
}

TEST(ShapedReplay, WFBPUnlimited) {
  comes_to_what_is_simulated<strategies::WFBPUnlimited>(payloads::counted);
}
TEST(ShapedReplay, Horovod) { comes_to_what_is_simulated<strategies::Horovod>(payloads::counted); }
TEST(ShapedReplay, ByteScheduler) {
  comes_to_what_is_simulated<strategies::ByteScheduler>(payloads::counted);
}
TEST(ShapedReplay, BytePS) { comes_to_what_is_simulated<strategies::BytePS>(payloads::counted); }
TEST(ShapedReplay, WithPayloads) {
  comes_to_what_is_simulated<strategies::WFBPUnlimited>(payloads::carried);
}
TEST(ShapedReplay, TwoRanksBehindEachNic) {
  comes_to_what_is_simulated<strategies::WFBPUnlimited>(payloads::counted, 2);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_over(tutti::test::carrier, argc, argv);
}
