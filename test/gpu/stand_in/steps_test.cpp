// On a device a step only enqueues. It allocates nothing, creates no event and waits for nothing
// but its peers.
#include <barrier>
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "gpu/stand_in/runtime.hpp"
#include "support/device_training.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/strategies/byteps.hpp"
#include "tutti/strategies/ef_sign_sgd.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/strategies/power_sgd.hpp"
#include "tutti/strategies/sign_sgd.hpp"
#include "tutti/strategies/top_k.hpp"
#include "tutti/transport/in_process_cuda.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

template <class Strategy>
void only_enqueues() {
  SCOPED_TRACE(type_name<Strategy>());
  constexpr bool serves = facts::has_servers<typename strategy_of<Strategy>::architecture>;
  constexpr int ranks = 3;
  std::barrier workers(ranks - (serves ? 1 : 0));
  dear_calls made;
  dear_calls before;
  dear_calls after;
  transport::run_ranks<transport::in_process_cuda>(ranks, [&](transport::in_process_cuda& world) {
    cuda::stream compute;
    scattered_model<cuda::stream> model(compute);
    auto engine = make_engine<Strategy>(world, model.tensors(), device_optimizer());
    if (engine.serves()) {
      engine.serve();
      return;
    }
    workers.arrive_and_wait();
    if (world.rank() == 0) {
      made = dear_calls_so_far();
    }
    workers.arrive_and_wait();
    take_steps(engine, model, compute, 0, 1);
    step_ahead(engine, compute, 20);
    engine.wait();
    workers.arrive_and_wait();
    if (world.rank() == 0) {
      before = dear_calls_so_far();
    }
    workers.arrive_and_wait();
    step_ahead(engine, compute, 5);
    workers.arrive_and_wait();
    if (world.rank() == 0) {
      after = dear_calls_so_far();
    }
    workers.arrive_and_wait();
    engine.wait();
  });
  EXPECT_GT(before.allocations, 0);
  EXPECT_GT(before.events, 0);
  EXPECT_EQ(after.synchronizations, before.synchronizations);
  // As many events and buffers are made as are ever held at a time, which depends on which rank
  // runs ahead of which. One event for each use would show as hundreds. A server keeps at most one
  // push for each worker and tensor, while these steps send five.
  const long pushes = serves ? (ranks - 1) * static_cast<long>(std::size(device_sizes)) : 0;
  EXPECT_LE(after.allocations, before.allocations + pushes);
  EXPECT_LE(after.events, before.events + 8);
  if (!serves) {  // the first step finds its memory and that of its kernels already made
    EXPECT_EQ(before.allocations, made.allocations);
  }
}

}  // namespace

TEST(Steps, OnlyEnqueue) {
  only_enqueues<strategies::Horovod>();
  only_enqueues<strategies::TopK>();
  only_enqueues<strategies::EFSignSGD>();
  only_enqueues<strategies::SignSGD>();
  only_enqueues<strategies::PowerSGD>();
  only_enqueues<strategies::BytePS>();
}

}  // namespace tutti::test
