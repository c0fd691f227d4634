// After the first few steps, a step allocates no memory from the heap.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>
#include <vector>

#include "support/low_rank_oracle.hpp"
#include "support/training.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/strategies.hpp"
#include "tutti/strategies/all_reduce_spec.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<std::size_t> allocations{0};
thread_local std::size_t bytes_taken = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) {
    allocations.fetch_add(1, std::memory_order_relaxed);
  }
  bytes_taken += bytes;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

// Replaces the allocation functions of the whole program, because a step may allocate anywhere.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace tutti::test {
namespace {

/// Expects steps to allocate nothing, in any ready order. Coroutine frames are pooled, and how many
/// live at a time depends on timing. A stretch of steps in which more of them live than ever before
/// may therefore allocate, but not every stretch; the first that does not ends the search.
template <class Strategy>
void allocates_nothing(engine_options<Strategy> options = {},
                       const std::vector<arena::declaration>& forward = declarations()) {
  constexpr int stretches = 30;
  constexpr int steps = 5;
  std::vector<std::vector<tensor_id>> orders;
  for (int i = 0; i < 2 * stretches * steps; ++i) {
    orders.push_back(shuffled(forward.size(), i, 0));
  }
  std::size_t fewest = ~std::size_t{0};
  transport::run_ranks(2 + servers_in<Strategy>(options), [&](transport::in_process& world) {
    arena memory = model_of(world.rank(), forward);
    auto engine =
        make_engine<Strategy>(world, memory.tensors(), optimizer_for<Strategy>(), options);
    if (engine.serves()) {
      EXPECT_EQ(engine.serve(), 0);
      return;
    }
    const bool counts = engine.worker() == 0;
    bool found = false;
    for (int step = 0; step < stretches * steps && !found; ++step) {
      if (counts && step % steps == 0) {
        allocations = 0;
        counting = true;
      }
      engine.wait();
      backward(memory, engine.worker(), step);
      for (const tensor_id id : orders[static_cast<std::size_t>(2 * step + engine.worker())]) {
        engine.ready(id);
      }
      engine.wait();
      if (step % steps == steps - 1) {
        engine.average(0);  // so that no rank leaves while one counts
        if (counts) {
          counting = false;
          fewest = std::min(fewest, allocations.load());
        }
        found = engine.average(counts && fewest == 0 ? 1 : 0) > 0;
      }
    }
  });
  EXPECT_EQ(fewest, 0u) << Strategy::name;
}
TEST(Allocation, AStepAllocatesNothing) {
  allocates_nothing<strategies::WFBPUnlimited>();
  allocates_nothing<strategies::Horovod>();
  allocates_nothing<strategies::DDP>({.fusion = {.bytes = 3000, .first_bytes = 500}});
  allocates_nothing<strategies::ByteScheduler>(
      {.partition = {.bytes = 20'000},
       .schedule = {.credit = 40'000, .rule = schedule::credit_rule::positive}});
  allocates_nothing<strategies::TopK>({.compression = {.density = 0.01}});
  allocates_nothing<strategies::gTopKSGD>({.compression = {.density = 0.01}});
  allocates_nothing<strategies::OkTopk>(
      {.architecture = {.estimate_every = 3, .divide_every = 2, .raises = 5}});
  allocates_nothing<strategies::DGC>();
  allocates_nothing<strategies::EFSignSGD>();
  allocates_nothing<strategies::SignSGD>();
  allocates_nothing<strategies::BytePS>();
  allocates_nothing<strategies::KungFu>();
  allocates_nothing<strategies::ZeRO1>();
  allocates_nothing<strategies::TFReplicated>(
      {.architecture = strategies::of_all_reduce_spec("pscpu:1k:psgpu#2:4k:xring#2")});
  allocates_nothing<strategies::Adasum>();
  allocates_nothing<strategies::PowerSGD>({}, shaped_declarations());
  allocates_nothing<strategies::QSGD>();
  allocates_nothing<strategies::DeAR>();
  allocates_nothing<strategies::PairAveraging>();
  allocates_nothing<strategies::SMA>();
  allocates_nothing<strategies::LocalSGD>();
  allocates_nothing<strategies::AdaSGD>({.architecture = {.step = 12}});
  allocates_nothing<strategies::DPSGD>();
  allocates_nothing<strategies::SGP>();
  allocates_nothing<strategies::ADPSGD>();
  allocates_nothing<strategies::EASGD>();
  allocates_nothing<strategies::AsyncEASGD>();
  allocates_nothing<strategies::DiLoCo>({.architecture = {.period = 2}});
  allocates_nothing<strategies::Relaxed>();
  allocates_nothing<strategies::MXNetDistAsync>();
  allocates_nothing<strategies::SSP>();
  allocates_nothing<strategies::SyncReplicas>();
  allocates_nothing<strategies::DCASGD>();
}
/// Returns the bytes that each of `servers` allocates while one worker trains 1 MiB of parameters.
template <class Strategy>
std::vector<std::size_t> taken_by_servers(int servers) {
  std::vector<std::size_t> taken(static_cast<std::size_t>(servers));
  transport::run_ranks(1 + servers, [&](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>(16, {"weight", 1 << 14}));
    engine_options<Strategy> options;
    options.architecture.servers = servers;
    const std::size_t before = bytes_taken;
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
    if (engine.serves()) {
      engine.serve();
      taken[static_cast<std::size_t>(world.rank() - 1)] = bytes_taken - before;
      return;
    }
    take_step(engine, memory, 0);
    engine.wait();
  });
  return taken;
}
/// Expects a server to allocate `floats` floats for each element that is placed on it, and none for
/// elements on other servers.
template <class Strategy>
void takes_what_its_chunks_need(std::size_t floats) {
  const std::size_t needed = floats * 16 * (1 << 14) * sizeof(float);
  constexpr std::size_t beside = 256 << 10;
  for (const int servers : {1, 4}) {
    for (const std::size_t each : taken_by_servers<Strategy>(servers)) {
      EXPECT_GE(each, needed / static_cast<std::size_t>(servers)) << servers << " servers";
      EXPECT_LE(each, needed / static_cast<std::size_t>(servers) + beside) << servers << " servers";
    }
  }
}
TEST(Allocation, AServerTakesWhatItsChunksNeed) {
  using architecture::parameter_server;
  // A sum, a momentum and the parameter.
  takes_what_its_chunks_need<
      compose<parameter_server<consistency::synchronous, updated_by::servers>>>(3);
  // The parameter, and the value of it that the worker has read. What the worker last pulled is in
  // the worker's own memory.
  takes_what_its_chunks_need<
      compose<parameter_server<consistency::asynchronous, updated_by::workers>>>(2);
}
TEST(Allocation, TheCounterCounts) {
  allocations = 0;
  counting = true;
  ::operator delete(::operator new(1));
  counting = false;
  EXPECT_EQ(allocations, 1u);
}

}  // namespace
}  // namespace tutti::test
