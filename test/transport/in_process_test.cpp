#include "tutti/transport/in_process.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <gtest/gtest.h>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/failing_queue.hpp"
#include "support/no_room_for_threads.hpp"
#include "support/transports.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/transport/any_transport.hpp"

namespace tutti::test {
namespace {

using transport::in_process;
using transport::run_ranks;

constexpr tag chunk_0{channel::data, 0, 0};
constexpr tag chunk_1{channel::data, 1, 0};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

task keep_words(task body, std::string& words) {
  try {
    co_await body;
  } catch (const std::exception& failure) {
    words = failure.what();
  }
}

}  // namespace

/// Ranks are threads, whose transport may have its type erased.
template <class World>
class Rendezvous : public testing::Test {};
using worlds = testing::Types<in_process, transport::any_transport>;
TYPED_TEST_SUITE(Rendezvous, worlds);

template <class World, class Body>
void run_on(int ranks, Body body) {
  run_ranks(ranks, [&](in_process& inner) {
    if constexpr (std::same_as<World, in_process>) {
      body(inner);
    } else {
      World world(inner);
      body(world);
    }
  });
}

TYPED_TEST(Rendezvous, ShowsEverybodysBytesToEverybody) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    run_on<TypeParam>(ranks, [](TypeParam& world) {
      const auto rounds = [](TypeParam& on) -> task {
        for (int round = 0; round < 300; ++round) {
          const std::array<int, 14> mine{on.rank(), round};  // 56 bytes
          const auto view =
              co_await on.rendezvous(round % 3 == 0 ? chunk_0 : chunk_1, bytes_of(mine));
          for (int rank = 0; rank < on.size(); ++rank) {
            const auto shown = view.template shown<std::array<int, 14>>(rank);
            EXPECT_EQ(shown[0], rank);
            EXPECT_EQ(shown[1], round);
          }
        }
      };
      drive(world, rounds(world));
      EXPECT_EQ(world.in_flight(), 0U);
    });
  }
}

TYPED_TEST(Rendezvous, WaitsForTheLastAndLetsOthersWorkMeanwhile) {
  run_on<TypeParam>(2, [](TypeParam& world) {
    const auto attend = [](TypeParam& on) -> task {
      if (on.rank() == 1) {
        int heard = 0;
        co_await on.receive(0, chunk_1, std::as_writable_bytes(std::span(&heard, 1)));
        EXPECT_EQ(heard, 5);
      }
      const auto view = co_await on.rendezvous(chunk_0, bytes_of(on.rank()));
      EXPECT_EQ(view.template shown<int>(1), 1);
    };
    const auto works = [](TypeParam& on) -> task {
      int naps = 0;
      for (; naps < 5; ++naps) {
        co_await on.sleep(0.0002);
      }
      if (on.rank() == 0) {
        co_await on.send(1, chunk_1, bytes_of(naps));  // for which rank 1 waits
      }
    };
    const auto both = [&](TypeParam& on) -> task {
      task attending = attend(on);
      task work = works(on);
      attending.start(on.ready_coroutines());
      work.start(on.ready_coroutines());
      co_await attending;
      co_await work;
    };
    drive(world, both(world));
  });
}

// A trainer that starts a rendezvous continues with its backward pass; only a rank that waits polls
// for a while.
TYPED_TEST(Rendezvous, DoesNotHoldUpWhoHasSomethingElseToDo) {
  constexpr int rendezvous = 50;
  std::atomic<bool> all_begun{false};
  run_on<TypeParam>(2, [&](TypeParam& world) {
    const auto attend = [](TypeParam& on, int chunk) -> task {
      co_await on.rendezvous(tag{channel::data, static_cast<std::uint32_t>(chunk), 0},
                             bytes_of(on.rank()));
    };
    while (world.rank() == 1 && !all_begun) {
      std::this_thread::yield();
    }
    std::vector<task> begun;
    seconds shortest = 1;
    for (int i = 0; i < rendezvous; ++i) {
      const seconds before = world.now();
      begun.push_back(attend(world, i));
      begun.back().start(world.ready_coroutines());
      world.poll();
      world.ready_coroutines().drain();
      shortest = std::min(shortest, world.now() - before);
    }
    all_begun = true;
    if (world.rank() == 0) {
      EXPECT_LT(shortest, 20e-6);
    }
    for (task& each : begun) {
      while (!each.done()) {
        world.poll();
        world.ready_coroutines().drain();
      }
    }
  });
}

