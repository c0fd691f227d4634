// Fusion by readiness: against a coordinator that ticks.
#include "tutti/fusion/when_ready.hpp"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/strategies/horovod.hpp"

namespace tutti {
namespace {

using ends = std::vector<std::size_t>;

/// Tensors in backward order, each with its own backward time.
struct model {
  std::vector<tensor_facts> backward{};
  profile known{};

  model(const std::vector<std::size_t>& elements, const std::vector<int>& microseconds) {
    const std::size_t n = elements.size();
    known.backward.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t forward = n - 1 - i;
      backward.push_back({tensor_id{static_cast<std::uint32_t>(forward)}, elements[i]});
      known.backward[forward] = 1e-6 * microseconds[i];
    }
  }
};

/// A thread that wakes every `cycle` microseconds, empties the queue of what is ready by then and
/// fills buffers with it. No tensor becomes ready at a tick.
ends coordinator(const std::vector<std::size_t>& elements, const std::vector<int>& microseconds,
                 int cycle, std::size_t most_bytes) {
  ends groups;
  std::size_t next = 0;
  long ready = elements.empty() ? 0 : microseconds[0];
  for (long tick = cycle; next < elements.size(); tick += cycle) {
    std::size_t buffer = 0;
    bool open = false;
    while (next < elements.size() && ready < tick) {
      if (open && buffer + 4 * elements[next] > most_bytes) {
        groups.push_back(next);
        buffer = 0;
      }
      buffer += 4 * elements[next];
      open = true;
      if (++next < elements.size()) {
        ready += microseconds[next];
      }
    }
    if (open) {
      groups.push_back(next);
    }
  }
  return groups;
}

TEST(fusion_when_ready, groups_as_a_coordinator_that_ticks) {
  std::mt19937 random(4);
  for (int round = 0; round < 10'000; ++round) {
    std::vector<std::size_t> elements(random() % 20);
    std::vector<int> microseconds(elements.size());
    long ready = 0;
    const int cycle = 10 * static_cast<int>(1 + random() % 60);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      elements[i] = random() % 4 == 0 ? random() % 3 : random() % 400;
      microseconds[i] = static_cast<int>(random() % 300) * static_cast<int>(random() % 4 != 0);
      ready += microseconds[i];
      if (ready > 0 && ready % cycle == 0) {
        ++microseconds[i];
        ++ready;
      }
    }
    const std::size_t most = 1 + random() % 3000;
    const model job(elements, microseconds);
    const fusion::when_ready policy({.bytes = most, .cycle = 1e-6 * cycle});
    ASSERT_EQ(policy.group_ends(job.backward, job.known),
              coordinator(elements, microseconds, cycle, most))
        << "round " << round;
  }
}

TEST(fusion_when_ready, names_both_sets_of_defaults) {
  // After 0.9, 1.8, 4.9 and 5.1 ms; 40 MB each.
  const model job({10'000'000, 10'000'000, 10'000'000, 10'000'000}, {900, 900, 3100, 200});
  const auto groups = [&](const auto& set) {
    return fusion::when_ready(set.fusion).group_ends(job.backward, job.known);
  };
  EXPECT_EQ(groups(strategies::Horovod::defaults()), (ends{1, 2, 3, 4}));
  EXPECT_EQ(groups(strategies::Horovod::defaults_before_0_21()), (ends{1, 2, 3, 4}));
  const model quick({10'000'000, 10'000'000, 5'000'000, 10'000'000}, {300, 300, 300, 300});
  const auto quick_groups = [&](const auto& set) {
    return fusion::when_ready(set.fusion).group_ends(quick.backward, quick.known);
  };
  EXPECT_EQ(quick_groups(strategies::Horovod::defaults()), (ends{3, 4}));
  EXPECT_EQ(quick_groups(strategies::Horovod::defaults_before_0_21()), (ends{1, 3, 4}));
}

TEST(fusion_when_ready, leaves_all_alone_at_zero) {
  const model job({0, 0, 3, 0}, {1, 0, 0, 1});
  for (const fusion::when_ready::options& zero :
       {fusion::when_ready::options{.bytes = 0}, fusion::when_ready::options{.cycle = 0}}) {
    EXPECT_EQ(fusion::when_ready(zero).group_ends(job.backward, job.known), (ends{1, 2, 3, 4}));
  }
}

TEST(fusion_when_ready, guesses_times_from_elements_where_nothing_is_measured) {
  const model job({100'000, 50'000, 100'000}, {0, 0, 0});  // 0.5, 0.75 and 1.25 ms at 5 ns
  EXPECT_EQ(fusion::when_ready().group_ends(job.backward, {}), (ends{2, 3}));
}

TEST(fusion_when_ready, refuses_a_negative_cycle) {
  try {
    fusion::when_ready policy({.cycle = -1e-3});
    FAIL() << "taken";
  } catch (const usage_error& sentence) {
    EXPECT_NE(std::string(sentence.what()).find("a cycle is not negative"), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti
