// The start and end of NCCL, where ranks are threads and every device is one of the stand-in's.
#include "gpu/stand_in/nccl.hpp"

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/nccl_training.hpp"
#include "gpu/stand_in/runtime.hpp"
#include "support/errors.hpp"
#include "support/low_rank_training.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/fusion/by_arrival.hpp"
#include "tutti/strategies/dear.hpp"
#include "tutti/strategies/ef_sign_sgd.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/strategies/local_sgd.hpp"
#include "tutti/strategies/power_sgd.hpp"
#include "tutti/strategies/relaxed.hpp"
#include "tutti/strategies/top_k.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

using transport::in_process;
using world_type = transport::nccl<in_process>;

static_assert(transport_policy<world_type> && has_all_reduce<world_type> &&
              is_stream_ordered<world_type>);
static_assert(!std::is_copy_constructible_v<transport::nccl_communicator> &&
              std::is_nothrow_move_constructible_v<transport::nccl_communicator>);

template <class Strategy>
void agrees(engine_options<Strategy> options = {}) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    EXPECT_EQ((train_by_nccl<Strategy>(ranks, options)),
              (train_scattered<Strategy, in_process>(ranks, options)))
        << ranks << " ranks";
  }
}

}  // namespace

TEST(StandInNCCL, Horovod) { agrees<strategies::Horovod>(); }
TEST(StandInNCCL, Canonical) { agrees<compose<architecture::all_reduce<collective::canonical>>>(); }
TEST(StandInNCCL, TopK) { agrees<strategies::TopK>({.compression = {.density = 0.1}}); }
TEST(StandInNCCL, LearnedOrder) {
  agrees<compose<fusion::by_arrival, coordination::learned>>({.fusion = {.bytes = 600}});
}
TEST(StandInNCCL, DeAR) { agrees<strategies::DeAR>(); }
TEST(StandInNCCL, LocalSGD) { agrees<strategies::LocalSGD>(); }
/// These sums are rounded, so both worlds add in rank order.
TEST(StandInNCCL, SMA) { agrees<compose<architecture::model_averaging<collective::canonical>>>(); }
TEST(StandInNCCL, Relaxed) { agrees<strategies::Relaxed>(); }
TEST(StandInNCCL, PowerSGD) {
  using low_rank = compression::select<matrices, compression::power_sgd, compression::none>;
  agrees<compose<architecture::all_reduce<collective::canonical>, low_rank>>(
      {.compression = {.chosen = {.rank = 3}}});
  for (int ranks = 1; ranks <= 4; ++ranks) {
    run_on_devices(ranks, [](auto& world) { expect_trained_in_low_rank(world); });
  }
}