TYPED_TEST(Rendezvous, EndsWhenARankFails) {
  std::atomic<int> ended{0};
  EXPECT_THROW(run_on<TypeParam>(3,
                                 [&](TypeParam& world) {
                                   if (world.rank() == 2) {
                                     throw usage_error("out of tune");
                                   }
                                   const auto attend = [](TypeParam& on) -> task {
                                     co_await on.rendezvous(chunk_0, bytes_of(on.rank()));
                                   };
                                   std::string words;
                                   drive(world, keep_words(attend(world), words));
                                   EXPECT_EQ(words, "rank 2 failed: out of tune");
                                   std::string again;
                                   drive(world, keep_words(attend(world), again));
                                   EXPECT_EQ(again, words);
                                   ++ended;
                                 }),
               usage_error);
  EXPECT_EQ(ended, 2);
}

TYPED_TEST(Rendezvous, WhatARankHasShownStaysWhileAPeerLooksAtIt) {
  std::atomic<bool> looks{false};
  std::atomic<bool> looked{false};
  run_on<TypeParam>(2, [&](TypeParam& world) {
    const auto attend = [&](TypeParam& on) -> task {
      const auto view = co_await on.rendezvous(chunk_0, bytes_of(on.rank()));
      if (on.rank() == 0) {
        looks = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        EXPECT_EQ(view.template shown<int>(1), 1);
        looked = true;
      }
    };
    drive(world, attend(world));
    if (world.rank() == 1) {
      while (!looks) {
        std::this_thread::yield();
      }
      world.fail(std::make_exception_ptr(std::runtime_error("out of room")));
      while (world.in_flight() != 0) {
        world.poll();
      }
      EXPECT_TRUE(looked) << "rank 1 may free its memory, and rank 0 is reading it";
    }
  });
}

TYPED_TEST(Rendezvous, NobodyWaitsForARankThatHasFailed) {
  for (const bool shows_first : {true, false}) {
    std::atomic<bool> failed{false};
    run_on<TypeParam>(2, [&](TypeParam& world) {
      const auto attend = [](TypeParam& on) -> task {
        co_await on.rendezvous(chunk_0, bytes_of(on.rank()));
      };
      std::string words;
      task attending = keep_words(attend(world), words);
      if (world.rank() == 1) {
        const auto why = std::make_exception_ptr(std::runtime_error("out of room"));
        if (!shows_first) {
          world.fail(why);
        }
        attending.start(world.ready_coroutines());
        world.fail(why);
        failed = true;
        while (!attending.done()) {
          world.poll();
          world.ready_coroutines().drain();
        }
        EXPECT_EQ(words, "out of room");
      } else {
        while (!failed) {
          std::this_thread::yield();
        }
        drive(world, std::move(attending));
        EXPECT_EQ(words, "rank 1 failed: out of room") << shows_first;
      }
    });
  }
}

TYPED_TEST(Rendezvous, IsOnAChunkThatExists) {
  run_on<TypeParam>(1, [](TypeParam& world) {
    EXPECT_THROW(world.rendezvous(tag{channel::data, 1U << 30, 0}, {}), usage_error);
  });
}

