// When a push takes effect and when its worker may continue: the consistency machines alone, in
// random histories, compared with plain loops.
#include "tutti/architecture/parameter_server/consistency.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "tutti/base/error.hpp"

namespace tutti::test {
namespace {

/// Lets workers push, wait until `may_read`, and push again, in a random order. Each history draws
/// a probability for each worker, so that some are slow.
template <class Machine, class Pushed, class LetGo>
void history(Machine& machine, int workers, std::mt19937& random, int events, Pushed pushed,
             LetGo let_go) {
  std::vector<double> odds(static_cast<std::size_t>(workers));
  std::uniform_real_distribution<double> any(0.05, 1);
  std::ranges::generate(odds, [&] { return any(random) * any(random); });
  std::vector<char> waits(odds.size());
  for (int i = 0; i < events; ++i) {
    std::vector<double> free = odds;
    for (std::size_t worker = 0; worker < free.size(); ++worker) {
      free[worker] *= waits[worker] != 0 ? 0 : 1;
    }
    ASSERT_GT(*std::ranges::max_element(free), 0) << "all workers wait";
    const int worker = std::discrete_distribution<int>(free.begin(), free.end())(random);
    pushed(worker, machine.push(worker));
    waits[static_cast<std::size_t>(worker)] = 1;
    for (int each = 0; each < workers; ++each) {
      const bool waited = waits[static_cast<std::size_t>(each)] != 0;
      if (waited && machine.may_read(each)) {
        waits[static_cast<std::size_t>(each)] = 0;
        machine.read_by(each);
        let_go(each);
      } else if (waited) {
        let_go(-1 - each);
      }
    }
  }
}

TEST(BoundedStaleness, IsNeverPassedInTenThousandHistories) {
  std::mt19937 random(1);
  for (int number = 0; number < 10'000; ++number) {
    const int workers = 1 + number % 5;
    const int bound = number / 5 % 5;
    consistency::bounded_staleness::machine machine(workers, {.staleness = bound}, 0);
    std::vector<int> pushes(static_cast<std::size_t>(workers));
    std::vector<std::vector<int>> log;  // for each update, who made it
    history(
        machine, workers, random, 60,
        [&](int worker, bool takes_effect) {
          EXPECT_TRUE(takes_effect);
          ++pushes[static_cast<std::size_t>(worker)];
          machine.update();
        },
        [&](int worker) {
          const bool goes = worker >= 0;
          const int who = goes ? worker : -1 - worker;
          const int ahead = pushes[static_cast<std::size_t>(who)] - std::ranges::min(pushes);
          ASSERT_EQ(goes, ahead <= bound) << number << ": " << ahead << " ahead";
        });
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

TEST(BoundedStaleness, OfNothingIsInStep) {
  consistency::bounded_staleness::machine machine(2, {.staleness = 0}, 7);
  machine.push(0);
  EXPECT_FALSE(machine.may_read(0));
  machine.push(1);
  EXPECT_TRUE(machine.may_read(0));
  EXPECT_TRUE(machine.may_read(1));
}

TEST(BoundedStaleness, IsNotAboutWorkersThatHaveLeft) {
  consistency::bounded_staleness::machine machine(3, {.staleness = 1}, 0);
  for (int i = 0; i < 2; ++i) {
    machine.push(0);
    machine.push(1);
  }
  EXPECT_FALSE(machine.may_read(0));
  machine.leave(2);
  EXPECT_TRUE(machine.may_read(0));
  machine.push(0);
  machine.push(0);
  EXPECT_FALSE(machine.may_read(0));
  machine.leave(1);
  EXPECT_TRUE(machine.may_read(0));
}

/// Staleness is the number of updates made since a worker has read, including that of its own push
/// once it has taken effect.
TEST(Asynchronous, StalenessIsOfWhatOthersHaveMade) {
  consistency::asynchronous::machine machine(2, {}, 0);
  const auto push = [&machine](int worker) {
    machine.push(worker);
    const std::uint64_t its = machine.staleness(worker);
    machine.update();
    machine.read_by(worker);
    return its;
  };
  EXPECT_EQ(push(0), 0U);
  EXPECT_EQ(push(0), 0U);
  EXPECT_EQ(push(1), 2U);
  EXPECT_EQ(push(1), 0U);
  EXPECT_EQ(push(0), 2U);
}

/// TensorFlow's accumulator and tokens as queues. A gradient is dropped if the token under which
/// its worker computed it is less than the step. Each step's number is put into the queues once for
/// each token, in turn over the workers.
struct accumulator {
  accumulator(int all, int needed)
      : workers(static_cast<std::size_t>(all)),
        aggregated(static_cast<std::size_t>(needed)),
        hands(workers),
        queues(workers) {
    if (aggregated > workers) {
      deal(aggregated);
    }
  }
  void deal(std::size_t tokens) {
    for (std::size_t i = 0; i < tokens; ++i) {
      queues[next++ % workers].push_back(step);
      ++dealt;
    }
  }
  bool push(std::size_t worker) {
    const bool fresh = hands[worker] >= step;
    dropped += fresh ? 0 : 1;
    gathered += fresh ? 1 : 0;
    return fresh;
  }
  void take() {
    gathered = 0;
    ++step;
    deal(std::max(aggregated, workers));
  }
  bool take_token(std::size_t worker) {
    if (queues[worker].empty()) {
      return false;
    }
    hands[worker] = queues[worker].front();
    queues[worker].pop_front();
    return true;
  }

  std::size_t workers;
  std::size_t aggregated;
  std::size_t next{};
  std::uint64_t step{};
  std::size_t gathered{};
  std::size_t dropped{};
  std::size_t dealt{};
  std::vector<std::uint64_t> hands;
  std::vector<std::deque<std::uint64_t>> queues;
};

TEST(BackupWorkers, CountAsQueuesOfTokensDo) {
  std::mt19937 random(2);
  std::size_t dropped = 0;
  for (int number = 0; number < 10'000; ++number) {
    const int workers = 1 + number % 5;
    const int needed = 1 + number / 5 % 7;
    consistency::backup_workers::machine machine(workers, {.backups = workers - needed}, 0);
    accumulator plain(workers, needed);
    ASSERT_EQ(machine.aggregated(), plain.aggregated);
    ASSERT_EQ(machine.tokens(), static_cast<std::size_t>(std::max(workers, needed)));
    const std::size_t initial = plain.dealt;
    history(
        machine, workers, random, 80,
        [&](int worker, bool takes_effect) {
          ASSERT_EQ(takes_effect, plain.push(static_cast<std::size_t>(worker)));
          ASSERT_EQ(machine.gathered(), plain.gathered);
          ASSERT_EQ(machine.is_complete(), plain.gathered == plain.aggregated);
          if (machine.is_complete()) {
            machine.update();
            plain.take();
          }
          ASSERT_EQ(machine.updates(), plain.step);
        },
        [&](int worker) {
          const bool goes = worker >= 0;
          const auto who = static_cast<std::size_t>(goes ? worker : -1 - worker);
          ASSERT_EQ(goes, plain.take_token(who)) << number;
          if (goes) {
            const auto token = plain.hands[who];
            ASSERT_LE(token, machine.updates());
          }
        });
    if (testing::Test::HasFatalFailure()) {
      return;
    }
    ASSERT_EQ(plain.dealt - initial, plain.step * machine.tokens());
    dropped += plain.dropped;
  }
  EXPECT_GT(dropped, 10'000U);
}

/// As in a checkpoint, all workers have taken equally many steps, and nothing of a step is left
/// over.
TEST(BackupWorkers, GoOnFromAStep) {
  for (const int workers : {1, 2, 3, 5}) {
    for (int backups = 0; backups < workers; ++backups) {
      consistency::backup_workers::machine machine(workers, {.backups = backups}, 9);
      EXPECT_EQ(machine.updates(), 9U);
      for (int worker = 0; worker < workers; ++worker) {
        EXPECT_EQ(machine.push(worker), worker < workers - backups);
        if (machine.is_complete()) {
          machine.update();
        }
      }
      EXPECT_EQ(machine.updates(), 10U);
    }
  }
}

/// Where a step needs more gradients than there are workers, one may have begun. Workers give a
/// gradient each, in turn, and may all go on.
TEST(BackupWorkers, GoOnFromTheMiddleOfAStep) {
  for (const int workers : {1, 2, 3, 5}) {
    for (const int times : {2, 3}) {
      const consistency::backup_workers::options set{.backups = workers - times * workers};
      consistency::backup_workers::machine whole(workers, set, 0);
      for (std::uint64_t steps = 1; steps < 20; ++steps) {
        for (int worker = 0; worker < workers; ++worker) {
          whole.push(worker);
          if (whole.is_complete()) {
            whole.update();
          }
        }
        const consistency::backup_workers::machine resumed(workers, set, steps);
        ASSERT_EQ(resumed.updates(), whole.updates()) << workers << " workers, " << steps;
        ASSERT_EQ(resumed.gathered(), whole.gathered()) << workers << " workers, " << steps;
        for (int worker = 0; worker < workers; ++worker) {
          ASSERT_TRUE(whole.may_read(worker)) << workers << " workers, " << steps;
          ASSERT_TRUE(resumed.may_read(worker)) << workers << " workers, " << steps;
        }
      }
    }
  }
}

TEST(BackupWorkers, AStepWaitsForNoMoreThanThereAre) {
  consistency::backup_workers::machine machine(4, {.backups = 1}, 0);
  machine.push(0);
  machine.push(1);
  EXPECT_FALSE(machine.is_complete());
  machine.leave(2);
  EXPECT_FALSE(machine.is_complete());
  machine.leave(3);
  EXPECT_TRUE(machine.is_complete());
  machine.update();
  EXPECT_TRUE(machine.may_read(0));
  machine.push(0);
  machine.leave(1);
  EXPECT_TRUE(machine.is_complete());
}

template <class Consistency>
std::string refused(typename Consistency::options set, int workers) {
  try {
    Consistency::expect(set, workers);
  } catch (const usage_error& why) {
    return why.what();
  }
  return "";
}

TEST(Consistency, RefusesABoundThatCannotBeKept) {
  using namespace consistency;
  EXPECT_EQ(refused<bounded_staleness>({.staleness = 0}, 1), "");
  EXPECT_EQ(refused<bounded_staleness>({.staleness = -1}, 4),
            "architecture.staleness of -1 is out of range: no worker can be behind itself. Fix: 0, "
            "which is synchronous, or more");
  EXPECT_EQ(refused<backup_workers>({.backups = 3}, 4), "");
  EXPECT_EQ(refused<backup_workers>({.backups = -4}, 4), "");
  EXPECT_EQ(refused<backup_workers>({.backups = 4}, 4),
            "4 backups among 4 workers leave a step no gradient to wait for. Fix: set "
            "architecture.backups to at most 3");
  EXPECT_EQ(refused<backup_workers>({.backups = -8}, 4), "");
  EXPECT_EQ(refused<backup_workers>({.backups = -1}, 1), "");
  EXPECT_EQ(refused<backup_workers>({.backups = -1}, 4),
            "architecture.backups of -1 makes a step of 5 gradients, which 4 workers cannot give "
            "in equal shares, so that they would wait for each other. Fix: 0, or a negative "
            "multiple of 4");
  EXPECT_EQ(refused<delay_compensated>({.lambda = 2, .decay = 0}, 4), "");
  EXPECT_EQ(
      refused<delay_compensated>({.lambda = -0.5}, 4),
      "architecture.lambda must be 0 or more. Fix: 0.04, for example, or 2 where it is adaptive");
  EXPECT_EQ(refused<delay_compensated>({.decay = 1}, 4),
            "architecture.decay must be from 0 to below 1. Fix: 0.95, for example");
}

}  // namespace
}  // namespace tutti::test
