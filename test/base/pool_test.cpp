#include "tutti/base/pool.hpp"

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::test {

TEST(Pool, WhatIsGivenBackIsTakenAgain) {
  int made = 0;
  const auto make = [&made] { return ++made; };
  pool<int> things;
  EXPECT_FALSE(pool<int>::handle());
  for (int round = 0; round < 100; ++round) {
    auto one = things.take(make);
    auto other = things.take(make);
    EXPECT_NE(*one, *other);
  }
  EXPECT_EQ(made, 2);
  EXPECT_EQ(things.made(), 2u);
}

TEST(Pool, TheLastCopyGivesBack) {
  int made = 0;
  const auto make = [&made] { return ++made; };
  pool<int> things;
  auto first = things.take(make);
  auto copy = first;
  EXPECT_EQ(*copy, 1);
  first = {};
  EXPECT_EQ(*things.take(make), 2) << "a copy still holds the first";
  auto moved = std::move(copy);
  copy = things.take(make);
  EXPECT_EQ(*copy, 2);
  moved = {};
  EXPECT_EQ(*things.take(make), 1);
}

TEST(Pool, GrowsOverManyBlocks) {
  int made = 0;
  pool<int> things;
  std::vector<pool<int>::handle> held;
  for (int i = 1; i <= 300; ++i) {
    held.push_back(things.take([&made] { return ++made; }));
    EXPECT_EQ(*held.back(), i);
  }
  held.clear();
  for (int i = 0; i < 300; ++i) {
    held.push_back(things.take([&made] { return ++made; }));
  }
  EXPECT_EQ(made, 300);
}

/// A thing is held by one thread at a time, and there are never more things than threads.
TEST(Pool, ThreadsNeverHoldTheSame) {
  constexpr int threads = 4;
  pool<std::shared_ptr<std::atomic<int>>> things;
  std::atomic<bool> shared{false};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      for (int round = 0; round < 20000; ++round) {
        const auto mine = things.take([] { return std::make_shared<std::atomic<int>>(0); });
        if ((*mine)->fetch_add(1) != 0) {
          shared = true;
        }
        (*mine)->fetch_sub(1);
      }
    });
  }
  for (auto& each : all) {
    each.join();
  }
  EXPECT_FALSE(shared);
  EXPECT_LE(things.made(), std::size_t{threads});
}

}  // namespace tutti::test
