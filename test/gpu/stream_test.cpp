// A cuda::stream keeps the order that a queue promises.
#include "tutti/base/cuda/stream.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/kernels/arithmetic.hpp"

namespace tutti::test {
namespace {

class Stream : public needs_a_device {};

}  // namespace

TEST_F(Stream, AWaitAcrossStreamsSeesWhatWasWrittenBefore) {
  constexpr std::size_t n = 1 << 20;
  cuda::stream writer;
  cuda::stream reader(cuda::priority::urgent);
  auto source = allocate_zeros<float>(writer, n);
  const on_gpu ones(writer, std::vector<float>(n, 1.0f));
  std::vector<float> seen(n);
  for (int round = 1; round <= 20; ++round) {
    kernels::add(writer, source.span(), ones.input());
    reader.wait(writer.record());
    reader.copy(seen.data(), source.data(), n * sizeof(float));
    writer.wait(reader.record());
    reader.synchronize();
    EXPECT_EQ(seen[n - 1], static_cast<float>(round));
  }
}

TEST_F(Stream, EventsAreUsedAgain) {
  cuda::stream queue;
  const auto& events = cuda::detail::events_of(queue.device());
  { const auto warm = queue.record(); }
  const std::size_t made = events.made();
  for (int round = 0; round < 1000; ++round) {
    queue.wait(queue.record());
  }
  EXPECT_EQ(events.made(), made);
}

TEST_F(Stream, AnEventOutlivesItsStream) {
  cuda::stream::event last;
  {
    cuda::stream gone;
    last = gone.record();
  }
  cuda::stream queue;
  queue.wait(last);
  queue.wait({});
  queue.synchronize();
}

TEST_F(Stream, HandlesMoveAndAreBorrowed) {
  cuda::stream first;
  const auto handle = first.native_handle();
  cuda::stream second = std::move(first);
  EXPECT_EQ(second.native_handle(), handle);
  auto borrowed = cuda::stream::from_native_handle(handle);
  const on_gpu values(borrowed, std::vector<float>{1, 2, 3});
  kernels::scale(borrowed, values.span(), 2.0f);
  EXPECT_EQ(values.read(), (std::vector<float>{2, 4, 6}));
}

TEST_F(Stream, ZerosAreZeroAndHostsReadCopies) {
  cuda::stream queue;
  auto zeros = allocate_zeros<float>(queue, 1000);
  EXPECT_EQ(host_view(queue, zeros.span()), std::vector<float>(1000, 0.0f));
  fill_from_host(queue, zeros.span(), [](std::span<float> values) { values[3] = 7; });
  EXPECT_EQ(host_view(queue, zeros.span())[3], 7);
  const cuda::pinned_buffer<int> pinned(5);
  EXPECT_EQ(pinned.span()[4], 0);
}

// ---- without a device

TEST(CudaError, SaysWhereAndWhatHelps) {
  try {
    cuda::check(cudaErrorMemoryAllocation);
    FAIL();
  } catch (const cuda_error& failed) {
    const std::string words = failed.what();
    EXPECT_EQ(failed.code(), cudaErrorMemoryAllocation);
    EXPECT_NE(words.find("stream_test.cpp:"), std::string::npos) << words;
    EXPECT_NE(words.find("cudaErrorMemoryAllocation 2"), std::string::npos) << words;
    EXPECT_NE(words.find("Fix: use smaller buckets"), std::string::npos) << words;
  }
  EXPECT_NO_THROW(cuda::check(cudaSuccess));
}

TEST(CudaError, NoDeviceIsSaidAsSuch) {
  if (cuda::devices() != 0) {
    GTEST_SKIP() << "there is a device";
  }
  try {
    cuda::stream none;
    FAIL();
  } catch (const cuda_error& failed) {
    EXPECT_NE(std::string(failed.what()).find("Fix: run on a machine with a GPU"),
              std::string::npos)
        << failed.what();
  }
  EXPECT_THROW(cuda::buffer<float>(8), cuda_error);
  EXPECT_NO_THROW(cuda::buffer<float>(0));
}

}  // namespace tutti::test
