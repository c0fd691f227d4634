#include "tutti/transport/simulated.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <gtest/gtest.h>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/transport_laws.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/tag.hpp"

namespace tutti::test {

INSTANTIATE_TYPED_TEST_SUITE_P(Simulated, TransportLaw, simulated_world);

namespace {

using transport::run_simulated;
using transport::simulated;

constexpr transport::link slow{1e6, 1e-3};  // so that a byte takes a microsecond
constexpr tag chunk_0{channel::data, 0, 0};

std::span<std::byte> phantom(std::size_t bytes) {
  return {static_cast<std::byte*>(nullptr), bytes};
}

template <class Body>
std::string words_of(int ranks, Body body) {
  try {
    run_simulated(ranks, slow, body);
  } catch (const communication_error& failure) {
    return failure.what();
  }
  return "nothing was thrown";
}

task send_after(simulated& world, seconds delay, int to, std::size_t bytes) {
  co_await world.sleep(delay);
  co_await world.send(to, chunk_0, phantom(bytes));
}

}  // namespace

TEST(Simulated, AMessageTakesLatencyAndItsBytes) {
  const auto run = run_simulated(2, slow, [](simulated& world) -> task {
    if (world.rank() == 0) {
      co_await world.send(1, chunk_0, phantom(500));
    } else {
      co_await world.receive(0, chunk_0, phantom(500));
    }
    EXPECT_DOUBLE_EQ(world.now(), 1e-3 + 500e-6);
  });
  EXPECT_DOUBLE_EQ(run.time, 1e-3 + 500e-6);
  EXPECT_EQ(run.events, 2U);
}

TEST(Simulated, ASenderSendsOneAfterTheOther) {
  const auto run = run_simulated(3, slow, [](simulated& world) -> task {
    if (world.rank() == 0) {
      auto first = world.send(1, chunk_0, phantom(500));
      auto second = world.send(2, chunk_0, phantom(500));
      co_await first;
      co_await second;
    } else {
      co_await world.receive(0, chunk_0, phantom(500));
      EXPECT_DOUBLE_EQ(world.now(), 1e-3 + 500e-6 * world.rank());
    }
  });
  EXPECT_DOUBLE_EQ(run.time, 1e-3 + 1000e-6);
}

TEST(Simulated, ManySendersShareTheReceiversLink) {
  const auto run = run_simulated(5, slow, [](simulated& world) -> task {
    if (world.rank() != 0) {
      co_await world.send(0, chunk_0, phantom(500));
    } else {
      for (int from = 1; from < 5; ++from) {
        co_await world.receive(from, chunk_0, phantom(500));
        EXPECT_DOUBLE_EQ(world.now(), 1e-3 + 500e-6 * from);
      }
    }
  });
  EXPECT_DOUBLE_EQ(run.time, 1e-3 + 2000e-6);
}

/// A message alone takes 4/3 of the time for which its bytes occupy the NIC; the next message is
/// sent meanwhile.
TEST(Simulated, OneMessageGetsItsShareOfALink) {
  constexpr transport::link three_quarters{1e6, 1e-3, 0.75};
  run_simulated(4, three_quarters, [](simulated& world) -> task {
    if (world.rank() == 0) {
      auto first = world.send(1, chunk_0, phantom(300));
      auto second = world.send(2, chunk_0, phantom(300));
      auto third = world.send(3, chunk_0, phantom(300));
      co_await first;
      co_await second;
      co_await third;
      EXPECT_NEAR(world.now(), 1e-3 + 1000e-6, 1e-12);
      co_await world.send(1, chunk_0, phantom(300));
    } else {
      co_await world.receive(0, chunk_0, phantom(300));
      EXPECT_NEAR(world.now(), 1e-3 + 300e-6 * (world.rank() - 1) + 400e-6, 1e-12) << "at once";
    }
    if (world.rank() == 1) {
      co_await world.receive(0, chunk_0, phantom(300));
      EXPECT_NEAR(world.now(), 2e-3 + 1000e-6 + 400e-6, 1e-12) << "one after the other";
    }
  });
}

TEST(Simulated, TheSmallerShareOfTwoLinksCounts) {
  transport::network over(2, {1e6, 1e-3});
  over.isolate(1, {1e6, 1e-3, 0.5});
  for (const int from : {0, 1}) {
    const auto run = run_simulated(over, [from](simulated& world) -> task {
      if (world.rank() == from) {
        co_await world.send(1 - from, chunk_0, phantom(300));
      } else {
        co_await world.receive(from, chunk_0, phantom(300));
      }
    });
    EXPECT_NEAR(run.time, 1e-3 + 600e-6, 1e-12) << "from " << from;
  }
}

/// Sends a message around a ring, `turns` times in all, which is what a collective of that many
/// steps does to a NIC.
task around(simulated& world, std::uint32_t which, int turns, std::size_t bytes) {
  const int p = world.size();
  for (int i = 0; i < turns; ++i) {
    co_await world.exchange((world.rank() + 1) % p, phantom(bytes), (world.rank() + p - 1) % p,
                            phantom(bytes), tag{channel::data, which, 0});
  }
}

/// With u the time for which a message occupies a NIC and s its share, n messages one after another
/// take nu/s. If k rings run at a time and ks is at least 1, no NIC is idle. Before the last
/// message of the last ring begins, kn - 1 others have passed.
TEST(Simulated, RingsContendForWhatOneLeavesOfALink) {
  constexpr int n = 14;
  constexpr double u = 1e-3;
  const auto turned = [](double share, std::uint32_t rings) {
    return run_simulated(8, {1e9, 0, share},
                         [rings](simulated& world) -> task {
                           std::vector<task> running;
                           for (std::uint32_t i = 0; i < rings; ++i) {
                             running.push_back(around(world, i, n, 1'000'000));
                             running.back().start(world.ready_coroutines());
                           }
                           for (task& each : running) {
                             co_await each;
                           }
                         })
        .time;
  };
  for (const double share : {0.75, 0.6, 1.0}) {
    EXPECT_NEAR(turned(share, 1), n * u / share, 1e-9);
    for (const std::uint32_t k : {2U, 3U}) {
      EXPECT_NEAR(turned(share, k), (k * n - 1) * u + u / share, 1e-9) << share << " " << k;
    }
  }
  // Two rings at a time are each slower by 1.5, except for one message in n; one after the other
  // they take 2.
  EXPECT_NEAR(turned(0.75, 2) / turned(0.75, 1), 1.5, 0.5 / n);
}

TEST(Simulated, ALinkIsFullDuplex) {
  const auto run = run_simulated(2, slow, [](simulated& world) -> task {
    co_await world.exchange(1 - world.rank(), phantom(500), 1 - world.rank(), phantom(500),
                            chunk_0);
  });
  EXPECT_DOUBLE_EQ(run.time, 1e-3 + 500e-6);
}

TEST(Simulated, AMessageThatHasNotLeftDoesNotHoldTheReceiver) {
  run_simulated(4, slow, [](simulated& world) -> task {
    if (world.rank() == 0) {  // the message to rank 2 leaves only after 5 ms
      auto blocks = world.send(3, chunk_0, phantom(5000));
      auto late = world.send(2, chunk_0, phantom(500));
      co_await blocks;
      co_await late;
    } else if (world.rank() == 1) {
      co_await send_after(world, 1e-4, 2, 500);
    } else if (world.rank() == 2) {
      co_await world.receive(1, chunk_0, phantom(500));
      EXPECT_DOUBLE_EQ(world.now(), 1e-4 + 1e-3 + 500e-6);
      co_await world.receive(0, chunk_0, phantom(500));
      EXPECT_DOUBLE_EQ(world.now(), 5e-3 + 1e-3 + 500e-6);
    } else {
      co_await world.receive(0, chunk_0, phantom(5000));
    }
  });
}

/// The sums in which an empty message's moments are added would be rounded to less than those of
/// the message before it.
TEST(Simulated, AnEmptyMessageOvertakesNothingOnItsWayToAFasterNic) {
  transport::network over(2, {1e6, 0.1});
  over.isolate(1, {2e6, 0.1});
  run_simulated(over, [](simulated& world) -> task {
    if (world.rank() == 0) {
      co_await world.sleep(0.3);
      auto first = world.send(1, chunk_0, phantom(1));
      auto second = world.send(1, chunk_0, phantom(0));
      co_await first;
      co_await second;
    } else {
      co_await world.receive(0, chunk_0, phantom(1));
      co_await world.receive(0, chunk_0, phantom(0));
    }
  });
}

TEST(Simulated, TheSameInputGivesTheSameEvents) {
  const auto noisy = [](std::vector<int>& log) {
    return run_simulated(7, slow, [&log](simulated& world) -> task {
      for (int round = 0; round < 20; ++round) {
        const int p = world.size();
        co_await world.exchange((world.rank() + round) % p, phantom(100),
                                (world.rank() - round % p + p) % p, phantom(100), chunk_0);
        log.push_back(world.rank());
      }
    });
  };
  std::vector<int> first;
  std::vector<int> second;
  const auto a = noisy(first);
  const auto b = noisy(second);
  EXPECT_EQ(first, second);
  EXPECT_EQ(a.time, b.time);
  EXPECT_EQ(a.events, b.events);
}

TEST(Simulated, NamesWhoWaitsForWhatWhenNothingMoves) {
  EXPECT_EQ(words_of(3,
                     [](simulated& world) -> task {
                       if (world.rank() == 0) {
                         co_await world.send(2, tag{channel::data, 7, 0}, phantom(1));
                       } else if (world.rank() == 1) {
                         co_await world.receive(2, tag{channel::data, 8, 0}, phantom(1));
                       } else {
                         co_await world.receive_any(channel::service);
                       }
                     }),
            "nothing moves: rank 1 waits for chunk 8 from rank 2; rank 2 waits for a message from "
            "any rank; rank 2 has not received chunk 7 from rank 0");
}

TEST(Simulated, ARankThatWaitsForSomethingElseIsNotForgotten) {
  const auto never = [](simulated&) -> task {
    struct for_ever {
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<>) const noexcept {}
      void await_resume() const noexcept {}
    };
    co_await for_ever{};
  };
  EXPECT_EQ(words_of(2, never), "nothing moves");
}