namespace {

template <class Strategy>
void only_enqueues() {
  std::barrier workers(3);
  dear_calls before;
  dear_calls after;
  transport::run_ranks(3, [&](in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    world_type world(carrier);
    cuda::stream compute;
    scattered_model<cuda::stream> model(compute);
    auto engine = make_engine<Strategy>(world, model.tensors(), device_optimizer());
    take_steps(engine, model, compute, 0, 1);
    step_ahead(engine, compute, 5);
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
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.synchronizations, before.synchronizations);
}

}  // namespace

/// Staging memory, too, is reused from the first steps.
TEST(StandInNCCL, AStepAllocatesNothingAndWaitsForNothing) {
  only_enqueues<strategies::Horovod>();
  only_enqueues<strategies::EFSignSGD>();
  only_enqueues<strategies::TopK>();
  only_enqueues<strategies::PowerSGD>();
  only_enqueues<compose<architecture::all_reduce<collective::canonical>>>();
  only_enqueues<compose<architecture::all_reduce<collective::ring>>>();
}

TEST(StandInNCCL, MixedVersionsAreOneLineOnEveryRank) {
  for (const auto& each : errors(3, [](in_process& carrier) {
         stood_in_nccl_version = carrier.rank() == 1 ? 21903 : 22809;
         cuda::check(cudaSetDevice(carrier.rank()));
         world_type world(carrier);
       })) {
    EXPECT_EQ(
        each,
        "rank 0 runs NCCL 2.28.9 and rank 1 NCCL 2.19.3. Fix: install one version everywhere");
  }
}

TEST(StandInNCCL, TwoRanksOfOneHostOnOneDeviceAreOneLineOnEveryRank) {
  for (const auto& each : errors(3, [](in_process& carrier) {
         cuda::check(cudaSetDevice(carrier.rank() == 2 ? 1 : carrier.rank()));
         world_type world(carrier);
       })) {
    EXPECT_EQ(
        each,
        "ranks 1 and 2 share the device 0000:01:00.0, which NCCL refuses. Fix: give each rank "
        "its own device, or, where processes must share one, give each process its own "
        "NCCL_HOSTID");
  }
}

TEST(StandInNCCL, ARankThatDoesNotComeIsWaitedForUntilTheDeadline) {
  const auto said = errors(2, [](in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    if (carrier.rank() == 0) {
      world_type world(carrier, 0.2);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    }
  });
  EXPECT_EQ(said[0], "rank 1 did not take part in creating the NCCL communicator in time");
}

/// Rank 1 has waited longest when rank 0 comes, and must not take rank 0 for the missing rank.
TEST(StandInNCCL, TheRankThatDoesNotComeIsNamedByWhoeverWaits) {
  const auto said = errors(3, [](in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    std::this_thread::sleep_for(std::chrono::milliseconds(carrier.rank() == 0   ? 300
                                                          : carrier.rank() == 1 ? 0
                                                                                : 2000));
    if (carrier.rank() < 2) {
      world_type world(carrier, 0.5);
    }
  });
  EXPECT_EQ(said[0], "rank 2 did not take part in creating the NCCL communicator in time");
  EXPECT_EQ(said[1], "rank 2 did not take part in creating the NCCL communicator in time");
}

/// What rank 1 sent is in memory that rank 0 never reads, so rank 1 may not free it. It says why,
/// and ends.
TEST(StandInNCCL, ARankZeroThatNeverLooksEndsTheJobInASentence) {
  const auto without_rank_zero = [] {
    std::atomic<bool> over{false};
    transport::run_ranks(2, [&](in_process& carrier) {
      cuda::check(cudaSetDevice(carrier.rank()));
      if (carrier.rank() == 1) {
        world_type world(carrier, 0.2);
        over = true;
      }
      while (!over) {
        std::this_thread::yield();
      }
    });
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(without_rank_zero(),
               "rank 0 did not take part in creating the NCCL communicator in time");
}

TEST(StandInNCCL, ACommunicatorOfTheUsersIsBorrowed) {
  std::barrier made(2);
  transport::run_ranks(2, [&](in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    transport::nccl_library maker(carrier);
    made.arrive_and_wait();  // because freeing waits for the streams of all stand-in devices
    const ncclComm_t users = maker.communicator().native_handle();
    {
      world_type world(carrier, transport::nccl_communicator::from_native_handle(users));
      cuda::stream compute;
      scattered_model<cuda::stream> model(compute);
      auto engine = make_engine<strategies::Horovod>(world, model.tensors(), device_optimizer());
      take_steps(engine, model, compute, 0, 1);
    }
    int ranks = 0;
    EXPECT_EQ(ncclCommCount(users, &ranks), ncclSuccess);  // it still exists
    EXPECT_EQ(ranks, 2);
  });
}

TEST(StandInNCCL, ACallThatLastsBeyondTheDeadlineIsRefusedInSeconds) {
  const auto said = errors(1, [](in_process&) {
    ncclUniqueId common{};
    transport::check(ncclGetUniqueId(&common));
    transport::nccl_communicator(
        common, 0, 1, 0.01, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  });
  EXPECT_EQ(said[0],
            "NCCL has not connected all ranks within 0.010000 s. Fix: set NCCL_DEBUG=INFO to see "
            "which ranks it waits for");
}

/// A rank that does not connect is noticed before any step.
TEST(StandInNCCL, ABorrowedCommunicatorIsConnectedBeforeAnyStep) {
  ncclUniqueId common{};
  transport::check(ncclGetUniqueId(&common));
  const auto said = errors(2, [&](in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    transport::nccl_communicator made(common, carrier.rank(), 2, 10);
    if (carrier.rank() == 0) {
      world_type world(carrier,
                       transport::nccl_communicator::from_native_handle(made.release(), 0.2));
    }
  });
  EXPECT_EQ(said[0], "rank 0 could not exchange a byte with every other rank");
  EXPECT_EQ(said[1], "");
}

/// Messages to a rank that never takes part are on their way when NCCL refuses the sum. They are
/// ended before memory is freed, which waits for them.
TEST(StandInNCCL, ARefusalWhileConnectingWaitsForNobody) {
  ncclUniqueId common{};
  transport::check(ncclGetUniqueId(&common));
  std::latch refused(1);
  const auto said = errors(2, [&](in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    transport::nccl_communicator made(common, carrier.rank(), 2, 10);
    if (carrier.rank() == 1) {
      refused.wait();
      return;
    }
    stood_in_nccl_refuses_sums = true;
    try {
      world_type world(carrier,
                       transport::nccl_communicator::from_native_handle(made.release(), 10));
    } catch (...) {
      stood_in_nccl_refuses_sums = false;
      refused.count_down();
      throw;
    }
  });
  EXPECT_NE(said[0].find("remote process exited or there was a network error"), std::string::npos)
      << said[0];
  EXPECT_EQ(said[1], "");
}

/// A rank that has failed before it connects is noticed as well.
TEST(StandInNCCL, ARankThatFailsBeforeItConnectsIsHeardOfAtOnce) {
  ncclUniqueId common{};
  transport::check(ncclGetUniqueId(&common));
  const auto said = errors(2, [&](in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    transport::nccl_communicator made(common, carrier.rank(), 2, 10);
    if (carrier.rank() == 1) {
      throw std::runtime_error("out of memory");
    }
    world_type world(carrier, transport::nccl_communicator::from_native_handle(made.release(), 10));
  });
  EXPECT_EQ(said, (std::vector<std::string>{"rank 1 failed: out of memory", "out of memory"}));
}

TEST(StandInNCCL, ABorrowedCommunicatorOfOtherRanksIsRefused) {
  const auto said = errors(2, [](in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    ncclUniqueId common{};
    transport::check(ncclGetUniqueId(&common));
    transport::nccl_communicator alone(common, 0, 1, 10);
    world_type world(carrier, std::move(alone));
  });
  EXPECT_EQ(
      said[1],
      "rank 1 of 2 is rank 0 of 1 in this NCCL communicator. Fix: create it with the same ranks");
}

/// A rank neither answers nor leaves: NCCL's kernels wait for it, and the host does not.
TEST(StandInNCCL, ALostPeerIsNamed) {
  std::atomic<int> ended{0};
  const auto said = errors(3, [&](in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    world_type world(carrier);
    cuda::stream compute;
    scattered_model<cuda::stream> model(compute);
    engine_options<strategies::Horovod> options;
    options.run.deadline = 0.4;
    options.run.progress = progress::by_caller;
    auto engine =
        make_engine<strategies::Horovod>(world, model.tensors(), device_optimizer(), options);
    take_steps(engine, model, compute, 0, 1);
    if (world.rank() == 1) {
      while (ended < 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      engine.average(0);
      return;
    }
    try {
      for (std::size_t id = std::size(device_sizes); id-- > 0;) {
        model.backward(id, world.rank(), 1);
        engine.ready(tensor_id(id), compute);
      }
      engine.wait();
    } catch (...) {
      ++ended;
      throw;
    }
    ++ended;
  });
  for (const auto& each : said) {
    EXPECT_EQ(each, "rank 1 does not answer");
  }
}

}  // namespace tutti::test
