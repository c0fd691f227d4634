// Memory that kernels use besides their callers' scratch is allocated before the first kernel.
#include "tutti/kernels/workspace.hpp"

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/stand_in/cub/storage.hpp"
#include "gpu/stand_in/runtime.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/adaptive_sum.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/clipping.hpp"
#include "tutti/kernels/copies.hpp"
#include "tutti/kernels/low_rank.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/kernels/selection.hpp"

namespace tutti::test {
namespace {

/// All kernels that use a stream's memory, on n elements.
struct kernels_with_room {
  std::size_t n;
  cuda::stream queue{};
  on_gpu<float> input{queue, n};
  on_gpu<float> sum{queue, n};
  on_gpu<double> total{queue, 3};
  on_gpu<std::uint32_t> indices{queue, n};
  on_gpu<float> candidates{queue, kernels::selection_candidates(n, n / 1000)};
  on_gpu<std::uint32_t> their_indices{queue, kernels::selection_candidates(n, n / 1000)};

  explicit kernels_with_room(std::size_t elements) : n(elements) {}

  void run() {
    auto* const result = reinterpret_cast<float*>(total.data());
    kernels::sum_of_squares(queue, input.input(), total.data());
    kernels::largest_magnitude(queue, input.input(), result);
    kernels::mean_magnitude(queue, input.input(), result);
    kernels::add_and_mean_magnitude(queue, sum.span(), input.input(), result);
    kernels::root_mean_square(queue, input.input(), result);
    kernels::add_and_root_mean_square(queue, sum.span(), input.input(), result);
    kernels::count_nonfinite(queue, input.input(), reinterpret_cast<std::uint64_t*>(total.data()));
    kernels::find_clip_factor(queue, input.input(), 1.0, 1.0, result);
    kernels::multiply(queue, input.input(), sum.input(),
                      reinterpret_cast<kernels::inner_products*>(total.data()));
    kernels::select_largest(queue, input.input(), 0, {indices.span(), sum.data()}, {});
    kernels::select_largest(queue, input.input(), 0, {indices.span().first(n / 1000), sum.data()},
                            {candidates.span(), their_indices.span()});
    const std::vector<kernels::copy_run> runs(5000, {input.data(), sum.data(), 0});
    kernels::copy_runs(queue, runs);
    kernels::matrix_times_thin(queue, input.data(), input.data(), {1, n, 1}, result);
    queue.synchronize();
  }
};

}  // namespace

TEST(Workspace, IsMadeOnceForAllKernels) {
  for (const std::size_t n : {0UL, 1UL, 4097UL, 100'003UL, 1UL << 20}) {
    kernels_with_room on(n);
    kernels::reserve(on.queue, n);
    const long reserved = dear_calls_so_far().allocations;
    on.run();
    kernels::reserve(on.queue, n / 2);
    EXPECT_EQ(dear_calls_so_far().allocations, reserved) << n;
  }
}

TEST(Workspace, GrowsWhereNobodyReservedIt) {
  kernels_with_room on(1UL << 20);
  const long before = dear_calls_so_far().allocations;
  on.run();
  EXPECT_GT(dear_calls_so_far().allocations, before);
}

TEST(StandInOfCUB, SaysWhatItWantsAndRefusesLess) {
  cuda::stream queue;
  const auto work = [] {};
  std::size_t bytes = 0;
  EXPECT_EQ(in_storage(100, nullptr, bytes, queue.native_handle(), work), cudaSuccess);
  EXPECT_EQ(bytes, 100u);
  const cuda::buffer<std::byte> room(bytes);
  EXPECT_EQ(in_storage(100, room.data(), bytes, queue.native_handle(), work), cudaSuccess);
  bytes = 99;
  EXPECT_EQ(in_storage(100, room.data(), bytes, queue.native_handle(), work),
            cudaErrorInvalidValue);
  queue.synchronize();
}

}  // namespace tutti::test
