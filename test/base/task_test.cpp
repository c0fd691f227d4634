#include "tutti/base/task.hpp"

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/all_of.hpp"
#include "tutti/base/fifo.hpp"
#include "tutti/base/ring_buffer.hpp"

namespace tutti::test {
namespace {

constexpr int many = 1'000'000;

/// Returns roughly how deep the stack is.
std::ptrdiff_t depth_from(const char* base) {
  const char here = 0;
  return base > &here ? base - &here : &here - base;
}

void run(task& root) {
  run_queue queue;
  root.start(queue);
  queue.drain();
  ASSERT_TRUE(root.done());
  root.result();
}

/// An awaitable that is complete before it is awaited.
struct completed {
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  int await_resume() const noexcept { return 1; }
};

/// An awaitable that suspends and is put straight back on the queue.
struct through_the_queue {
  run_queue* queue;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter) const { queue->push(waiter); }
  void await_resume() const noexcept {}
};

task leaf(int& count) {
  ++count;
  co_return;
}

task count_completed(int& count) {
  for (int i = 0; i < many; ++i) {
    count += co_await completed{};
  }
}
task count_leaves(int& count, const char* base, std::ptrdiff_t& deepest) {
  for (int i = 0; i < many; ++i) {
    co_await leaf(count);
    deepest = std::max(deepest, depth_from(base));
  }
}
task count_suspensions(run_queue& queue, int& count, const char* base, std::ptrdiff_t& deepest) {
  for (int i = 0; i < many; ++i) {
    co_await through_the_queue{&queue};
    ++count;
    deepest = std::max(deepest, depth_from(base));
  }
}
task failing() {
  throw std::runtime_error("wrong note");
  co_return;
}
task nested(int levels) {
  if (levels == 0) {
    co_await failing();
  } else {
    co_await nested(levels - 1);
  }
}

}  // namespace

TEST(Task, AMillionCompletedAwaitsKeepTheStackFlat) {
  int count = 0;
  task root = count_completed(count);
  run(root);
  EXPECT_EQ(count, many);
}

TEST(Task, AMillionChildrenThatCompleteAtOnceKeepTheStackFlat) {
  int count = 0;
  const char base = 0;
  std::ptrdiff_t deepest = 0;
  task root = count_leaves(count, &base, deepest);
  run(root);
  EXPECT_EQ(count, many);
  EXPECT_LT(deepest, 64 * 1024);
}

TEST(Task, AMillionResumptionsKeepTheStackFlat) {
  int count = 0;
  const char base = 0;
  std::ptrdiff_t deepest = 0;
  run_queue queue;
  task root = count_suspensions(queue, count, &base, deepest);
  root.start(queue);
  queue.drain();
  EXPECT_TRUE(root.done());
  EXPECT_EQ(count, many);
  EXPECT_LT(deepest, 64 * 1024);
}

TEST(Task, IsLazy) {
  int count = 0;
  task root = leaf(count);
  EXPECT_EQ(count, 0);
  EXPECT_FALSE(root.done());
  run(root);
  EXPECT_EQ(count, 1);
}

TEST(Task, AnExceptionLeavesWhereTheTaskIsAwaited) {
  task root = nested(100);
  run_queue queue;
  root.start(queue);
  queue.drain();
  ASSERT_TRUE(root.done());
  try {
    root.result();
    FAIL();
  } catch (const std::runtime_error& failure) {
    EXPECT_STREQ(failure.what(), "wrong note");
  }
}

TEST(Task, StartedTasksRunBesideEachOther) {
  run_queue queue;
  std::string order;
  const auto voice = [](run_queue& on, std::string& log, char name) -> task {
    for (int i = 0; i < 3; ++i) {
      log += name;
      co_await through_the_queue{&on};
    }
  };
  const auto both = [&](run_queue& on, std::string& log) -> task {
    task first = voice(on, log, 'a');
    task second = voice(on, log, 'b');
    first.start(on);
    second.start(on);
    co_await first;
    co_await second;
    log += '.';
  };
  task root = both(queue, order);
  root.start(queue);
  queue.drain();
  EXPECT_TRUE(root.done());
  EXPECT_EQ(order, "ababab.");
}