TEST(Simulated, RefusesWhatIsNoLink) {
  const auto idle = [](simulated&) -> task { co_return; };
  EXPECT_THROW(run_simulated(2, {0, 1e-3}, idle), usage_error);
  EXPECT_THROW(run_simulated(2, {1, 0, 0}, idle), usage_error);
  EXPECT_THROW(run_simulated(2, {1, 0, 1.01}, idle), usage_error);
  EXPECT_THROW(run_simulated(2, {1e9, -1}, idle), usage_error);
  EXPECT_THROW(run_simulated(0, slow, idle), usage_error);
}

TEST(Simulated, AThousandRanksInOneThread) {
  const auto run = run_simulated(1000, {1e9, 1e-6}, [](simulated& world) -> task {
    const int p = world.size();
    for (int step = 0; step < 20; ++step) {
      co_await world.exchange((world.rank() + 1) % p, phantom(1000), (world.rank() + p - 1) % p,
                              phantom(1000), chunk_0);
    }
  });
  EXPECT_EQ(run.events, 40000U);
  EXPECT_NEAR(run.time, 20 * 2e-6, 1e-12);
}

TEST(Simulated, AMessageLeavesWhenTheDeviceHasWrittenIt) {
  const transport::device writes_a_byte_a_microsecond{1e6};
  run_simulated(transport::network(2, slow), writes_a_byte_a_microsecond,
                [](simulated& world) -> task {
                  if (world.rank() == 0) {
                    charge(world.queue(), 100);
                    charge(world.queue(), 200);
                    EXPECT_EQ(world.now(), 0) << "the host goes on";
                    co_await world.send(1, chunk_0, phantom(500));
                  } else {
                    co_await world.receive(0, chunk_0, phantom(500));
                    EXPECT_DOUBLE_EQ(world.now(), 300e-6 + 1e-3 + 500e-6);
                    EXPECT_DOUBLE_EQ(world.queue().record(), world.now()) << "the NIC wrote it";
                  }
                });
}

