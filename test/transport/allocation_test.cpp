#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>
#include <span>

#include "support/transports.hpp"
#include "tutti/base/all_of.hpp"
#include "tutti/base/tag.hpp"

namespace {
std::atomic<std::size_t> allocations{0};
}  // namespace

// Counts allocations of the whole program: after the first few messages, a message must allocate
// nothing.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tutti::test {
namespace {

constexpr tag chunk_1{channel::data, 1, 0};
constexpr tag chunk_2{channel::data, 2, 0};

template <class World>
class Allocation : public ::testing::Test {};
using worlds = ::testing::Types<in_process_world, simulated_world, recording_world, shaped_world,
                                any_world, any_simulated_world>;
TYPED_TEST_SUITE(Allocation, worlds);

/// Makes one of every kind of exchange, also in a child coroutine.
template <class Transport>
task step(Transport& world, std::span<std::byte> in, std::span<std::byte> out) {
  const int peer = 1 - world.rank();
  co_await world.exchange(peer, out, peer, in, chunk_1);
  co_await world.exchange_fold(peer, out, peer, in, chunk_1, copy_bytes{});
  auto sent = world.send(peer, chunk_2, out);
  { const auto lent = co_await world.receive_loan(peer, chunk_2, out.size()); }
  co_await sent;
  auto served = world.send(peer, tag{channel::service, 3, 0}, out);
  { const auto any = co_await world.receive_any(channel::service); }
  co_await served;
  operations one(1, [&](std::size_t) { return world.exchange(peer, out, peer, in, chunk_1); });
  co_await all_of(one);
  const frame_array<std::byte> as_for_many_ranks(100'000);
  co_await world.sleep(0);
}

}  // namespace

TYPED_TEST(Allocation, AStepAllocatesNothingAfterTheFirst) {
  static std::atomic<std::size_t> allocated;
  allocated = 0;
  TypeParam::run(2, [](auto& world) -> task {
    std::array<std::byte, 1000> in{};
    std::array<std::byte, 1000> out{};
    std::size_t before = 0;
    for (int round = 0; round < 60; ++round) {
      if (round == 10) {
        before = allocations;
      }
      co_await step(world, in, out);
    }
    // Ranks end a step together, but one may have begun to leave after the last step, so the count
    // is read before it.
    allocated += allocations - before;
    co_await step(world, in, out);
  });
  EXPECT_EQ(allocated, 0U);
}

}  // namespace tutti::test