TEST(Fail, WakesReceivesWithItsReasonAndRefusesForeignMessagesWithItsRank) {
  run_ranks(2, [](in_process& world) {
    std::vector<std::byte> bytes(100);
    std::string words;
    if (world.rank() == 0) {
      const auto waits = [](in_process& on, std::span<std::byte> into) -> task {
        auto other = on.receive(1, chunk_1, into.first(10));
        co_await on.receive(1, chunk_1, into.last(10));
        co_await other;
      };
      int polls = 0;
      drive(world, keep_words(waits(world, bytes), words), [&] {
        if (++polls == 100) {
          world.fail(std::make_exception_ptr(std::runtime_error("out of room")));
        }
      });
    } else {
      const auto sends = [](in_process& on, std::span<std::byte> out) -> task {
        co_await on.send(0, chunk_0, out);  // no rank receives this chunk
      };
      drive(world, keep_words(sends(world, bytes), words));
    }
    EXPECT_EQ(words, world.rank() == 0 ? "out of room" : "rank 0 failed: out of room");
    EXPECT_EQ(world.in_flight(), 0U);
  });
}

TEST(Fail, NobodyUnwindsBeforeHisOwnSendsAreHome) {
  run_ranks(2, [](in_process& world) {
    std::string words;
    const auto part = [](in_process& on) -> task {
      std::vector<std::byte> mine(1000, std::byte{7});
      if (on.rank() == 0) {
        auto sent = on.send(1, chunk_0, mine);
        auto received = on.receive(1, chunk_1, mine);
        on.abort("stop");
        co_await received;  // throws while `sent` is in the other's mailbox
        co_await sent;
      } else {
        co_await on.sleep(0.02);
        const auto lent = co_await on.receive_loan(0, chunk_0, 1000);
      }
    };
    drive(world, keep_words(part(world), words));
    EXPECT_EQ(words, "stop");
    EXPECT_EQ(world.in_flight(), 0U);
  });
}

using on_failing_queues = transport::basic_in_process<failing_queue, transport::by_mailbox>;

/// Expects both ranks of `body(world)`, in which rank 1's queue fails, to end with the queue's
/// error.
template <class Body>
void expect_both_to_hear_of_the_queue(Body body) {
  run_ranks<on_failing_queues>(2, [&](on_failing_queues& world) {
    std::string words;
    drive(world, keep_words(body(world), words));
    EXPECT_EQ(words,
              world.rank() == 1 ? "the device is lost" : "rank 1 failed: the device is lost");
    EXPECT_EQ(world.in_flight(), 0U);
  });
}

TEST(Fail, AQueueThatRefusesWorkEndsEveryRankWithItsWords) {
  std::array<std::byte, 100> bytes{};
  // While a message is sent.
  expect_both_to_hear_of_the_queue([&](on_failing_queues& on) -> task {
    if (on.rank() == 1) {
      on.queue().fail();
      co_await on.send(0, chunk_0, bytes);
    } else {
      std::array<std::byte, 100> in{};
      co_await on.receive(1, chunk_0, in);
    }
  });
  // In one half of an exchange.
  expect_both_to_hear_of_the_queue([&](on_failing_queues& on) -> task {
    std::array<std::byte, 100> in{};
    if (on.rank() == 1) {
      on.queue().fail();
    }
    co_await on.exchange(1 - on.rank(), bytes, 1 - on.rank(), in, chunk_0);
  });
  // While a message arrives, before or after its receive.
  for (const seconds late : {0.0, 0.01}) {
    expect_both_to_hear_of_the_queue([&](on_failing_queues& on) -> task {
      if (on.rank() == 1) {
        std::array<std::byte, 100> in{};
        on.queue().fail();
        co_await on.sleep(late);
        co_await on.receive(0, chunk_0, in);
      } else {
        co_await on.sleep(0.01 - late);
        co_await on.send(1, chunk_0, bytes);
      }
    });
  }
  // While a message is lent, and while it is given back.
  for (const bool lent_already : {false, true}) {
    expect_both_to_hear_of_the_queue([&](on_failing_queues& on) -> task {
      if (on.rank() == 1) {
        if (!lent_already) {
          on.queue().fail();
        }
        {
          const auto lent = co_await on.receive_loan(0, chunk_0, bytes.size());
          on.queue().fail();
        }
        co_await on.sleep(1);
      } else {
        co_await on.send(1, chunk_0, bytes);
        co_await on.sleep(1);
      }
    });
  }
  // While a message that was read is given back to its sender.
  expect_both_to_hear_of_the_queue([&](on_failing_queues& on) -> task {
    if (on.rank() == 1) {
      auto sent = on.send(0, chunk_0, bytes);
      on.queue().fail();
      co_await sent;
    } else {
      std::array<std::byte, 100> in{};
      co_await on.sleep(0.01);
      co_await on.receive(1, chunk_0, in);
      co_await on.sleep(1);
    }
  });
}