struct add_phantoms {
  template <class Queue>
  void operator()(Queue&, std::byte*, const std::byte*, std::size_t) const {}
};

TEST(Simulated, TheDeviceReadsTwiceAndWritesOnceToAdd) {
  run_simulated(transport::network(2, slow), transport::device{1e6}, [](simulated& world) -> task {
    const int peer = 1 - world.rank();
    co_await world.exchange_fold(peer, phantom(500), peer, phantom(500), chunk_0, add_phantoms{});
    EXPECT_DOUBLE_EQ(world.now(), 1e-3 + 500e-6);
    co_await world.exchange(peer, phantom(500), peer, phantom(500), chunk_0);
    EXPECT_DOUBLE_EQ(world.now(), 1e-3 + 500e-6 + 1500e-6 + 1e-3 + 500e-6);
  });
}

/// Rank 0 has thrown already, but only because of rank 1.
TEST(Simulated, ThrowsWhatBeganIt) {
  const auto run = [] {
    run_simulated(2, slow, [](simulated& world) -> task {
      if (world.rank() == 1) {
        world.abort("rank 1 is about to fail");
        std::string words;
        co_await TransportLaw<simulated_world>::words_of(send_after(world, 1, 0, 1), words);
        EXPECT_EQ(words, "rank 1 is about to fail");
        throw std::runtime_error("out of data");
      }
      co_await world.receive(1, chunk_0, phantom(1));
    });
  };
  try {
    run();
    FAIL() << "nothing was thrown";
  } catch (const std::exception& failed) {
    EXPECT_STREQ(failed.what(), "out of data");
  }
}

}  // namespace tutti::test
