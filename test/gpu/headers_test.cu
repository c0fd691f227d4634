// What users of nvcc compile themselves: kernels as headers, strategies, and their own functors.
// This links CUDA's runtime and no library of tutti's.
#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/functors_test.cu"  // in one unit, because nvcc needs half a minute for common headers
#include "tutti/base/cuda/stream.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/kernels/cuda/adam.cuh"
#include "tutti/kernels/cuda/adaptive_sum.cuh"
#include "tutti/kernels/cuda/arithmetic.cuh"
#include "tutti/kernels/cuda/bit_codes.cuh"
#include "tutti/kernels/cuda/block_codes.cuh"
#include "tutti/kernels/cuda/block_signs.cuh"
#include "tutti/kernels/cuda/cast.cuh"
#include "tutti/kernels/cuda/clipping.cuh"
#include "tutti/kernels/cuda/compensation.cuh"
#include "tutti/kernels/cuda/copies.cuh"
#include "tutti/kernels/cuda/descent.cuh"
#include "tutti/kernels/cuda/index_pairs.cuh"
#include "tutti/kernels/cuda/low_rank.cuh"
#include "tutti/kernels/cuda/momentum.cuh"
#include "tutti/kernels/cuda/norms.cuh"
#include "tutti/kernels/cuda/powers.cuh"
#include "tutti/kernels/cuda/selection.cuh"
#include "tutti/kernels/cuda/signs.cuh"
#include "tutti/kernels/cuda/sparse_pairs.cuh"
#include "tutti/kernels/cuda/stratified.cuh"
#include "tutti/kernels/cuda/workspace.cuh"
#include "tutti/strategies/horovod.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

// The same functor could run on a stream's queue, so extended lambdas must compile.
template <class Queue>
void halve(Queue& queue, float* values, std::size_t n) {
  queue.for_each(n, [=] TUTTI_HD(std::size_t i) { values[i] *= 0.5f; });
}

/// Returns a parameter that began as 0, after a step by a gradient of 1 that was halved from 2.
template <class Strategy>
float after_a_step() {
  float last = 0;
  transport::run_ranks(2, [&last](transport::in_process& world) {
    const std::array declared{arena::declaration{"weight", 3}, arena::declaration{"bias", 1}};
    arena memory(declared);
    auto engine =
        make_engine<Strategy>(world, memory.tensors(), optimizer::sgd{.learning_rate = 1.0f});
    for (float& each : memory.gradients()) {
      each = 2.0f;
    }
    halve(world.queue(), memory.gradients().data(), memory.gradients().size());
    engine.ready(tensor_id{1});
    engine.ready(tensor_id{0});
    engine.wait();
    if (world.rank() == 0) {
      last = memory.parameters()[0];
    }
  });
  return last;
}

}  // namespace

/// Strategies that nvcc has compiled also train where no GPU is.
TEST(OnAHost, StrategiesOfNvccTrain) {
  EXPECT_EQ(after_a_step<strategies::Horovod>(), -1.0f);
  EXPECT_EQ(after_a_step<compose<compression::error_feedback<compression::scaled_sign>>>(), -1.0f);
}

class Headers : public needs_a_device {};

TEST_F(Headers, KernelsNeedNoLibrary) {
  cuda::stream queue;
  const on_gpu x(queue, std::vector<float>{1, 2});
  const on_gpu g(queue, std::vector<float>{4, 8});
  kernels::descend(queue, x.span(), g.input(), {0.5f, 0.0f, 0.0f});
  EXPECT_EQ(x.read(), (std::vector<float>{-1, -2}));

  const on_gpu<std::uint16_t> half(queue, 2);
  kernels::narrow<kernels::half>(queue, g.input(), half.data());
  kernels::add_widened<kernels::half>(queue, half.data(), x.span());
  EXPECT_EQ(x.read(), (std::vector<float>{3, 6}));

  const on_gpu<std::uint32_t> words(queue, 1);
  kernels::negate(queue, g.span());
  kernels::pack_signs(queue, g.input(), words.data());
  kernels::add_signs(queue, words.data(), 1.0f, x.span());
  EXPECT_EQ(x.read(), (std::vector<float>{2, 5}));
  const on_gpu<float> votes(queue, 2);
  kernels::unpack_signs(queue, words.data(), 1.0f, votes.span());
  EXPECT_EQ(votes.read(), (std::vector<float>{-1, -1}));

  const std::size_t places = kernels::selection_candidates(2, 1);
  const on_gpu<float> room(queue, places);
  const on_gpu<std::uint32_t> room_of_indices(queue, places);
  const on_gpu<float> value(queue, 1);
  kernels::select_largest(queue, x.input(), 0, {words.span(), value.data()},
                          {room.span(), room_of_indices.span()});
  const kernels::copy_run back[] = {{value.data(), g.data(), 1}};
  kernels::copy_runs(queue, back);
  EXPECT_EQ(g.read(), (std::vector<float>{5, -8}));
  kernels::orthonormalise(queue, g.data(), 1, 1);
  EXPECT_EQ(g.read(), (std::vector<float>{1, -8}));
}

}  // namespace tutti::test
