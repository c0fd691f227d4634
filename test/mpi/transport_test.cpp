#include <cstddef>
#include <exception>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/transport_laws.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {

using mpi_world = mpi_world_on<inline_queue>;

/// As mpi_world, behind the erased boundary.
struct any_mpi_world {
  using transport = tutti::transport::any_transport;
  static constexpr bool phantoms = false;
  static constexpr std::size_t longest = (9 << 20) + 12;  // travels in pieces

  template <class Body>
  static bool run(int ranks, Body body) {
    return mpi_world::run(ranks, [&](tutti::transport::mpi& inner) -> task {
      transport world(inner);
      co_await body(world);
    });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, TransportLaw, mpi_world);
INSTANTIATE_TYPED_TEST_SUITE_P(AnyMpi, TransportLaw, any_mpi_world);

TEST(Mpi, ReducesByItself) {
  mpi_world::run(2, [](tutti::transport::mpi& world) -> task {
    std::vector<float> values(1000, static_cast<float>(world.rank() + 1));
    const traffic before = world.counted();
    co_await world.all_reduce(data_tag(0), values);
    const int p = world.size();
    EXPECT_EQ(values, std::vector<float>(1000, static_cast<float>(p * (p + 1) / 2)));
    EXPECT_EQ(world.counted().bytes_sent - before.bytes_sent,
              2 * static_cast<std::uint64_t>(p - 1) * 4000 / static_cast<std::uint64_t>(p));
  });
}

TEST(Mpi, AnAllReduceThatSomeNeverJoinDoesNotHoldTheOthers) {
  mpi_world::run(3, [](tutti::transport::mpi& world) -> task {
    std::vector<float> values(1 << 20, 1.0F);
    std::string words;
    const auto part = [](tutti::transport::mpi& on, std::vector<float>& all) -> task {
      if (on.rank() == 0) {
        co_await on.sleep(0.01);
        on.abort("rank 0 went home");
      } else {
        co_await on.all_reduce(data_tag(0), all);
      }
    };
    co_await TransportLaw<mpi_world>::words_of(part(world, values), words);
    EXPECT_TRUE(words == "rank 0 went home" || (world.rank() == 0 && words.empty())) << words;
  });
}

TEST(Mpi, ARankThatFailsIsNamedToThoseWhoSendToIt) {
  among(2, [](MPI_Comm some) {
    tutti::transport::mpi world(some);
    std::vector<std::byte> bytes(1 << 20);
    std::string words;
    const auto sends = [](tutti::transport::mpi& on, std::span<std::byte> out) -> task {
      auto never = on.receive(1 - on.rank(), data_tag(1), out.first(10));
      if (on.rank() == 1) {
        co_await on.send(0, data_tag(0), out);  // nobody receives this chunk
      }
      co_await never;
    };
    int polls = 0;
    drive(world, TransportLaw<mpi_world>::words_of(sends(world, bytes), words), [&] {
      if (world.rank() == 0 && ++polls == 100) {
        world.fail(std::make_exception_ptr(communication_error("out of room")));
      }
    });
    EXPECT_EQ(words, world.rank() == 0 ? "out of room" : "rank 0 failed: out of room");
    EXPECT_EQ(world.in_flight(), 0U);
  });
}

TEST(Mpi, SaysWhatItsThreadsMay) {
  int granted = 0;
  MPI_Query_thread(&granted);
  const tutti::transport::mpi borrowed(MPI_COMM_WORLD);
  EXPECT_EQ(borrowed.thread_level(), granted);
  EXPECT_EQ(borrowed.single_threaded(), granted < MPI_THREAD_MULTIPLE);
}

TEST(Mpi, RefusesWhatItCannotCarry) {
  tutti::transport::mpi world(MPI_COMM_WORLD);
  const std::span<std::byte> phantom(static_cast<std::byte*>(nullptr), 8);
  EXPECT_THROW(world.send(0, data_tag(0), phantom), usage_error);
  EXPECT_THROW(world.send(0, data_tag(0xFFFFFFFF), {}), usage_error);
  EXPECT_THROW(world.receive_any(channel::data), usage_error);
}

}  // namespace tutti::test

int main(int argc, char** argv) { return tutti::test::run_tests_of_processes(argc, argv); }
