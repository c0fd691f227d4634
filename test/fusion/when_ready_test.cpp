// Fusion by readiness, compared with a queue from whose front it takes and to which it returns.
#include "tutti/fusion/when_ready.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/strategies/horovod.hpp"

namespace tutti {
namespace {

/// Returns chunks of so many elements, each of a kind.
plan chunks_of(const std::vector<std::size_t>& elements, const std::vector<std::uint32_t>& kinds) {
  plan made;
  made.first_element.push_back(0);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    chunk piece{static_cast<std::uint32_t>(i), made.first_element.back(), elements[i]};
    piece.kind = kinds[i];
    made.chunks.push_back(piece);
    made.first_element.push_back(made.first_element.back() + elements[i]);
  }
  return made;
}

using launches = std::vector<std::vector<std::uint32_t>>;

launches of_state(fusion::when_ready::state& gathering, const std::vector<std::uint32_t>& ready) {
  for (const std::uint32_t each : ready) {
    gathering.stage(each);
  }
  launches all;
  for (auto next = gathering.next(); !next.empty(); next = gathering.next()) {
    all.emplace_back(next.begin(), next.end());
  }
  return all;
}

/// Horovod's order of fusing, on a queue from whose front it takes and to which it returns.
launches fused(const plan& made, std::deque<std::uint32_t> queue,
               const fusion::when_ready::options& set) {
  launches all;
  std::size_t most = set.bytes;
  for (; most % set.multiple != 0; ++most) {
  }
  const auto bytes = [&](std::uint32_t c) {
    std::size_t padded = 4 * made.chunks[c].elements;
    for (; padded % set.alignment != 0; ++padded) {
    }
    return padded;
  };
  while (!queue.empty()) {
    const std::uint32_t first = queue.front();
    queue.pop_front();
    std::set<std::uint32_t> together{first};
    std::deque<std::uint32_t> put_back;
    std::size_t held = bytes(first);
    std::size_t skipped = 0;
    for (bool more = most != 0; more && !queue.empty();) {
      const std::uint32_t next = queue.front();
      if (made.chunks[next].kind == made.chunks[first].kind && held + bytes(next) <= most) {
        held += bytes(next);
        together.insert(next);
        queue.pop_front();
      } else if (skipped += bytes(next); held + skipped <= most) {
        put_back.push_back(next);
        queue.pop_front();
      } else {
        more = false;
      }
    }
    queue.insert(queue.begin(), put_back.begin(), put_back.end());
    all.emplace_back(together.begin(), together.end());
  }
  return all;
}

TEST(fusion_when_ready, launches_as_a_queue_that_is_put_back) {
  std::mt19937 random(9);
  for (int round = 0; round < 3000; ++round) {
    const std::size_t n = random() % 12;
    std::vector<std::size_t> elements(n);
    std::vector<std::uint32_t> kinds(n);
    for (std::size_t i = 0; i < n; ++i) {
      elements[i] = random() % 5 == 0 ? 0 : random() % 20;
      kinds[i] = static_cast<std::uint32_t>(random() % 3);
    }
    const plan made = chunks_of(elements, kinds);
    const fusion::when_ready::options set{.bytes = random() % 8 == 0 ? 0 : random() % 160,
                                          .multiple = 1 + random() % 2 * (random() % 70),
                                          .alignment = random() % 2 == 0 ? 1U : 16U};
    const std::size_t largest = fusion::when_ready(set).most_bytes(made);
    fusion::when_ready::state gathering(made, set);
    for (int tick = 0; tick < 3; ++tick) {
      std::vector<std::uint32_t> ready;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (random() % 3 != 0) {
          ready.push_back(i);
        }
      }
      std::shuffle(ready.begin(), ready.end(), random);
      const launches seen = of_state(gathering, ready);
      ASSERT_EQ(seen, fused(made, {ready.begin(), ready.end()}, set)) << "round " << round;
      for (const auto& each : seen) {
        std::size_t bytes = 0;
        for (const std::uint32_t c : each) {
          bytes += 4 * made.chunks[c].elements;
        }
        ASSERT_LE(bytes, largest);
      }
    }
  }
}

