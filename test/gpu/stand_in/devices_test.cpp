// A process with several devices, and threads whose current device is another than their stream's.
#include <cstddef>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "gpu/stand_in/runtime.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/transport/in_process_cuda.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {

/// As under torch, whose current stream is its device's default one.
TEST(StandInDevices, ADefaultStreamIsItsDevices) {
  const cuda::on_device at_first(0);
  cuda::stream others;
  {
    const cuda::on_device here(1);
    others = cuda::stream();
  }
  auto borrowed = [] {
    const cuda::on_device here(1);
    return cuda::stream::from_native_handle(cudaStream_t());
  }();
  const cuda::buffer<float> values = others.allocate<float>(2);
  for (int round = 0; round < 20; ++round) {
    std::vector<float> sent{1, 2};
    others.copy(values.data(), sent.data(), sizeof(float) * 2);
    borrowed.wait(others.record());
    kernels::scale(borrowed, values.span(), 2.0f);
    borrowed.copy(sent.data(), values.data(), sizeof(float) * 2);
    borrowed.clear(values.data(), sizeof(float) * 2);
    others.wait(borrowed.record());
    std::vector<float> cleared{7, 7};
    others.copy(cleared.data(), values.data(), sizeof(float) * 2);
    others.synchronize();
    borrowed.synchronize();
    EXPECT_EQ(sent, (std::vector<float>{2, 4}));
    EXPECT_EQ(cleared, (std::vector<float>{0, 0}));
  }
}

TEST(StandInDevices, AStreamDoesNotReachAnotherDevicesMemory) {
  const cuda::on_device at_first(0);
  const cuda::stream here;
  const cuda::buffer<float> mine(1);
  const cuda::pinned_buffer<float> pinned(1);
  const float plain = 0;
  EXPECT_TRUE(here.reaches(mine.data()));
  EXPECT_TRUE(here.reaches(pinned.data()));
  EXPECT_FALSE(here.reaches(&plain));
  const cuda::on_device there(1);
  const cuda::buffer<float> theirs(1);
  EXPECT_FALSE(here.reaches(theirs.data()));
}

TEST(StandInDevices, RanksRunOnTheDeviceOfTheirTransport) {
  const cuda::on_device here(2);
  transport::run_ranks<transport::in_process_cuda>(3, [](transport::in_process_cuda& world) {
    const cuda::stream compute;
    EXPECT_EQ(compute.device(), 2);
    EXPECT_EQ(world.queue().device(), 2);
  });
}

/// On a host of eight GPUs the progress threads of eight processes would each take memory of the
/// first GPU.
TEST(StandInDevices, AProgressThreadMakesNoOtherDeviceCurrent) {
  std::thread rank([] {
    cuda::check(cudaSetDevice(3));
    using transport_type = transport::in_process_cuda;
    transport_type::fabric shared(1);
    transport_type& world = shared.end(0);
    {
      cuda::stream compute;
      auto memory = allocate_zeros<float>(compute, 16);
      compute.synchronize();
      forget_devices_made_current();
      engine_options<strategies::Horovod> options;
      options.run.progress = progress::by_thread;
      auto engine = make_engine<strategies::Horovod>(
          world, {tensor("weight", memory.span().first(8), memory.span().last(8))},
          optimizer::sgd{.learning_rate = 0.5f}, options);
      for (int step = 0; step < 5; ++step) {
        engine.ready(tensor_id{0}, compute);
        engine.wait();
      }
    }
    world.leave();
  });
  rank.join();
  EXPECT_TRUE(was_made_current(3));
  EXPECT_FALSE(was_made_current(0));
}

}  // namespace tutti::test
