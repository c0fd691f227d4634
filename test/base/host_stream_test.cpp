#include "tutti/base/host_stream.hpp"

#include <atomic>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "support/no_room_for_threads.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"

namespace tutti::test {
namespace {

/// Blocks a stream until the host releases it.
class gate {
 public:
  void close(host_stream& stream) {
    stream.run([this] {
      while (!open_.load(std::memory_order_acquire)) {
        std::this_thread::yield();
      }
    });
  }
  void open() { open_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> open_{false};
};

}  // namespace

TEST(HostStream, WorksInOrderAndLater) {
  host_stream stream;
  gate held;
  std::vector<int> order;
  held.close(stream);
  for (int i = 0; i < 100; ++i) {
    stream.run([&order, i] { order.push_back(i); });
  }
  held.open();
  stream.synchronize();
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST(HostStream, MemoryIsPoisonUntilItIsWritten) {
  host_stream stream;
  host_stream::buffer<float> memory(stream, 4);
  for (const float each : memory.read_back()) {
    EXPECT_TRUE(std::isnan(each));
    EXPECT_TRUE(host_stream::buffer<float>::is_poison(each));
  }
  memory.write(std::vector<float>{1, 2, 3, 4});
  EXPECT_EQ(memory.read_back(), (std::vector<float>{1, 2, 3, 4}));
}

TEST(HostStream, AMissingWaitReadsPoison) {
  host_stream writer;
  host_stream reader;
  gate held;
  host_stream::buffer<float> source(writer, 1);
  host_stream::buffer<float> copy(reader, 1);
  held.close(writer);
  source.write(std::vector<float>{7});
  reader.copy(copy.span().data(), source.span().data(), sizeof(float));  // without waiting
  EXPECT_TRUE(host_stream::buffer<float>::is_poison(copy.read_back()[0]));
  held.open();
}

TEST(HostStream, AWaitAcrossStreamsSeesWhatWasWrittenBefore) {
  for (int round = 0; round < 200; ++round) {
    host_stream writer;
    host_stream reader;
    host_stream::buffer<float> source(writer, 1);
    host_stream::buffer<float> copy(reader, 1);
    source.write(std::vector<float>{7});
    reader.wait(writer.record());
    reader.copy(copy.span().data(), source.span().data(), sizeof(float));
    writer.wait(reader.record());
    source.write(std::vector<float>{8});
    EXPECT_EQ(copy.read_back()[0], 7);
    EXPECT_EQ(source.read_back()[0], 8);
  }
}

TEST(HostStreamDeathTest, TheHostMayNotTouchItsElements) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        host_stream stream;
        host_stream::buffer<float> memory(stream, 1);
        memory[0] = 1;
      },
      "the host accessed a stream's memory");
}

TEST(HostStream, ItsFunctorsMayTouchElements) {
  host_stream stream;
  host_stream::buffer<float> memory(stream, 3);
  stream.for_each(3, [&memory](std::size_t i) { memory[i] = static_cast<float>(i); });
  EXPECT_EQ(memory.read_back(), (std::vector<float>{0, 1, 2}));
}

TEST(HostStream, ReducesToTheSameBitsAsTheInlineQueue) {
  std::vector<float> values(1003);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 1.0F / static_cast<float>(i + 1);
  }
  const auto square = [](float x) { return x * x; };
  inline_queue here;
  float expected = 0;
  here.transform_reduce(std::span<const float>(values), &expected, square);
  host_stream stream;
  host_stream::buffer<float> input(stream, values.size());
  host_stream::buffer<float> result(stream, 1);
  input.write(values);
  stream.transform_reduce(std::span<const float>(input.span()), result.span().data(), square);
  EXPECT_EQ(result.read_back()[0], expected);
}

TEST(HostStream, AnEventOutlivesItsStream) {
  host_stream::event last;
  {
    host_stream gone;
    gone.run([] {});
    last = gone.record();
  }
  host_stream stream;
  stream.wait(last);
  stream.wait(host_stream::event{});
  stream.synchronize();
}

TEST(HostStream, WithoutAThreadSaysWhatToDo) {
  const no_room_for_threads here;
  try {
    const host_stream stream;
    ADD_FAILURE() << "it has got a thread";
  } catch (const usage_error& refused) {
    EXPECT_STREQ(refused.what(),
                 "a host_stream could not start a thread: Resource temporarily unavailable. Fix: "
                 "use fewer streams, or allow a process more threads (ulimit -u, ulimit -s)");
  }
}

}  // namespace tutti::test