/// Rank 0 sends after so many seconds, and rank 1 leaves after so many. Returns the error.
std::string left_unread(seconds sends_after, seconds leaves_after, channel on_channel) {
  try {
    run_ranks(2, [=](in_process& world) {
      const auto sends = [](in_process& on, seconds after, tag where) -> task {
        const int value = 1;
        co_await on.sleep(after);
        co_await on.send(1, where, bytes_of(value));
      };
      const auto stays = [](in_process& on, seconds for_so_long) -> task {
        co_await on.sleep(for_so_long);
      };
      drive(world, world.rank() == 0 ? sends(world, sends_after, {on_channel, 42, 0})
                                     : stays(world, leaves_after));
    });
  } catch (const communication_error& failure) {
    return failure.what();
  }
  return "";
}

TEST(RunRanks, AMessageToARankThatHasLeftNamesBoth) {
  const std::string both = "rank 1 has left before it received chunk 42 of rank 0";
  EXPECT_EQ(left_unread(0.01, 0, channel::data), both);
  EXPECT_EQ(left_unread(0, 0.01, channel::data), both);
  EXPECT_EQ(left_unread(0, 0, channel::host),
            "rank 1 has left, and rank 0 waits for it in a call that all ranks make, such as "
            "make_engine, average() or replan(). Fix: make it on every rank");
}

TEST(RunRanks, NeedsARank) {
  EXPECT_THROW(run_ranks(0, [](in_process&) {}), usage_error);
}

/// Another thread takes the room for threads while ranks are being started, earlier or later. None
/// of the ranks that got a thread begins, because they would wait for each other.
TEST(RunRanks, NoneBeginsWhereOneGetsNoThread) {
  constexpr int ranks = 256;
  std::string said;
  for (int later = 0; said.empty() || said.rfind("rank 0 ", 0) == 0; ++later) {
    std::atomic<bool> starts{false};
    std::atomic<bool> over{false};
    std::thread takes_the_room([&] {
      while (!starts) {
      }
      for (int i = 0; i < later % 500; ++i) {
        std::this_thread::yield();
      }
      const no_room_for_threads here;
      while (!over) {
        std::this_thread::yield();
      }
    });
    std::atomic<int> bodies{0};
    starts = true;
    said.clear();
    try {
      run_ranks(ranks, [&](in_process&) {
        bodies += 1;
        while (bodies != ranks) {
          std::this_thread::yield();
        }
      });
    } catch (const usage_error& refused) {
      said = refused.what();
    }
    over = true;
    takes_the_room.join();
    EXPECT_EQ(bodies, said.empty() ? ranks : 0);
  }
  EXPECT_EQ(said.substr(said.find(" of ")),
            " of 256 could not start a thread: Resource temporarily unavailable. Fix: use fewer "
            "ranks, or allow a process more threads (ulimit -u, ulimit -s)");
}

TEST(InProcess, AMillionMessagesToOneselfCompleteAtOnceOnAFlatStack) {
  run_ranks(1, [](in_process& world) {
    const auto talks = [](in_process& on) -> task {
      std::uint64_t in = 0;
      for (std::uint64_t out = 0; out < 1'000'000; ++out) {
        co_await on.exchange(0, bytes_of(out), 0, std::as_writable_bytes(std::span(&in, 1)),
                             chunk_0);
        EXPECT_EQ(in, out);
      }
    };
    drive(world, talks(world));
    EXPECT_EQ(world.counted().messages_sent, 1'000'000U);
  });
}

}  // namespace tutti::test