TEST(Task, AnEmptyTaskIsDone) {
  const task none;
  EXPECT_TRUE(none.done());
  none.result();
}

TEST(RunQueue, GrowsInOrder) {
  run_queue queue;
  std::vector<int> order;
  std::vector<task> tasks;
  const auto note = [](run_queue& on, std::vector<int>& log, int id) -> task {
    co_await through_the_queue{&on};
    log.push_back(id);
  };
  for (int i = 0; i < 1000; ++i) {
    tasks.push_back(note(queue, order, i));
    tasks.back().start(queue);
  }
  EXPECT_EQ(queue.drain(), 1000U);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST(Ring, KeepsTheOrderRoundAndRoundAndAsItGrows) {
  ring_buffer<std::string> queue(3);
  std::size_t in = 0;
  std::size_t out = 0;
  for (const std::size_t held : {1U, 3U, 4U, 5U, 0U, 17U, 2U}) {
    while (in - out < held) {
      queue.push(std::to_string(in++));
    }
    while (in - out > held) {
      EXPECT_EQ(queue.front(), std::to_string(out));
      EXPECT_EQ(queue.pop(), std::to_string(out++));
    }
    EXPECT_EQ(queue.empty(), held == 0);
    queue.push(std::to_string(in++));
    EXPECT_EQ(queue.pop(), std::to_string(out++));
  }
}

TEST(Fifo, TakesFromAnywhereAndKeepsTheOrder) {
  struct node {
    node* next{};
    int value{};
  };
  std::vector<node> nodes(5);
  fifo<node> queue;
  for (int i = 0; i < 5; ++i) {
    nodes[static_cast<std::size_t>(i)].value = i;
    queue.push(nodes[static_cast<std::size_t>(i)]);
  }
  const auto is = [](int wanted) { return [=](const node& each) { return each.value == wanted; }; };
  EXPECT_EQ(queue.take(is(4))->value, 4);
  EXPECT_EQ(queue.take(is(2))->value, 2);
  EXPECT_EQ(queue.take(is(2)), nullptr);
  queue.push(nodes[4]);
  std::string order;
  while (const node* each = queue.pop()) {
    order += std::to_string(each->value);
  }
  EXPECT_EQ(order, "0134");
  EXPECT_TRUE(queue.empty());
}

namespace {

/// Is destroyed after its thread's frame pool, as an object of static storage is in the main
/// thread.
struct ends_late {
  std::vector<void*>* before;  // frames of 100 bytes that were given back meanwhile
  bool* again;

  ~ends_late() {
    std::vector<void*> others;  // takes what the heap has got back
    for (std::size_t i = 0; i < before->size(); ++i) {
      others.push_back(::operator new(128));
    }
    std::vector<void*> taken;
    for (std::size_t i = 0; i < before->size(); ++i) {
      taken.push_back(detail::frames.take(100));
      *again = *again || std::ranges::find(others, taken.back()) != others.end();
    }
    for (void* each : taken) {
      detail::frames.give(each, 100);
    }
    for (void* each : others) {
      ::operator delete(each);
    }
  }
};

}  // namespace

TEST(Task, FramesMayBeTakenAfterTheThreadsOwnVariables) {
  static_assert(std::is_trivially_destructible_v<detail::frame_pool>);
  std::vector<void*> before;
  bool again = false;
  std::thread([&] {
    static thread_local ends_late late{&before, &again};  // constructed first, so destroyed last
    static_cast<void>(late);
    for (int i = 0; i < 4; ++i) {
      before.push_back(detail::frames.take(100));
    }
    for (void* each : before) {
      detail::frames.give(each, 100);
    }
  }).join();
  EXPECT_FALSE(again) << "a frame was the heap's already";
}

TEST(Task, FramesThatAnotherThreadTakesAreNotKeptForEver) {
  std::vector<void*> taken;
  constexpr std::size_t frames_taken = 3 * detail::frame_pool::most_kept / 1000;
  for (std::size_t i = 0; i < frames_taken; ++i) {
    taken.push_back(detail::frames.take(1000));
  }
  std::thread([&] {
    for (void* each : taken) {
      detail::frames.give(each, 1000);
    }
    EXPECT_GT(detail::frames.kept(), detail::frame_pool::most_kept / 2);
    EXPECT_LE(detail::frames.kept(), detail::frame_pool::most_kept);
    for (std::size_t i = 0; i < frames_taken; ++i) {
      taken[i] = detail::frames.take(1000);
    }
    EXPECT_EQ(detail::frames.kept(), 0U);
    for (void* each : taken) {
      ::operator delete(each);
    }
  }).join();
}

namespace {

/// An awaitable that suspends and then logs its number; negative numbers fail.
class numbered {
 public:
  numbered(run_queue& queue, int number, std::vector<int>& log)
      : queue_(&queue), number_(number), log_(&log) {}
  numbered(const numbered&) = delete;
  numbered& operator=(const numbered&) = delete;
  ~numbered() { log_->push_back(100 + number_); }

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter) const { queue_->push(waiter); }
  int await_resume() const {
    log_->push_back(number_);
    if (number_ < 0) {
      throw std::runtime_error(std::to_string(number_));
    }
    return number_;
  }

 private:
  run_queue* queue_;
  int number_;
  std::vector<int>* log_;
};

task await_all(run_queue& queue, std::vector<int> numbers, std::vector<int>& log, task meanwhile) {
  operations all(numbers.size(), [&](std::size_t index) {
    if (numbers[index] == 99) {
      throw std::runtime_error("cannot begin");
    }
    return numbered(queue, numbers[index], log);
  });
  if (numbers.size() > 1 && numbers[0] == 0) {
    auto& first = all.next();
    log.push_back(1000 + co_await first);
  }
  co_await all_of(all, std::move(meanwhile));
}

std::string words_of(std::vector<int> numbers, std::vector<int>& log, task meanwhile = {}) {
  run_queue queue;
  task root = await_all(queue, std::move(numbers), log, std::move(meanwhile));
  root.start(queue);
  queue.drain();
  EXPECT_TRUE(root.done());
  try {
    root.result();
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return "";
}

task fails() {
  throw std::runtime_error("meanwhile");
  co_return;
}

using numbers = std::vector<int>;

}  // namespace

TEST(AllOf, AwaitsWhatNobodyHasAwaited) {
  numbers log;
  EXPECT_EQ(words_of({}, log), "");
  EXPECT_EQ(log, numbers());
  EXPECT_EQ(words_of({0, 1, 2}, log), "");
  EXPECT_EQ(log, (numbers{0, 1000, 1, 2, 100, 101, 102}));
}

TEST(AllOf, EndsWhenAllHaveAndSaysWhatFailedFirst) {
  numbers log;
  EXPECT_EQ(words_of({1, -2, 3, -4}, log), "-2");
  EXPECT_EQ(log, (numbers{1, -2, 3, -4, 101, 98, 103, 96}));
  log.clear();
  EXPECT_EQ(words_of({1, -2}, log, fails()), "meanwhile");
  EXPECT_EQ(log, (numbers{1, -2, 101, 98}));
}

TEST(AllOf, AwaitsThoseThatBeganBeforeOneThatCouldNot) {
  numbers log;
  EXPECT_EQ(words_of({1, 2, 99, 3}, log), "cannot begin");
  EXPECT_EQ(log, (numbers{1, 2, 101, 102}));
}

}  // namespace tutti::test
