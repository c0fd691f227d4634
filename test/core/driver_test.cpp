// Which thread drives a rank's loop, and until when.
#include "tutti/core/driver.hpp"

#include <atomic>
#include <cstddef>
#include <exception>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <thread>

#include "tutti/base/error.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::test {
namespace {

/// Counts how often a thread has driven the loop, and throws in the turn that it is told.
struct counting_owner {
  std::atomic<int> turns = 0;
  int refused = -1;  // the turn that throws, counted from 0

  bool open_posts() {
    if (turns++ == refused) {
      throw std::runtime_error("refused");
    }
    return false;
  }
  loop_round go_round(auto& world) { return tutti::go_round(world, *this); }
  bool has_posts() const { return false; }
  bool carry_out() { return false; }
  bool has_decided() const { return false; }
  bool failed() const { return false; }
  std::size_t words() const { return 0; }
  void broken(std::exception_ptr why) { said = what(why); }

  std::string said{};
};

template <class Check>
void with_a_driver(Check check) {
  transport::run_ranks(1, [&](transport::in_process& world) {
    counting_owner owner;
    driver<transport::in_process, counting_owner> its(world, owner);
    check(its, owner);
  });
}

TEST(Driver, WhoThrowsLeavesTheLoopToOthers) {
  with_a_driver([](auto& its, counting_owner& owner) {
    EXPECT_THROW(its.exclusively([] { throw std::runtime_error("refused"); }), std::runtime_error);
    its.nudge();
    EXPECT_GT(owner.turns.load(), 0);
  });
}

TEST(Driver, AnOwnerThatThrowsIsToldAndAskedAgain) {
  with_a_driver([](auto& its, counting_owner& owner) {
    owner.refused = 0;
    its.nudge();
    EXPECT_EQ(owner.said, "refused");
    its.nudge();
    EXPECT_GT(owner.turns.load(), 1);
  });
}

TEST(Driver, AThreadTellsItsOwnerThatThrowsAndGoesOn) {
  with_a_driver([](auto& its, counting_owner& owner) {
    owner.refused = 0;
    its.start_thread(progress::by_thread);
    while (owner.turns < 2) {
      std::this_thread::yield();
    }
    its.stop_thread();
    EXPECT_EQ(owner.said, "refused");
  });
}

/// Has a post until somebody takes it in.
struct owner_with_a_post : counting_owner {
  std::atomic<bool> posted = false;

  loop_round go_round(auto& world) { return tutti::go_round(world, *this); }
  bool open_posts() { return has_posts() && posted.exchange(false); }
  bool has_posts() const { return posted.load(std::memory_order_acquire); }
};

/// Of two threads that call at the same time one finds the loop taken and leaves.
TEST(Driver, APostIsTakenInByWhoeverHasTheLoop) {
  transport::run_ranks(1, [](transport::in_process& world) {
    owner_with_a_post owner;
    driver<transport::in_process, owner_with_a_post> its(world, owner);
    constexpr int rounds = 20000;
    std::atomic<int> begun = 0;
    std::atomic<int> ended = 0;
    const auto wait_for = [](const std::atomic<int>& its_round, int round) {
      for (int looks = 0; its_round < round; ++looks) {
        if (looks > 1000) {
          std::this_thread::yield();
        }
      }
    };
    std::thread other([&] {
      for (int round = 1; round <= rounds; ++round) {
        wait_for(begun, round);
        its.nudge();
        ended = round;
      }
    });
    int lost = 0;
    for (int round = 1; round <= rounds; ++round) {
      begun = round;
      for (int i = 0; i < 8 * (round % 64); ++i) {  // so that the threads meet at every moment
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      owner.posted.store(true, std::memory_order_release);
      its.nudge();
      wait_for(ended, round);
      lost += owner.posted.exchange(false) ? 1 : 0;
    }
    other.join();
    EXPECT_EQ(lost, 0);
  });
}

/// A rank of `ranks`, `here` of which share its host.
class somewhere : public transport::in_process {
 public:
  somewhere(fabric& shared, int ranks, int here)
      : basic_in_process(shared, 0, ranks), ranks_(ranks), here_(here) {}
  int size() const { return ranks_; }
  int host_of(int rank) const { return rank < here_ ? 0 : rank; }

 private:
  int ranks_;
  int here_;
};

/// Records which thread drives the loop.
struct watching_owner : counting_owner {
  std::atomic<std::thread::id> its{};

  loop_round go_round(auto& world) { return tutti::go_round(world, *this); }
  bool open_posts() {
    its = std::this_thread::get_id();
    return false;
  }
};

/// Restores the set of cores on which this thread may run when it is destroyed.
class cores_of_this_thread {
 public:
  cores_of_this_thread() { sched_getaffinity(0, sizeof before_, &before_); }
  cores_of_this_thread(const cores_of_this_thread&) = delete;
  cores_of_this_thread& operator=(const cores_of_this_thread&) = delete;
  ~cores_of_this_thread() { sched_setaffinity(0, sizeof before_, &before_); }

  int count() const { return CPU_COUNT(&before_); }
  bool bind_to_one() {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (unsigned core = 0; CPU_COUNT(&one) == 0 && core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &before_)) {
        CPU_SET(core, &one);
      }
    }
    return sched_setaffinity(0, sizeof one, &one) == 0;
  }

 private:
  cpu_set_t before_;
};

TEST(Driver, CountsTheRanksOfItsOwnHost) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  const auto by_thread = [&](int ranks, int here) {
    transport::in_process::fabric shared(1);
    somewhere world(shared, ranks, here);
    watching_owner owner;
    driver<somewhere, watching_owner> its(world, owner);
    its.start_thread(progress::automatic);
    its.nudge();
    while (owner.its == std::thread::id()) {
      std::this_thread::yield();
    }
    return owner.its != std::this_thread::get_id();
  };
  cores_of_this_thread its;
  const bool roomy = cores >= 2 && its.count() >= 2;
  EXPECT_EQ(by_thread(8 * cores, 1), roomy);
  EXPECT_EQ(by_thread(8 * cores, cores / 2), roomy);
  EXPECT_FALSE(by_thread(8 * cores, cores / 2 + 1));
  EXPECT_FALSE(by_thread(8 * cores, 8 * cores));
  ASSERT_TRUE(its.bind_to_one());
  EXPECT_FALSE(by_thread(8 * cores, 1)) << "a thread would take the core from its rank";
}

}  // namespace
}  // namespace tutti::test
