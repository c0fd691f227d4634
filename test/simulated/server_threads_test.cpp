// The threads of a parameter server on the virtual clock: which thread does what and when, and that
// sums do not depend on it.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/parameter_server/engine_threads.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/monitor/timeline.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

using architecture::engine_order;
using architecture::engine_threads;

/// Returns the numbers of the pieces of work in the order in which one thread takes them. A letter
/// pushes work for that chunk, a capital letter marks the chunk as complete, and a dot takes.
std::vector<std::uint64_t> taken(engine_order by, const std::string& events) {
  engine_threads engine(1, 26, by);
  std::vector<std::uint64_t> numbers;
  for (const char each : events) {
    if (each == '.') {
      numbers.push_back(engine.pop(0).number);
    } else if (std::islower(each) != 0) {
      engine.push(0, static_cast<std::uint32_t>(each - 'a'), 1);
    } else {
      engine.complete(static_cast<std::uint32_t>(each - 'A'));
    }
  }
  return numbers;
}

TEST(ServerThreads, WhatWaitsIsTakenByPushesReceived) {
  // Chunk c has the most pushes, and a and b have equally many; completing c does not reduce its
  // count.
  EXPECT_EQ(taken(engine_order::received, "abcacbc......."),
            (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(taken(engine_order::most_pushed, "abcacbc......."),
            (std::vector<std::uint64_t>{2, 4, 6, 0, 1, 3, 5}));
  EXPECT_EQ(taken(engine_order::most_pushed, "abcacbcC......."),
            (std::vector<std::uint64_t>{2, 4, 6, 0, 1, 3, 5}));
  EXPECT_EQ(taken(engine_order::most_pushed, "ab.bb.a.b.."),
            (std::vector<std::uint64_t>{0, 1, 2, 3, 5}));
}

/// Made by running BytePS's own server/queue.h, commit f5df52f, with a message type of an id and a
/// key and with scheduling enabled: pushes of random keys, as many as four workers make, and pops.
TEST(ServerThreads, AsTheQueueOfBytePSDoes) {
  const std::vector<std::pair<std::string, std::vector<std::uint64_t>>> known{
      {"babc.aaaA.bbB.ab.ca.ccCbcaaAaac.ccCaaA.a.a.aaA.cabbBaaaAbb.............................",
       {0,  1,  3,  2,  4,  16, 5,  6,  11, 13, 23, 20, 31, 14, 28, 34, 35, 36, 21, 24,
        25, 26, 22, 27, 29, 19, 18, 17, 12, 30, 7,  9,  8,  10, 15, 32, 33, 37, 38}},
      {"abcc....bd.dccC..bbB....cddD...b.adaaAcd...accCccddD..........",
       {0,  1,  2,  3,  5,  4,  7,  8,  9,  10, 6,  11, 12, 13,
        14, 16, 15, 17, 18, 21, 20, 26, 27, 19, 22, 23, 24, 25}},
      {"aba...baaA..abbBaaaAb.aaaaA..baabbBaaA..b.b.aabbB.aaAaaaaA.......................",
       {0,  1,  2,  3,  4,  5,  6,  9,  18, 7,  8,  10, 11, 12, 15, 17, 13, 14,
        16, 19, 20, 25, 26, 21, 24, 27, 28, 29, 22, 23, 30, 31, 32, 33, 34, 35}},
      {"bba.bbBac.bcaaAb.bbBb.aaaaAccCbaa.cc.ccCbbB..b..bcaaAbbBcccC..............................",
       {2,  0,  1,  3,  4,  5,  6,  7,  8,  11, 27, 9,  10, 19, 20, 21, 22, 23, 24, 12,
        13, 14, 25, 26, 28, 29, 17, 18, 30, 15, 16, 31, 32, 33, 34, 35, 36, 37, 38, 39}},
      {"dd..cbac.ccCddD.bddbbB.ddD.c.c.ccC.ccabaaA.ccC.d.c.bd....................",
       {0,  1,  2,  3,  5,  6,  7,  9,  11, 12, 4,  8,  26, 13, 19, 21, 28,
        10, 23, 25, 18, 22, 27, 14, 15, 17, 20, 30, 16, 24, 29, 31, 32}},
      {"a.bab.aaAbbB..aba...aaAbabbBba.bbbBbaaAbbbBba.babbB.aaA..........................",
       {0,  1,  2,  3,  4,  6,  9,  5,  7,  8,  10, 11, 13, 12, 15, 14, 16, 17,
        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35}},
  };
  for (const auto& [events, numbers] : known) {
    EXPECT_EQ(taken(engine_order::byteps, events), numbers) << events;
    EXPECT_NE(taken(engine_order::most_pushed, events), numbers) << events;
  }
}

TEST(ServerThreads, AChunkIsTheThreadsWithTheFewestBytes) {
  engine_threads engine(3, 7, engine_order::received);
  const std::vector<std::size_t> bytes{5, 3, 3, 1, 1, 1, 9};
  std::vector<std::size_t> threads;
  for (std::uint32_t chunk = 0; chunk < bytes.size(); ++chunk) {
    threads.push_back(engine.thread_of(chunk, bytes[chunk]));
  }
  EXPECT_EQ(threads, (std::vector<std::size_t>{0, 1, 2, 1, 2, 1, 2}));
  for (std::uint32_t chunk = 0; chunk < bytes.size(); ++chunk) {
    EXPECT_EQ(engine.thread_of(chunk, 1), threads[chunk]) << "it stays";
  }
}

// ---- on the clock

constexpr int workers = 3;
constexpr double device_rate = 5e8;  // bytes per second that its kernels move
const std::vector<std::size_t> sizes{30'000, 20'000, 40'000, 10'000, 25'000, 15'000};

/// Returns when each worker hands in each tensor. The times all differ, and each worker has an
/// order of its own.
seconds handed_in(int worker, std::size_t tensor) {
  constexpr std::array<std::array<int, 6>, workers> place{
      {{0, 1, 2, 3, 4, 5}, {3, 2, 5, 1, 4, 0}, {1, 3, 0, 5, 2, 4}}};
  return 1e-3 + 6e-4 * place[static_cast<std::size_t>(worker)][tensor] + 1.3e-5 * worker;
}

/// Returns when each chunk is answered: every thread takes the work that its rule selects from what
/// has arrived.
std::vector<seconds> answered(std::size_t threads, engine_order by) {
  struct work {
    seconds came;
    std::size_t chunk;
    seconds takes;
    bool is_last;
    bool is_done = false;
  };
  std::vector<std::pair<seconds, std::size_t>> pushes;
  for (int worker = 0; worker < workers; ++worker) {
    for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
      pushes.emplace_back(handed_in(worker, tensor), tensor);
    }
  }
  std::ranges::sort(pushes);
  std::vector<std::vector<work>> all(threads);
  std::vector<double> load(threads);
  std::map<std::size_t, std::size_t> thread_of;
  std::map<std::size_t, int> came_of;
  for (const auto& [when, chunk] : pushes) {
    if (!thread_of.contains(chunk)) {
      const auto least = static_cast<std::size_t>(std::ranges::min_element(load) - load.begin());
      load[least] += static_cast<double>(sizes[chunk]);
      thread_of[chunk] = least;
    }
    const double element = static_cast<double>(sizes[chunk]) / device_rate;
    const bool first = ++came_of[chunk] == 1;
    auto& mine = all[thread_of[chunk]];
    mine.push_back({when, chunk, (first ? 8 : 12) * element, false});
    if (came_of[chunk] == workers) {
      mine.push_back({when, chunk, 8 * element, true});  // the mean
    }
  }
  std::vector<seconds> ends(sizes.size());
  for (auto& mine : all) {
    seconds now = 0;
    for (std::size_t done = 0; done < mine.size(); ++done) {
      const auto waiting = [&](const work& each) { return !each.is_done; };
      now = std::max(now, std::ranges::find_if(mine, waiting)->came);
      const auto count = [&](std::size_t chunk) {
        return std::ranges::count_if(
            mine, [&](const work& each) { return each.chunk == chunk && each.came <= now; });
      };
      work* next = nullptr;
      for (work& each : mine) {
        if (!each.is_done && each.came <= now &&
            (next == nullptr ||
             (by == engine_order::most_pushed && count(each.chunk) > count(next->chunk)))) {
          next = &each;
        }
      }
      now += next->takes;
      next->is_done = true;
      if (next->is_last) {
        ends[next->chunk] = now;
      }
    }
  }
  return ends;
}

using strategy = compose<architecture::parameter_server<>>;

struct seen {
  std::vector<seconds> arrived = std::vector<seconds>(sizes.size());
  std::vector<float> parameters{};
};
task rank_of(transport::simulated& world, engine_options<strategy> set, seen& made) {
  std::vector<arena::declaration> forward;
  for (const std::size_t each : sizes) {
    forward.push_back({std::to_string(forward.size()), each});
  }
  arena memory = model_of(world.rank(), forward);
  auto engine =
      make_engine<strategy>(world, memory.tensors(), optimizer_of(), set, monitor::timeline());
  co_await engine.started();
  if (!engine.serves()) {
    const seconds begin = 1.0;  // later than everything before, so that all begin together
    co_await world.sleep(begin - world.now());
    backward(memory, engine.worker(), 0);
    std::vector<std::pair<seconds, std::size_t>> order;
    for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
      order.emplace_back(handed_in(engine.worker(), tensor), tensor);
    }
    std::ranges::sort(order);
    for (const auto& [when, tensor] : order) {
      co_await world.sleep(begin + when - world.now());
      engine.ready(tensor_id(tensor));
    }
    for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
      co_await engine.arrival(tensor_id(tensor));
    }
    if (engine.worker() == 0) {
      for (const auto& each : engine.observed().moments()) {
        if (each.what == event::arrived) {
          made.arrived[each.which] = each.when - begin;
        }
      }
      made.parameters.assign(memory.parameters().begin(), memory.parameters().end());
    }
  }
  co_await engine.close();
}
seen run(int threads, engine_order by) {
  engine_options<strategy> set;
  set.architecture.engine_threads = threads;
  set.architecture.engine_order = by;
  seen made;
  const transport::link nic{1e15, 1e-9};
  transport::run_simulated(transport::network(workers + 1, nic), transport::device{device_rate},
                           [&](transport::simulated& world) { return rank_of(world, set, made); });
  return made;
}

TEST(ServerThreads, TakeTheTimeOfWhatTheyDoInTheirOrder) {
  for (const std::size_t threads : {1U, 2U, 4U}) {
    for (const engine_order by : {engine_order::received, engine_order::most_pushed}) {
      const auto expected = answered(threads, by);
      const auto got = run(static_cast<int>(threads), by).arrived;
      for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
        EXPECT_NEAR(got[tensor], expected[tensor], 1e-6)
            << tensor << " of " << threads << " threads, order " << static_cast<int>(by);
      }
    }
  }
  EXPECT_NE(answered(1, engine_order::received), answered(1, engine_order::most_pushed));
  EXPECT_NE(answered(2, engine_order::received), answered(2, engine_order::most_pushed));
}

TEST(ServerThreads, SumsAreTheSameWhoeverAdds) {
  const auto plain = run(0, engine_order::received).parameters;
  for (const int threads : {1, 4}) {
    for (const engine_order by :
         {engine_order::received, engine_order::most_pushed, engine_order::byteps}) {
      EXPECT_EQ(run(threads, by).parameters, plain);
    }
  }
  EXPECT_THROW(run(-1, engine_order::received), usage_error);
}

}  // namespace
}  // namespace tutti::test