TEST(fusion_when_ready, looks_past_other_kinds_as_far_as_the_limit) {
  //                        A  b  A  A  b
  const plan made = chunks_of({2, 3, 1, 2, 1}, {0, 1, 0, 0, 1});
  const auto at = [&](std::size_t elements) {
    fusion::when_ready::state gathering(made, {.bytes = 4 * elements});
    return of_state(gathering, {0, 1, 2, 3, 4});
  };
  EXPECT_EQ(at(4), (launches{{0}, {1}, {2, 3}, {4}}));  // 2 and 3, which are passed over, exceed 4
  EXPECT_EQ(at(5), (launches{{0, 2, 3}, {1, 4}}));      // 2 and 3 do not exceed 5
  EXPECT_EQ(at(8), (launches{{0, 2, 3}, {1, 4}}));
  EXPECT_EQ(at(0), (launches{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(fusion::when_ready({.bytes = 4}).most_bytes(made), 12U) << "one above it goes alone";
  EXPECT_EQ(fusion::when_ready({.bytes = 20}).most_bytes(made), 20U);
  EXPECT_EQ(fusion::when_ready().most_bytes(made), 36U) << "all there is";
}

/// Horovod's threshold where each host has as many ranks: a multiple of 64 doubles for each rank.
/// Its batched copies on a GPU begin at multiples of 16 bytes.
TEST(fusion_when_ready, rounds_as_horovod_does) {
  constexpr auto of_three = strategies::Horovod::defaults(3).fusion;
  const plan made = chunks_of(std::vector<std::size_t>(40'000'000 / 1000, 1000),
                              std::vector<std::uint32_t>(40'000'000 / 1000));
  EXPECT_EQ(fusion::when_ready(of_three).most_bytes(made), 134'218'752U);  // 87'382 * 1536
  constexpr auto of_four = strategies::Horovod::defaults(4).fusion;
  EXPECT_EQ(fusion::when_ready(of_four).most_bytes(made), 134'217'728U);

  const plan small = chunks_of({1, 1, 1, 1, 5, 4}, {0, 0, 0, 0, 0, 0});
  const auto at = [&](std::size_t bytes, std::size_t alignment) {
    fusion::when_ready::state gathering(small, {.bytes = bytes, .alignment = alignment});
    return of_state(gathering, {0, 1, 2, 3, 4, 5});
  };
  EXPECT_EQ(at(52, 1), (launches{{0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ(at(52, 16), (launches{{0, 1, 2}, {3, 4}, {5}}));
  EXPECT_EQ(at(0, 16), (launches{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_EQ(fusion::when_ready({.bytes = 0, .multiple = 1536}).most_bytes(small), 20U);
  EXPECT_EQ(fusion::when_ready({.bytes = SIZE_MAX, .multiple = 1536}).most_bytes(small), 52U);
}

TEST(fusion_when_ready, plans_every_tensor_alone) {
  const std::vector<tensor_facts> backward(3);
  EXPECT_EQ(fusion::when_ready().group_ends(backward, {}), (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_TRUE(fusion::when_ready().group_ends({}, {}).empty());
}

TEST(fusion_when_ready, refuses_a_negative_cycle) {
  try {
    fusion::when_ready policy({.cycle = -1e-3});
    FAIL() << "taken";
  } catch (const usage_error& sentence) {
    EXPECT_NE(std::string(sentence.what()).find("a cycle is not negative"), std::string::npos);
  }
}

TEST(fusion_when_ready, refuses_multiples_of_nothing) {
  for (const fusion::when_ready::options& set :
       {fusion::when_ready::options{.multiple = 0}, fusion::when_ready::options{.alignment = 0}}) {
    try {
      fusion::when_ready policy(set);
      FAIL() << "taken";
    } catch (const usage_error& sentence) {
      EXPECT_NE(std::string(sentence.what()).find("multiple of 0 bytes"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tutti
