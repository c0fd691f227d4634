#include <algorithm>
#include <cstddef>
#include <exception>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/failing_queue.hpp"
#include "support/mpi_world.hpp"
#include "support/transport_laws.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {

using mpi_world = mpi_world_on<inline_queue>;

/// As mpi_world, behind the type-erased transport.
struct any_mpi_world {
  using transport = tutti::transport::any_transport;
  static constexpr bool phantoms = false;
  static constexpr std::size_t longest = (9 << 20) + 12;  // so long that it is sent in pieces

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

TEST(Mpi, RanksOfOneHostShareItsName) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    among(ranks, [&](MPI_Comm some) {
      constexpr int longest = MPI_MAX_PROCESSOR_NAME;
      std::vector<char> names(static_cast<std::size_t>(ranks * longest));
      std::vector<char> mine(longest);
      int length = 0;
      MPI_Get_processor_name(mine.data(), &length);
      MPI_Allgather(mine.data(), longest, MPI_CHAR, names.data(), longest, MPI_CHAR, some);
      const tutti::transport::mpi world(some);
      int here = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const bool same_name = std::equal(mine.begin(), mine.end(), names.begin() + rank * longest);
        EXPECT_EQ(world.host_of(rank) == world.host_of(world.rank()), same_name);
        here += same_name ? 1 : 0;
      }
      EXPECT_EQ(ranks_here(world), here);
    });
  }
}

/// There are more requests than one check looks at, on two lanes, and the first of them wait
/// longest. Each request ends once, with its own message, in whatever order messages are sent.
TEST(Mpi, FindsEveryRequestInTurn) {
  constexpr int receives = 700;
  constexpr int waiting_longest = 120;
  for (const unsigned seed : {0u, 1u, 2u}) {
    transport::detail::request_table<int> table(3);
    std::vector<int> room(receives + 1, -1);
    const auto receive = [&](std::size_t lane, int number) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Irecv(&room[at(number)], 1, MPI_INT, 0, number, MPI_COMM_SELF, &request);
      table.add(lane, request, number);
    };
    receive(0, receives);
    std::vector<int> order(receives);
    std::iota(order.begin(), order.end(), 0);
    for (const int number : order) {
      receive(number < 600 ? 1 : 2, number);
    }
    const auto behind = order.begin() + waiting_longest;
    if (seed != 0) {  // otherwise as they were posted
      std::shuffle(behind, order.end(), std::mt19937(seed));
    }
    std::vector<int> ended(receives, 0);
    const auto finds = [&](auto begin, auto end) {
      std::for_each(begin, end, [](const int& number) {
        MPI_Send(&number, 1, MPI_INT, 0, number, MPI_COMM_SELF);
      });
      for (int looks = 0; looks < 100; ++looks) {
        table.test(
            [&](int number, const MPI_Status& status) {
              EXPECT_EQ(status.MPI_TAG, number);
              EXPECT_EQ(room[at(number)], number);
              ++ended[at(number)];
            },
            [](int code) { ADD_FAILURE() << transport::mpi_error::text(code); });
      }
      EXPECT_TRUE(std::all_of(begin, end, [&](int number) { return ended[at(number)] == 1; }));
    };
    finds(behind, order.end());
    EXPECT_EQ(std::count(ended.begin(), ended.end(), 0), waiting_longest);
    finds(order.begin(), behind);
    std::vector<int> left;
    table.for_each([&](int number, MPI_Request& request) {
      left.push_back(number);
      MPI_Cancel(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
    EXPECT_EQ(left, std::vector<int>{receives});
    EXPECT_EQ(table.abandon(), left);
  }
}

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
        co_await on.send(0, data_tag(0), out);  // no rank receives this chunk
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

/// Expects both ranks of `body(world)`, in which rank 1's queue fails, to end with the queue's
/// error.
template <class Queue, class Body>
void expect_both_to_hear_of_the_queue(Body body) {
  among(2, [&](MPI_Comm some) {
    tutti::transport::mpi_on<Queue> world(some);
    std::string words;
    const auto keep_words = [&](task part) -> task {
      try {
        co_await part;
      } catch (const std::exception& failure) {
        words = failure.what();
      }
    };
    drive(world, keep_words(body(world)));
    EXPECT_EQ(words,
              world.rank() == 1 ? "the device is lost" : "rank 1 failed: the device is lost");
    EXPECT_EQ(world.in_flight(), 0U);
  });
}

TEST(Mpi, AQueueThatRefusesWorkEndsEveryRankWithItsWords) {
  using on_the_host = tutti::transport::mpi_on<failing_queue>;
  // While a received message is folded, a piece at a time or whole.
  const auto folds = [](auto fold) {
    expect_both_to_hear_of_the_queue<failing_queue>([=](on_the_host& on) -> task {
      std::vector<std::byte> bytes(5 << 20);
      if (on.rank() == 1) {
        on.queue().fail();
        co_await on.receive_fold(0, data_tag(0), bytes, fold);
      } else {
        co_await on.send(1, data_tag(0), bytes);
        co_await on.sleep(5);
      }
    });
  };
  folds(add_bytes{});
  folds(add_mirrored{});
  // While a loan is given back.
  expect_both_to_hear_of_the_queue<failing_queue>([](on_the_host& on) -> task {
    std::vector<std::byte> bytes(100);
    if (on.rank() == 1) {
      {
        const auto lent = co_await on.receive_loan(0, data_tag(0), 100);
        on.queue().fail();
      }
    } else {
      co_await on.send(1, data_tag(0), bytes);
    }
    co_await on.sleep(5);
  });
  // Before a device's memory is sent, and when it is about to be.
  using on_a_device = tutti::transport::mpi_on<failing<host_stream>>;
  for (const bool begun : {false, true}) {
    expect_both_to_hear_of_the_queue<failing<host_stream>>([=](on_a_device& on) -> task {
      host_stream::buffer<std::byte> out(on.queue(), 5 << 20);
      host_stream::buffer<std::byte> in(on.queue(), 5 << 20);
      if (on.rank() == 1 && !begun) {
        on.queue().fail();
      }
      auto exchanged = on.exchange_fold(1 - on.rank(), out.span(), 1 - on.rank(), in.span(),
                                        data_tag(0), add_mirrored{});
      if (on.rank() == 1) {
        on.queue().fail();
      }
      co_await exchanged;
      co_await on.sleep(5);
    });
  }
}

/// Adds up the bytes that are charged.
struct charged_queue : inline_queue {
  std::size_t charged = 0;
  void charge(std::size_t bytes) { charged += bytes; }
};

/// Expects what rank 1 is charged for a message that rank 0 sends.
template <class Receive>
void expect_charge(std::size_t expected, std::size_t bytes, Receive receive) {
  using transport = tutti::transport::mpi_on<charged_queue>;
  among(2, [&](MPI_Comm some) {
    transport world(some);
    std::vector<std::byte> memory(bytes);
    const auto part = [&](transport& on) -> task {
      if (on.rank() == 0) {
        co_await on.send(1, data_tag(0), memory);
      } else {
        co_await receive(on, std::span<std::byte>(memory));
      }
    };
    drive(world, part(world));
    EXPECT_EQ(world.queue().charged, world.rank() == 1 ? expected : 0) << bytes;
  });
}

TEST(Mpi, ADeviceIsChargedForWhatItFoldsAndNotForWhatMpiWrites) {
  const auto folding = [](auto fold) {
    return [fold](auto& on, std::span<std::byte> into) {
      return on.receive_fold(0, data_tag(0), into, fold);
    };
  };
  for (const std::size_t bytes : {std::size_t{800}, std::size_t{9'000'000}}) {
    expect_charge(3 * bytes, bytes, folding(add_bytes{}));  // in pieces
    expect_charge(3 * bytes, bytes, folding(add_mirrored{}));
    expect_charge(0, bytes, [](auto& on, std::span<std::byte> into) {
      return on.receive(0, data_tag(0), into);
    });
  }
}

// A message of 2 GiB and more is described in this way; here with units of a thousand bytes.
TEST(Mpi, MessagesLongerThanMpiCountsAreOneElement) {
  using tutti::transport::detail::bytes_of;
  using tutti::transport::detail::mpi_bytes;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{999}, std::size_t{1000},
                                  std::size_t{1001}, std::size_t{3000}, std::size_t{3457}}) {
    const mpi_bytes all(bytes, 1000);
    EXPECT_EQ(all.type() == MPI_BYTE, bytes <= 1000);
    const auto out = pattern(bytes, 1);
    std::vector<std::byte> in(bytes);
    MPI_Request sent = MPI_REQUEST_NULL;
    MPI_Isend(out.data(), all.count(), all.type(), 0, 0, MPI_COMM_SELF, &sent);
    MPI_Status status;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Mprobe(0, 0, MPI_COMM_SELF, &message, &status);
    EXPECT_EQ(bytes_of(status), bytes);
    MPI_Mrecv(in.data(), all.count(), all.type(), &message, &status);
    EXPECT_EQ(bytes_of(status), bytes);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    EXPECT_TRUE(same(in, out));
  }
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
