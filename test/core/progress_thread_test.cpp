// A thread that drives several loops. No waiting thread is forgotten, and no loop that has left is
// touched. No nap in these tests ends by itself within an hour, so a lost wake-up would hang the
// test.
#include "tutti/core/progress_thread.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <thread>

#include "tutti/core/driver.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::test {
namespace {

constexpr seconds an_hour = 3600;

/// A loop that counts what is posted and moves it by counting it.
struct counting_loop {
  std::atomic<int> posted{0};
  std::atomic<int> moved{0};
  std::atomic<bool> gone{false};
  std::atomic<bool> moved_after_all{false};

  progress_loop loop{
      .self = this,
      .move =
          [](void* self) {
            auto& its = *static_cast<counting_loop*>(self);
            its.moved_after_all = its.moved_after_all || its.gone;
            const int last = its.posted;
            return its.moved.exchange(last) != last;
          },
      .has_work =
          [](void* self) {
            auto& its = *static_cast<counting_loop*>(self);
            return its.moved != its.posted;
          },
      .idle = [](void*, std::size_t polls, urgency) { return polls < naps_from ? 0 : an_hour; }};
};

/// A loop that posts nothing, as a server's before its first worker comes, is visited as well, also
/// if it is added just as a thread that has found no loop falls asleep.
TEST(ProgressThread, LooksAtWhoComes) {
  for (int thread_number = 0; thread_number < 5000; ++thread_number) {
    progress_thread thread;
    std::atomic<bool> looked_at{false};
    const auto it_begins = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - it_begins <
           std::chrono::nanoseconds(100) * (thread_number % 1000)) {
    }
    progress_loop mine{.self = &looked_at,
                       .move =
                           [](void* self) {
                             *static_cast<std::atomic<bool>*>(self) = true;
                             return false;
                           },
                       .has_work = [](void*) { return false; },
                       .idle = [](void*, std::size_t, urgency) { return an_hour; }};
    thread.add(mine);
    while (!looked_at) {
      std::this_thread::yield();
    }
    thread.remove(mine);
  }
}

TEST(ProgressThread, NeitherThePostNorTheWaitIsLost) {
  progress_thread thread;
  counting_loop mine;
  thread.add(mine.loop);
  for (int post = 1; post <= 2000; ++post) {
    mine.posted = post;
    thread.wake();
    for (;;) {
      const auto seen = thread.moves();
      if (mine.moved == post) {
        break;
      }
      thread.wait_for_more(seen, an_hour);
    }
    if (post % 100 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until the thread falls asleep
    }
  }
  thread.remove(mine.loop);
}

/// A waiter that begins to wait wakes the thread, whose nap was as long as no rank waited.
TEST(ProgressThread, WhoBeginsToWaitWakesIt) {
  progress_thread thread;
  std::atomic<int> hurried{0};
  progress_loop mine{.self = &hurried,
                     .move = [](void*) { return false; },
                     .has_work = [](void*) { return false; },
                     .idle =
                         [](void* self, std::size_t polls, urgency who) {
                           *static_cast<std::atomic<int>*>(self) += who == urgency::waited_for;
                           return polls < naps_from ? 0 : an_hour;
                         }};
  thread.add(mine);
  for (int naps = 0; naps < 50; ++naps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(naps % 3));  // until it sleeps
    hurried = 0;
    const progress_thread::waiter waits(&thread);
    while (hurried == 0) {
      std::this_thread::yield();
    }
  }
  thread.remove(mine);
}

TEST(ProgressThread, WhoHasLeftIsLeftAlone) {
  progress_thread thread;
  counting_loop stays;
  thread.add(stays.loop);
  for (int turn = 1; turn <= 200; ++turn) {
    counting_loop comes;
    thread.add(comes.loop);
    comes.posted = 1;
    stays.posted = turn;
    thread.wake();
    while (comes.moved == 0 || stays.moved != turn) {
      std::this_thread::yield();
    }
    thread.remove(comes.loop);
    comes.gone = true;
    stays.posted = -turn;
    thread.wake();
    while (stays.moved != -turn) {
      std::this_thread::yield();
    }
    ASSERT_FALSE(comes.moved_after_all);
  }
  thread.remove(stays.loop);
}

/// Records which thread drives the loop.
struct watching_owner {
  std::atomic<std::thread::id> its{};

  bool open_posts() {
    its = std::this_thread::get_id();
    return false;
  }
  loop_round go_round(auto& world) { return tutti::go_round(world, *this); }
  bool has_posts() const { return false; }
  bool carry_out() { return false; }
  bool has_decided() const { return false; }
  bool failed() const { return false; }
  std::size_t words() const { return 0; }
  void broken(std::exception_ptr) {}
};

/// A rank that is a process or not. It counts the calls in which other threads state who waits.
class lone_rank : public transport::in_process {
 public:
  lone_rank(fabric& shared, bool process) : basic_in_process(shared, 0, 1), process_(process) {}
  bool is_a_process() const { return process_; }
  seconds idle(std::size_t polls, urgency who = urgency::waited_for) {
    if (std::this_thread::get_id() != owner_) {
      ++(who == urgency::unhurried ? unhurried : waited_for);
    }
    return basic_in_process::idle(polls, who);
  }

  std::atomic<int> waited_for{0};
  std::atomic<int> unhurried{0};

 private:
  bool process_;
  std::thread::id owner_ = std::this_thread::get_id();
};

/// Returns the thread that drives the loop.
std::thread::id mover(const watching_owner& owner) {
  while (owner.its == std::thread::id()) {
    std::this_thread::yield();
  }
  return owner.its;
}

TEST(ProgressThread, KnowsWhetherAnybodyWaits) {
  transport::in_process::fabric alone(1);
  lone_rank world(alone, true);
  watching_owner owner;
  driver<lone_rank, watching_owner> its(world, owner);
  its.start_thread(progress::by_thread);
  while (world.unhurried == 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(world.waited_for, 0);
  const auto heard_of_it = [&world] { return world.waited_for != 0; };
  its.drive_until(heard_of_it);
  its.stop_thread();
}

TEST(ProgressThread, EnginesOfOneProcessShareOneAndThreadsThatAreRanksDoNot) {
  using fabric = transport::in_process::fabric;
  fabric alone[]{fabric(1), fabric(1), fabric(1), fabric(1)};
  lone_rank worlds[] = {{alone[0], true}, {alone[1], true}, {alone[2], false}, {alone[3], false}};
  watching_owner owners[4];
  driver<lone_rank, watching_owner> first(worlds[0], owners[0]);
  driver<lone_rank, watching_owner> second(worlds[1], owners[1]);
  driver<lone_rank, watching_owner> third(worlds[2], owners[2]);
  driver<lone_rank, watching_owner> fourth(worlds[3], owners[3]);
  for (auto* each : {&first, &second, &third, &fourth}) {
    each->start_thread(progress::by_thread);
  }
  EXPECT_EQ(mover(owners[0]), mover(owners[1]));
  EXPECT_NE(mover(owners[0]), mover(owners[2]));
  EXPECT_NE(mover(owners[2]), mover(owners[3]));
  first.stop_thread();
  owners[1].its = std::thread::id();
  EXPECT_NE(mover(owners[1]), std::thread::id()) << "the thread ended with the first";
}

}  // namespace
}  // namespace tutti::test
