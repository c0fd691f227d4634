// What a stream does where the device refuses, and what threads do to a stream that was borrowed.
#include "tutti/base/cuda/stream.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/stand_in/runtime.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/kernels/arithmetic.hpp"

namespace tutti::test {

TEST(StandInStream, IsDestroyedWhereItsRoomIsRefused) {
  cuda::stream users;
  const std::size_t before = streams_alive();
  {
    const no_memory_left none;
    EXPECT_THROW(cuda::stream(), cuda_error);
    EXPECT_THROW(cuda::stream::from_native_handle(users.native_handle()), cuda_error);
  }
  EXPECT_EQ(streams_alive(), before);
}

TEST(StandInStream, IsAnybodysToSynchroniseBeforeItsFirstKernelToo) {
  cuda::stream users;
  auto borrowed = cuda::stream::from_native_handle(users.native_handle());
  const cuda::buffer<float> result(1);
  const cuda::buffer<float> input(8);
  borrowed.clear(input.data(), 8 * sizeof(float));
  std::thread other([&] { borrowed.synchronize(); });
  kernels::mean_magnitude(borrowed, input.span(), result.data());
  other.join();
  std::vector<float> mean(1, 7.0f);
  borrowed.copy(mean.data(), result.data(), sizeof(float));
  borrowed.synchronize();
  EXPECT_EQ(mean[0], 0.0f);
}

}  // namespace tutti::test
