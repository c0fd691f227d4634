// All-reduces in memory that the processes of a host share.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <gtest/gtest.h>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/statvfs.h>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/base/error.hpp"
#include "tutti/collective/in_host_memory.hpp"
#include "tutti/collective/sliced_ring.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/transport/any_transport.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

using transport::mpi;
using collective_in_host = collective::in_host_memory<collective::sliced_ring<>>;

constexpr tag first_chunk{channel::data, 0, 0};

template <class World>
void all_reduce(World& world, std::span<float> values, tag where = first_chunk) {
  const compression::none uncompressed;
  const reduction<architecture::payload_fold<compression::none>> data{
      reinterpret_cast<std::byte*>(values.data()), values.size(), sizeof(float), {&uncompressed}};
  drive(world, collective_in_host{}.all_reduce(endpoint<World>(world, where), data));
}

/// Returns values whose sums are not exact.
float fraction(int rank, int round, std::size_t element) {
  return 1.0F /
         static_cast<float>(1 + (element * 7 + static_cast<std::size_t>(rank * 13 + round)) % 101);
}

std::vector<float> sum_in_rank_order(int ranks, int round, std::size_t elements) {
  std::vector<float> sum(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    sum[i] = fraction(0, round, i);
    for (int rank = 1; rank < ranks; ++rank) {
      sum[i] += fraction(rank, round, i);
    }
  }
  return sum;
}

/// Calls `body(world)` on every process, if their host has memory that they can share, and then
/// once more behind any_transport.
template <class Body>
void on_one_host(Body body) {
  const auto if_they_share = [&](auto& world) {
    (void)world.allocate_shared(1);
    if (world.size() > 1 && !world.may_rendezvous_at(first_chunk)) {
      struct statvfs room {};
      ASSERT_EQ(::statvfs("/dev/shm", &room), 0);
      ASSERT_LT(room.f_bavail * room.f_frsize, 16U << 20);
      GTEST_SKIP() << "/dev/shm is full";
    }
    body(world);
  };
  on_all_processes([&](mpi& world) { if_they_share(world); });
  on_all_processes([&](mpi& world) {
    transport::any_transport any(world);
    if_they_share(any);
  });
}

/// Returns a model's memory, with gradients that all processes of the host can access.
template <class World>
arena shared_arena(World& world) {
  arena memory(declarations(),
               [&](std::size_t elements) { return world.allocate_shared(elements); });
  initialise(memory, world.rank());
  return memory;
}

/// Returns the message of what `body()` throws, empty if it ends well.
template <class Body>
std::string thrown_by(Body body) {
  try {
    body();
  } catch (const std::exception& failed) {
    return failed.what();
  }
  return {};
}

