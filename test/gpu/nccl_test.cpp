// Whole strategies over NCCL, with as many devices as there are. The results are those of threads
// on a CPU. Gradients have few digits, so that sums are exact in any order.
#include <algorithm>
#include <gtest/gtest.h>

#include "gpu/device.hpp"
#include "gpu/nccl_training.hpp"
#include "support/low_rank_training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/strategies/bytescheduler.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/strategies/sign_sgd.hpp"
#include "tutti/strategies/top_k.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

class NCCL : public needs_a_device {};

template <class Strategy>
void agrees(engine_options<Strategy> options = {}) {
  for (int ranks = 1; ranks <= std::min(cuda::devices(), 4); ++ranks) {
    EXPECT_EQ((train_by_nccl<Strategy>(ranks, options)),
              (train_scattered<Strategy, transport::in_process>(ranks, options)))
        << ranks << " ranks";
  }
}

template <class Collective>
using sums = compose<architecture::all_reduce<Collective>>;

}  // namespace

TEST_F(NCCL, Horovod) { agrees<strategies::Horovod>(); }
TEST_F(NCCL, Ring) { agrees<sums<collective::ring>>(); }
TEST_F(NCCL, HalvingDoubling) { agrees<sums<collective::halving_doubling>>(); }
TEST_F(NCCL, Canonical) { agrees<sums<collective::canonical>>(); }
TEST_F(NCCL, ByteScheduler) { agrees<strategies::ByteScheduler>({.partition = {.bytes = 400}}); }
TEST_F(NCCL, TopK) { agrees<strategies::TopK>({.compression = {.density = 0.1}}); }
TEST_F(NCCL, PowerSGD) {
  for (int ranks = 1; ranks <= std::min(cuda::devices(), 4); ++ranks) {
    run_on_devices(ranks, [](auto& world) { expect_trained_in_low_rank(world); });
  }
}
TEST_F(NCCL, SignSGD) { agrees<strategies::SignSGD>(); }

}  // namespace tutti::test
