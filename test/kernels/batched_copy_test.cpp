// Batched copies against what each of them says.
#include "tutti/kernels/batched_copy.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "tutti/base/host_stream.hpp"

namespace tutti {
namespace {

/// A queue of a device that only copies.
struct copying_queue {
  std::size_t copies = 0;
  void copy(void* to, const void* from, std::size_t bytes) {
    ++copies;
    inline_queue{}.copy(to, from, bytes);
  }
};
static_assert(!host_queue<copying_queue>);

struct job {
  std::vector<std::byte> from;
  std::vector<std::byte> to;
  std::vector<std::byte> expected;
  std::vector<kernels::copy_order> orders;
};

/// Runs of these lengths, in reverse order and with a byte left alone between two.
job scattered() {
  constexpr std::size_t lengths[] = {0, 1, 3, 4, 31, 0, 33, 64, 4097, 100'003};
  job made;
  std::size_t total = 0;
  for (const std::size_t each : lengths) {
    total += each + 1;
  }
  made.from.resize(total);
  made.to.resize(total, std::byte{0xEE});
  made.expected = made.to;
  for (std::size_t i = 0; i < total; ++i) {
    made.from[i] = std::byte(i * 7 % 251);
  }
  std::size_t begin = 0;
  std::size_t place = total;
  for (const std::size_t each : lengths) {
    place -= each + 1;
    made.orders.push_back({made.to.data() + place, made.from.data() + begin, each});
    for (std::size_t i = 0; i < each; ++i) {
      made.expected[place + i] = made.from[begin + i];
    }
    begin += each;
  }
  return made;
}

TEST(copy_all, does_every_copy_and_touches_nothing_else) {
  job now = scattered();
  inline_queue queue;
  kernels::copy_all(queue, now.orders);
  EXPECT_EQ(now.to, now.expected);
}

TEST(copy_all, is_one_operation_of_a_stream) {
  job later = scattered();
  host_stream stream;
  kernels::copy_all(stream, later.orders);
  stream.synchronize();
  EXPECT_EQ(later.to, later.expected);
}

TEST(copy_all, falls_back_on_the_queues_own_copies) {
  job copied = scattered();
  copying_queue queue;
  kernels::copy_all(queue, copied.orders);
  EXPECT_EQ(copied.to, copied.expected);
  EXPECT_EQ(queue.copies, copied.orders.size());
}

TEST(copy_all, of_nothing_is_nothing) {
  inline_queue queue;
  kernels::copy_all(queue, {});
  const kernels::copy_order nowhere[] = {{nullptr, nullptr, 0}};
  kernels::copy_all(queue, nowhere);
}

}  // namespace
}  // namespace tutti