TEST(HostMemory, TakesTheSumInRankOrderAndNoMessage) {
  on_one_host([](auto& world) {
    for (const std::size_t elements : {0UL, 1UL, 14UL, 15UL, 1001UL, 100'003UL}) {
      const std::span<float> mine = world.allocate_shared(elements);
      ASSERT_EQ(mine.size(), elements);
      const std::uint64_t sent = world.counted().messages_sent;
      for (int round = 0; round < 4; ++round) {
        for (std::size_t i = 0; i < elements; ++i) {
          mine[i] = fraction(world.rank(), round, i);
        }
        all_reduce(world, mine);
        EXPECT_EQ(std::vector<float>(mine.begin(), mine.end()),
                  sum_in_rank_order(world.size(), round, elements))
            << elements << " elements";
      }
      EXPECT_EQ(world.counted().messages_sent, sent) << elements << " elements";
    }
  });
}

/// If one rank's values are in other memory, or ranks cannot make a rendezvous, all ranks use
/// messages.
TEST(HostMemory, IsNotNeeded) {
  on_one_host([](auto& world) {
    constexpr std::size_t elements = 1001;
    const std::span<float> shared = world.allocate_shared(elements);
    std::vector<float> own(elements);
    const int last = world.size() - 1;
    for (const bool beyond : {false, true}) {
      const std::span<float> mine =
          world.rank() == last && !beyond ? std::span<float>(own) : shared;
      const tag where{channel::data, beyond ? 29'000U : 1U, 0};
      EXPECT_FALSE(beyond && world.may_rendezvous_at(where));
      std::iota(mine.begin(), mine.end(), static_cast<float>(world.rank()));
      const std::uint64_t sent = world.counted().messages_sent;
      all_reduce(world, mine, where);
      EXPECT_EQ(world.counted().messages_sent - sent, static_cast<std::uint64_t>(2 * last));
      for (std::size_t i = 0; i < elements; ++i) {
        ASSERT_EQ(mine[i], static_cast<float>(world.size()) * static_cast<float>(i) +
                               static_cast<float>(last * world.size() / 2));
      }
    }
  });
}

TEST(HostMemory, OfRanksOnSeveralHostsIsTheirOwn) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> hosts(static_cast<std::size_t>(size));
  std::iota(hosts.begin(), hosts.end(), 0);
  mpi world(MPI_COMM_WORLD, hosts);
  const std::span<float> mine = world.allocate_shared(100);
  EXPECT_EQ(std::vector<float>(mine.begin(), mine.end()), std::vector<float>(100));
  EXPECT_FALSE(world.may_rendezvous_at(first_chunk));
  EXPECT_EQ(world.place_of(std::as_bytes(mine)).block, 0U);
  std::ranges::fill(mine, 1.0F);
  all_reduce(world, mine);
  EXPECT_EQ(std::vector<float>(mine.begin(), mine.end()),
            std::vector<float>(100, static_cast<float>(size)));
}

TEST(HostMemory, PlacesAreKnownAndNoOthers) {
  on_one_host([](auto& world) {
    if (world.size() == 1) {
      GTEST_SKIP() << "one rank meets nobody";
    }
    const auto one = std::as_bytes(world.allocate_shared(1000));
    const auto other = std::as_bytes(world.allocate_shared(1000));
    const auto place = world.place_of(other.subspan(40, 100));
    EXPECT_NE(place.block, 0U);
    EXPECT_NE(place.block, world.place_of(one).block);
    EXPECT_EQ(world.at(world.rank(), place), other.data() + 40);
    const std::vector<std::byte> own(100);
    EXPECT_EQ(world.place_of(own).block, 0U);
    EXPECT_EQ(world.place_of({other.data(), std::size_t{1} << 20}).block, 0U) << "too long";
  });
}

TEST(HostMemory, ShowsNoPhantom) {
  on_one_host([](auto& world) {
    EXPECT_THROW(world.rendezvous(tag{channel::data, 29'000, 0}, {}), usage_error);
    EXPECT_THROW(world.rendezvous(tag{channel::data, 0, 1}, {}), usage_error);
    const std::span<const std::byte> phantom{static_cast<const std::byte*>(nullptr), 8};
    EXPECT_THROW(world.rendezvous(first_chunk, phantom), usage_error);
  });
}

TEST(HostMemory, TrainsAndSendsNothing) {
  on_one_host([](auto& world) {
    arena memory = shared_arena(world);
    auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of());
    take_step(engine, memory, 0);
    engine.wait();
    const std::uint64_t sent = world.counted().bytes_sent;
    for (int step = 1; step < 6; ++step) {
      take_step(engine, memory, step);
    }
    engine.wait();
    EXPECT_EQ(world.counted().bytes_sent, sent);
    EXPECT_EQ(std::vector<float>(memory.parameters().begin(), memory.parameters().end()),
              trained(world.size(), 6));
  });
}

/// A failure is heard also from a rank to which no message is sent.
TEST(HostMemory, WhoFailsEndsThoseThatWaitAtARendezvous) {
  on_one_host([](auto& world) {
    if (world.size() == 1) {
      GTEST_SKIP() << "one rank waits for nobody";
    }
    const std::span<float> mine = world.allocate_shared(1000);
    all_reduce(world, mine);
    if (world.rank() == 1) {
      world.fail(std::make_exception_ptr(std::runtime_error("out of room")));
      EXPECT_EQ(thrown_by([&] { all_reduce(world, mine); }), "out of room");
    } else {
      EXPECT_EQ(thrown_by([&] { all_reduce(world, mine); }), "rank 1 failed: out of room");
    }
  });
}

TEST(HostMemory, WhoLeavesByAnExceptionEndsEveryRank) {
  on_one_host([](auto& world) {
    if (world.size() == 1) {
      GTEST_SKIP() << "one rank ends alone";
    }
    const std::string said = thrown_by([&] {
      arena memory = shared_arena(world);
      auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of());
      for (int step = 0; step < 100; ++step) {
        if (world.rank() == 1 && step == 3) {
          throw std::runtime_error("out of room");
        }
        take_step(engine, memory, step);
      }
      engine.wait();
    });
    EXPECT_EQ(said.substr(0, 27),
              world.rank() == 1 ? "out of room" : "rank 1 left by an exception");
  });
}

/// Only one rank is refused; catching that error tells no other rank.
TEST(HostMemory, WhoIsRefusedEndsEveryRank) {
  on_one_host([](auto& world) {
    if (world.size() == 1) {
      GTEST_SKIP() << "one rank ends alone";
    }
    const std::string said = thrown_by([&] {
      arena memory = shared_arena(world);
      engine_options<compose<>> options;
      options.run.deadline = 5;
      options.run.accumulation = world.rank() == 1 ? 0 : 1;
      make_engine<compose<>>(world, memory.tensors(), optimizer_of(), options);
    });
    const std::string why =
        "run.accumulation = 0 leaves a step without gradients. Fix: 1, or the number of passes "
        "that a step adds up";
    EXPECT_EQ(said, world.rank() == 1 ? why : "rank 1 failed: " + why);
  });
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) { return tutti::test::run_tests_of_processes(argc, argv); }
