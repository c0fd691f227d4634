// The hosts on which ranks live decide which NICs their messages share.
#include "tutti/transport/network.hpp"

#include <atomic>
#include <coroutine>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <span>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/errors.hpp"
#include "tutti/base/all_of.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/task.hpp"
#include "tutti/transport/any_transport.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/recording.hpp"
#include "tutti/transport/shaped.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::transport {
namespace {

constexpr link nic{1e6, 1e-3};
constexpr tag chunk_0{channel::data, 0, 0};

std::span<std::byte> phantom(std::size_t bytes) {
  return {static_cast<std::byte*>(nullptr), bytes};
}

/// Lets each of the first `senders` ranks send `bytes` to the rank `senders` further, and returns
/// when the last message has arrived.
seconds all_send(const network& over, int senders, std::size_t bytes) {
  return run_simulated(over,
                       [=](simulated& world) -> task {
                         if (world.rank() < senders) {
                           co_await world.send(world.rank() + senders, chunk_0, phantom(bytes));
                         } else {
                           co_await world.receive(world.rank() - senders, chunk_0, phantom(bytes));
                         }
                       })
      .time;
}

/// Lets every other rank send `bytes` to the last.
seconds all_send_to_the_last(const network& over, std::size_t bytes) {
  return run_simulated(over,
                       [=](simulated& world) -> task {
                         const int last = world.size() - 1;
                         if (world.rank() < last) {
                           co_await world.send(last, chunk_0, phantom(bytes));
                           co_return;
                         }
                         for (int from = 0; from < last; ++from) {
                           co_await world.receive(from, chunk_0, phantom(bytes));
                         }
                       })
      .time;
}

TEST(Network, RanksOfAHostShareItsNic) {
  EXPECT_DOUBLE_EQ(all_send(network(8, nic), 4, 500), 1e-3 + 500e-6);
  EXPECT_DOUBLE_EQ(all_send(network(8, nic, 4, network::at_once), 4, 500), 1e-3 + 4 * 500e-6);
  EXPECT_DOUBLE_EQ(all_send(network(8, nic, 2, network::at_once), 4, 500), 1e-3 + 2 * 500e-6);
}

TEST(Network, WhatStaysInsideAHostDoesNotPassItsNic) {
  EXPECT_DOUBLE_EQ(all_send(network(8, nic, 8, network::at_once), 4, 500), 0);
  EXPECT_DOUBLE_EQ(all_send(network(8, nic, 8, {1e7, 1e-5}), 4, 500), 1e-5 + 50e-6);
  EXPECT_DOUBLE_EQ(all_send_to_the_last(network(5, nic, 5, {1e7, 1e-5}), 500), 1e-5 + 4 * 50e-6);
}

TEST(Network, TheSlowerOfTwoNicsSetsTheRate) {
  network slow_receiver(2, nic);
  slow_receiver.isolate(1, {1e5, 1e-3});
  EXPECT_DOUBLE_EQ(all_send(slow_receiver, 1, 500), 1e-3 + 5000e-6);
  network slow_sender(2, nic);
  slow_sender.isolate(0, {1e5, 1e-3});
  EXPECT_DOUBLE_EQ(all_send(slow_sender, 1, 500), 1e-3 + 5000e-6);
}

TEST(Network, AServerBehindASlowerNicSuffersIncast) {
  network over(5, nic);
  EXPECT_DOUBLE_EQ(all_send_to_the_last(over, 500), 1e-3 + 4 * 500e-6);
  over.isolate(4, {1e5, 1e-3});
  EXPECT_DOUBLE_EQ(all_send_to_the_last(over, 500), 1e-3 + 4 * 5000e-6);
}

TEST(Network, SlowSendersDoNotHoldTheReceiversNic) {
  network over(5, {1e5, 1e-3});
  over.isolate(4, {1e6, 1e-3});
  EXPECT_DOUBLE_EQ(all_send_to_the_last(over, 500), 1e-3 + 5000e-6);
}

TEST(Network, ARankMayJoinAnothersHost) {
  network over(3, nic);
  over.join(2, 0);
  EXPECT_EQ(over.host(2), over.host(0));
  EXPECT_DOUBLE_EQ(all_send_to_the_last(over, 500), 1e-3 + 500e-6);
}

TEST(Network, RefusesWhatCannotBe) {
  EXPECT_THROW(network(0, nic), usage_error);
  EXPECT_THROW(network(4, nic, 0, network::at_once), usage_error);
  EXPECT_THROW(network(4, {0, 1e-3}), usage_error);
  EXPECT_THROW(network(4, {1e6, -1}), usage_error);
  EXPECT_THROW(network(4, nic, 2, {-1, 0}), usage_error);
  EXPECT_THROW(network(4, nic).isolate(4, nic), std::out_of_range);
}

TEST(Emulated, TakesAsLongAsTheNetworkAndCountsAsTheSimulation) {
  const network over(4, {1e6, 1e-3});
  const auto ring = [](simulated& world) -> task {
    const int right = (world.rank() + 1) % world.size();
    const int left = (world.rank() + world.size() - 1) % world.size();
    std::vector<std::byte> mine(500, static_cast<std::byte>(world.rank()));
    std::vector<std::byte> other(500);
    for (int step = 0; step < 20; ++step) {
      co_await world.exchange(right, mine, left, other, chunk_0);
      EXPECT_EQ(other.front(), static_cast<std::byte>(left));
    }
  };
  const simulated_run simulation = run_simulated(over, ring);
  const emulated_run emulation = run_emulated(over, device(), ring);
  EXPECT_NEAR(simulation.time, 20 * (1e-3 + 500e-6), 1e-12);
  EXPECT_EQ(emulation.time, simulation.time);
  EXPECT_EQ(emulation.events, simulation.events);
  EXPECT_GE(emulation.wall, emulation.time);
  EXPECT_GE(emulation.worst_lateness, emulation.mean_lateness);
}

/// A wait for longer than the host's clock counts does not end at once.
TEST(EmulatedDeathTest, WaitsForWhatIsDueAfterTheClocksEnd) {
  const auto wait = [] {
    ualarm(50'000, 0);  // microseconds
    detail::by_wall_clock().await(1e11);
    std::_Exit(0);
  };
  EXPECT_EXIT(wait(), testing::KilledBySignal(SIGALRM), "");
}

/// Expects every kind of transport to place five ranks on three hosts.
template <class Transport>
void expect_two_one_two(const Transport& world) {
  for (int rank = 0; rank < 5; ++rank) {
    for (int other = 0; other < 5; ++other) {
      EXPECT_EQ(world.host_of(rank) == world.host_of(other),
                rank == other || rank + other == 1 || rank + other == 7);
    }
  }
  EXPECT_EQ(ranks_here(world), world.rank() == 2 ? 1 : 2);
}

TEST(Hosts, AreTheNetworksOrThoseThatSomebodySet) {
  network over(5, nic, 2, network::at_once);  // 0 1 | 2 3 | 4
  over.join(3, 4);
  run_simulated(over, [](simulated& world) -> task {
    expect_two_one_two(world);
    co_return;
  });
  const std::vector<int> hosts{7, 7, 3, 5, 5};
  run_ranks(
      5,
      [&](in_process& world) {
        expect_two_one_two(world);
        expect_two_one_two(any_transport(world));
        expect_two_one_two(recording<in_process>(world, 0));
      },
      hosts);
  run_ranks(5, [&](in_process& world) {
    EXPECT_EQ(ranks_here(world), 5);
    run_shaped(world, over, [](shaped<in_process>& end) -> task {
      expect_two_one_two(end);
      co_return;
    });
  });
}

/// Runs messages, loans and sums around a ring, and returns rank 0's clock afterwards.
template <class World>
task around(World& world, seconds& ended) {
  const int next = (world.rank() + 1) % world.size();
  const int last = (world.rank() + world.size() - 1) % world.size();
  const tag where{channel::data, 1, 0};
  for (std::size_t bytes = 4; bytes < (1 << 16); bytes *= 8) {
    std::vector<std::byte> out(bytes);
    std::vector<std::byte> in(bytes);
    co_await world.exchange(next, out, last, in, where);
    co_await world.exchange_fold(next, out, last, in, where, copy_bytes{});
    auto sent = world.send(next, where, out);
    { const auto lent = co_await world.receive_loan(last, where, bytes); }
    co_await sent;
    co_await world.sleep(1e-6 * (world.rank() + 1));
  }
  if (world.rank() == 0) {
    ended = world.now();
  }
}

TEST(AnyTransport, BehindTheBoundaryAVirtualClockShowsTheSame) {
  const network over(5, nic, 2, network::at_once);
  seconds bare = 0;
  seconds erased = 0;
  const auto first =
      run_simulated(over, [&](simulated& world) -> task { return around(world, bare); });
  const auto again = run_simulated(over, [&](simulated& inner) -> task {
    any_like<simulated> world(inner);
    task rank = around(world, erased);
    co_await rank;
  });
  EXPECT_GT(bare, 0);
  EXPECT_EQ(erased, bare);
  EXPECT_EQ(again.time, first.time);
  EXPECT_EQ(again.events, first.events);
}

/// An engine asks this also of a recorded transport.
static_assert(may_be_in_real_time<recording<any_like<simulated>>>);
static_assert(!may_be_in_real_time<recording<simulated>>);

TEST(Shaped, ANetworkThatIsAnotherOnSomeRankIsRefusedEverywhere) {
  const network of_two(2, nic);
  for (const auto& [other, part] :
       {std::pair(network(2, nic, 2, nic), "other hosts"),
        std::pair(network(2, {1e9, 1e-3}), "other NICs"),
        std::pair(network(2, nic, 1, nic), "another link inside hosts")}) {
    const auto said = test::errors(2, [&, &other = other](in_process& world) {
      run_shaped(world, world.rank() == 0 ? of_two : other,
                 [](shaped<in_process>&) -> task { co_return; });
    });
    EXPECT_EQ(said, std::vector<std::string>(
                        2, std::string("rank 1's network has ") + part +
                               " than rank 0's. Fix: describe the same network on every rank"));
  }
}

TEST(Shaped, NothingMovesOnlyWhereNoRankHasAnEventToCome) {
  constexpr seconds stall_limit = 0.2;
  const auto words_of = [](int sender) {
    return test::errors(2, [sender](in_process& carrier) {
      run_shaped(
          carrier, network(2, nic), device(),
          [sender](shaped<in_process>& world) -> task {
            if (world.rank() == sender) {
              co_await world.sleep(2 * stall_limit);
              co_await world.send(1 - sender, chunk_0, phantom(300'000));  // 0.3 s
            } else {
              co_await world.receive(1 - world.rank(), chunk_0, phantom(300'000));
            }
          },
          stall_limit);
    });
  };
  EXPECT_EQ(words_of(0), std::vector<std::string>(2))
      << "it sleeps, then its message is on its way";
  for (const auto& each : words_of(-1)) {
    EXPECT_TRUE(each.starts_with("nothing moves: rank ")) << each;
  }
}

/// Threads whose payloads come some polls later than their stamps, as those of processes do.
class with_late_payloads : public recording<in_process> {
 public:
  explicit with_late_payloads(in_process& inner) : recording(inner, 0) {}

  task receive(int from, tag where, std::span<std::byte> into) {
    struct until_later {
      with_late_payloads* self;
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<> late) const {
        self->late_ = late;
        self->polls_ = self->received_++ % 50 + 1;
      }
      void await_resume() const noexcept {}
    };
    if (where.channel == channel::data) {
      co_await until_later{this};
    }
    co_await recording::receive(from, where, into);
  }
  bool poll() {
    if (polls_ > 0 && --polls_ == 0) {
      ready_coroutines().push(late_);
    }
    return recording::poll();
  }

 private:
  std::coroutine_handle<> late_;
  int received_ = 0;
  int polls_ = 0;
};

/// All are due at the same time, and only the first is so long that its payload travels apart.
TEST(Shaped, NoMessageOvertakesOneWhosePayloadIsLate) {
  const auto said = test::errors(2, [](in_process& inner) {
    with_late_payloads carrier(inner);
    run_shaped(
        carrier, network(2, network::at_once), [](shaped<with_late_payloads>& world) -> task {
          std::vector<std::byte> bytes(500);
          for (int round = 0; round < 200; ++round) {
            const auto each = [&](std::size_t index) {
              return std::span(bytes).first(500 / (1 + index));
            };
            if (world.rank() == 0) {
              operations sends(
                  12, [&](std::size_t index) { return world.send(1, chunk_0, each(index)); });
              co_await all_of(sends);
            } else {
              operations receives(
                  12, [&](std::size_t index) { return world.receive(0, chunk_0, each(index)); });
              co_await all_of(receives);
            }
          }
        });
  });
  EXPECT_EQ(said, std::vector<std::string>(2));
}

/// A rank that has done its part fails, too, because the time of the job is unknown. Rank 1 fails
/// after the others' parts: one that begins its part when it knows of a failure keeps its outcome.
TEST(Shaped, WhereARankThrowsEveryRankFails) {
  std::atomic<int> parts_done = 0;
  const auto said = test::errors(3, [&](in_process& carrier) {
    run_shaped(carrier, network(3, nic), [&](shaped<in_process>& world) -> task {
      if (world.rank() != 1) {
        ++parts_done;
        co_return;
      }
      while (parts_done < 2) {
        co_await world.sleep(1e-3);
      }
      throw std::runtime_error("out of data");
    });
  });
  EXPECT_EQ(said, (std::vector<std::string>{"rank 1 failed: out of data", "out of data",
                                            "rank 1 failed: out of data"}));
}

}  // namespace
}  // namespace tutti::transport
