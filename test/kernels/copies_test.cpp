// Runs of copies, compared with what each of them states.
#include "tutti/kernels/copies.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "tutti/base/host_stream.hpp"

namespace tutti {
namespace {

struct job {
  std::vector<float> from;
  std::vector<float> to;
  std::vector<float> expected;
  std::vector<kernels::copy_run> runs;
};

/// Returns runs of these lengths, in reverse order and with an untouched element between two.
job scattered() {
  constexpr std::size_t lengths[] = {0, 1, 3, 4, 31, 0, 33, 64, 4097, 100'003};
  job made;
  std::size_t total = 0;
  for (const std::size_t each : lengths) {
    total += each + 1;
  }
  made.from.resize(total);
  made.to.resize(total, -1);
  made.expected = made.to;
  for (std::size_t i = 0; i < total; ++i) {
    made.from[i] = static_cast<float>(i * 7 % 251);
  }
  std::size_t begin = 0;
  std::size_t place = total;
  for (const std::size_t each : lengths) {
    place -= each + 1;
    made.runs.push_back({made.from.data() + begin, made.to.data() + place, each});
    for (std::size_t i = 0; i < each; ++i) {
      made.expected[place + i] = made.from[begin + i];
    }
    begin += each;
  }
  return made;
}

TEST(copy_runs, does_every_copy_and_touches_nothing_else) {
  job now = scattered();
  inline_queue queue;
  kernels::copy_runs(queue, now.runs);
  EXPECT_EQ(now.to, now.expected);
}

TEST(copy_runs, is_one_operation_of_a_stream) {
  job later = scattered();
  host_stream stream;
  kernels::copy_runs(stream, later.runs);
  stream.synchronize();
  EXPECT_EQ(later.to, later.expected);
}

TEST(copy_runs, of_nothing_is_nothing) {
  inline_queue queue;
  kernels::copy_runs(queue, {});
  const kernels::copy_run nowhere[] = {{nullptr, nullptr, 0}};
  kernels::copy_runs(queue, nowhere);
}

}  // namespace
}  // namespace tutti
