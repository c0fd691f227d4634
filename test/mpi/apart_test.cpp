// Processes that take each other for processes of other hosts. Long messages are sent before they
// are received, with all pieces at a time, or in turns where they are staged.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <new>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/transport_laws.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {

using apart = mpi_world_apart<inline_queue>;

INSTANTIATE_TYPED_TEST_SUITE_P(Apart, TransportLaw, apart);
// Two of three share a host.
using in_pairs = mpi_world_of_hosts<2, inline_queue>;
INSTANTIATE_TYPED_TEST_SUITE_P(InPairs, TransportLaw, in_pairs);

namespace {

using words = std::vector<std::uint64_t>;

words numbers(std::size_t bytes, int seed) {
  words all(bytes / 8);
  std::iota(all.begin(), all.end(), static_cast<std::uint64_t>(seed) << 32);
  return all;
}

/// Adds, and records the addresses of long pieces that are added, which are in staging memory.
struct add_and_note {
  static constexpr std::size_t unit = 8;
  std::set<const std::byte*>* seen;

  void operator()(inline_queue&, std::byte* into, const std::byte* from, std::size_t bytes) const {
    if (bytes > 64_KiB) {
      seen->insert(from);
    }
    const auto* theirs = reinterpret_cast<const std::uint64_t*>(from);
    auto* mine = reinterpret_cast<std::uint64_t*>(into);
    for (std::size_t i = 0; i < bytes / 8; ++i) {
      mine[i] += theirs[i];
    }
  }
};

/// Makes one exchange with the other of two ranks, and reports the most long pieces that were
/// staged at a time.
task exchange_of(transport::mpi& world, std::size_t sent, std::size_t received,
                 std::size_t& staged) {
  const int peer = 1 - world.rank();
  const words mine = numbers(sent, world.rank());
  words into = numbers(received, 7);
  std::set<const std::byte*> seen;
  const add_and_note fold{&seen};
  co_await world.exchange_fold(peer, std::as_bytes(std::span(mine)), peer,
                               std::as_writable_bytes(std::span(into)), data_tag(3), fold);
  const words theirs = numbers(received, peer);
  words expected = numbers(received, 7);
  std::ranges::transform(expected, theirs, expected.begin(), std::plus<>());
  EXPECT_TRUE(into == expected);
  EXPECT_EQ(world.in_flight(), 0U);
  staged = seen.size();
}
task send_to_0(transport::mpi& world, std::size_t bytes) {
  const words out = numbers(bytes, 1);
  co_await world.send(0, data_tag(3), std::as_bytes(std::span(out)));
}
task receive_from_0(transport::mpi& world, std::size_t bytes) {
  words in(bytes / 8);
  co_await world.receive(0, data_tag(3), std::as_writable_bytes(std::span(in)));
  EXPECT_TRUE(in == numbers(bytes, 0));
}

constexpr std::size_t long_message = 40 << 20;  // three turns

TEST(Apart, ExchangesStageFourLongPiecesAtMost) {
  apart::run(2, [](transport::mpi& world) -> task {
    std::size_t staged = 0;
    co_await exchange_of(world, long_message, long_message, staged);
    EXPECT_EQ(staged, 4U);
  });
}

TEST(Apart, TheHalvesOfAnExchangeMayDifferInLength) {
  constexpr std::size_t lengths[] = {0, 100000, 5 << 20, 18 << 20, long_message};
  apart::run(2, [&](transport::mpi& world) -> task {
    std::size_t staged = 0;
    for (const std::size_t low : lengths) {
      for (const std::size_t high : lengths) {
        const bool first = world.rank() == 0;
        co_await exchange_of(world, first ? low : high, first ? high : low, staged);
      }
    }
  });
}

TEST(Apart, AnExchangeMeetsAPeerWhoseHalvesFollowEachOther) {
  for (const bool sends_first : {false, true}) {
    apart::run(2, [&](transport::mpi& world) -> task {
      std::size_t staged = 0;
      if (world.rank() == 0) {
        co_await exchange_of(world, long_message, long_message, staged);
      } else if (sends_first) {
        co_await send_to_0(world, long_message);
        co_await receive_from_0(world, long_message);
      } else {
        co_await receive_from_0(world, long_message);
        co_await send_to_0(world, long_message);
      }
    });
  }
}

TEST(Apart, AnAbortEndsAnExchangeThatIsNeverAnswered) {
  apart::run(2, [](transport::mpi& world) -> task {
    std::string said;
    const auto part = [](transport::mpi& on) -> task {
      std::size_t staged = 0;
      if (on.rank() == 0) {
        co_await exchange_of(on, long_message, long_message, staged);
      } else {
        co_await receive_from_0(on, long_message);
        on.abort("the answer never comes");
        co_await receive_from_0(on, 8);
      }
    };
    co_await TransportLaw<apart>::words_of(part(world), said);
    EXPECT_EQ(said, "the answer never comes");
    EXPECT_EQ(world.in_flight(), 0U);
  });
}

/// A message to a rank that receives from any rank arrives whole, whatever its length, and messages
/// of one sender arrive in the order in which they were sent.
TEST(Apart, PushesOfAnyLengthComeWhole) {
  constexpr std::size_t step = 8 * 4096;
  const std::vector<std::size_t> lengths{
      0, 8, 48 * 1024, step + 48 * 1024, 3 * step, 4096000, (4 << 20) + 8, 9 << 20, 16, 64 * 1024};
  for (int ranks = 1; ranks <= 3; ++ranks) {
    apart::run(ranks, [&](transport::mpi& world) -> task {
      std::vector<words> out;
      std::vector<task> sends;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        out.push_back(numbers(lengths[i], world.rank()));
        const tag where{channel::service, static_cast<std::uint32_t>(i / 3), 0};
        sends.push_back(
            TransportLaw<apart>::send_one(world, 0, where, std::as_bytes(std::span(out.back()))));
      }
      for (task& each : sends) {
        each.start(world.ready_coroutines());
      }
      std::vector<std::size_t> seen(static_cast<std::size_t>(world.size()));
      for (std::size_t i = 0; world.rank() == 0 && i < seen.size() * lengths.size(); ++i) {
        const auto lent = co_await world.receive_any(channel::service);
        std::size_t& its = seen[static_cast<std::size_t>(lent.peer())];
        const words expected = numbers(lengths[its], lent.peer());
        const bool equal = std::ranges::equal(lent.bytes(), std::as_bytes(std::span(expected)));
        EXPECT_TRUE(equal) << lent.bytes().size() << " bytes where " << lengths[its]
                           << " were sent";
        EXPECT_EQ(lent.where().chunk, its / 3);
        ++its;
      }
      for (task& each : sends) {
        co_await each;
      }
      EXPECT_EQ(world.in_flight(), 0U);
    });
  }
}

/// Shared memory of all ranks of one communicator, which they read without a call that would let
/// MPI progress.
class noticeboard {
 public:
  explicit noticeboard(MPI_Comm all) {
    int rank = 0;
    MPI_Comm_rank(all, &rank);
    MPI_Win_allocate_shared(rank == 0 ? sizeof(notices) : 0, 1, MPI_INFO_NULL, all, &mine_,
                            &window_);
    MPI_Aint bytes = 0;
    int unit = 0;
    MPI_Win_shared_query(window_, 0, &bytes, &unit, &at_);
    if (rank == 0) {
      new (at_) notices{};
    }
    MPI_Barrier(all);
  }
  ~noticeboard() { MPI_Win_free(&window_); }
  noticeboard(const noticeboard&) = delete;
  noticeboard& operator=(const noticeboard&) = delete;

  struct notices {
    std::atomic<bool> first_sends{};
    std::atomic<bool> second_has_come{};
  };
  notices* operator->() const { return at_; }

 private:
  void* mine_ = nullptr;
  notices* at_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

/// Waits without a call of MPI, for 20 seconds at most; then the test fails.
void wait_for(const std::atomic<bool>& notice) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!notice && std::chrono::steady_clock::now() < limit) {
  }
  EXPECT_TRUE(notice);
}

/// Rank 1 stops in the middle of a long push, and continues when rank 0 has what rank 2 sent after
/// that push had begun. Where MPI reads another process's memory, the push may end without rank 1.
TEST(Apart, APushThatIsStillOnItsWayHoldsUpNobodyElses) {
  among(3, [](MPI_Comm all) {
    const noticeboard board(all);
    transport::mpi world(all, std::vector<int>{0, 1, 2});
    drive_or_abort(world, [&](transport::mpi& on) -> task {
      const words long_one = numbers(32 << 20, 1);
      const words short_one = numbers(8, 2);
      const tag where{channel::service, 0, 0};
      if (on.rank() == 1) {
        auto sending = on.send(0, where, std::as_bytes(std::span(long_one)));
        board->first_sends = true;
        wait_for(board->second_has_come);
        co_await sending;
      } else if (on.rank() == 2) {
        wait_for(board->first_sends);
        co_await on.send(0, where, std::as_bytes(std::span(short_one)));
      } else {
        wait_for(board->first_sends);
        for (int received = 0; received < 2; ++received) {
          const auto lent = co_await on.receive_any(channel::service);
          const words& sent = lent.peer() == 1 ? long_one : short_one;
          EXPECT_TRUE(std::ranges::equal(lent.bytes(), std::as_bytes(std::span(sent))));
          if (lent.peer() == 2) {
            board->second_has_come = true;
          }
        }
      }
    });
  });
}

/// Returns the error of a world of three ranks for lists of hosts, where the last rank's list may
/// differ.
std::string refusal(const std::vector<int>& hosts, const std::vector<int>& of_the_last) {
  std::string said;
  among(3, [&](MPI_Comm some) {
    int rank = 0;
    MPI_Comm_rank(some, &rank);
    try {
      const transport::mpi world(some, rank == 2 ? of_the_last : hosts);
    } catch (const usage_error& refused) {
      said = refused.what();
    }
  });
  return said;
}

/// Every rank gets the error, so that none waits for another.
TEST(Apart, ListsOfHostsThatDifferAreRefusedOnEveryRank) {
  EXPECT_EQ(refusal({0, 0, 1}, {0, 0, 1}), "");
  EXPECT_EQ(refusal({}, {}), "");
  EXPECT_EQ(refusal({0, 0, 1}, {0, 5, 1}),
            "rank 2 was told that rank 1 is on host 5, but rank 0 was told host 0. Fix: pass the "
            "same list on every rank");
  EXPECT_EQ(refusal({0, 0, 1}, {}),
            "rank 2 was given the hosts of 0 ranks, but rank 0 those of 3. Fix: pass the same list "
            "on every rank");
  EXPECT_EQ(refusal({0, 1}, {0, 1}),
            "for 3 ranks there are 2 host numbers. Fix: give one per rank, or none");
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) { return tutti::test::run_tests_of_processes(argc, argv); }
