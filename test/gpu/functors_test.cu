// A user's own functors on a stream, which nvcc compiles, and a compressor made of them. Where nvcc
// compiles this, headers_test.cu includes it.
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "consumer/readme_policies.hpp"
#include "gpu/compression_laws.hpp"
#include "gpu/device.hpp"
#include "support/device_training.hpp"
#include "tutti/base/cuda/loops.cuh"  // so that streams take functors where no nvcc reads this, too
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/transport/in_process_cuda.hpp"

namespace tutti::test {
namespace {

class Loops : public needs_a_device {};

// With an explicit template parameter, because nvcc rejects the lambda otherwise.
template <class Queue>
void fill_with_squares(Queue& queue, float* values, std::size_t n) {
  queue.for_each(n, [=] TUTTI_HD(std::size_t i) { values[i] = static_cast<float>(i * i); });
}

template <class Queue>
void sum_of_halves(Queue& queue, std::span<const float> input, float* result) {
  queue.transform_reduce(input, result, [] TUTTI_HD(float x) { return x * 0.5f; });
}

TEST_F(Loops, AFunctorIsCalledOnceForEachElement) {
  cuda::stream queue;
  inline_queue host;
  for (const std::size_t n : {0U, 1U, 255U, 257U, 100'000U}) {
    std::vector<float> here(n);
    const on_gpu<float> there(queue, n);
    fill_with_squares(host, here.data(), n);
    fill_with_squares(queue, there.data(), n);
    EXPECT_EQ(there.read(), here) << n;
    float sum = -1;
    const on_gpu<float> sum_there(queue, 1);
    sum_of_halves(host, std::span<const float>(here), &sum);
    sum_of_halves(queue, there.input(), sum_there.data());
    EXPECT_FLOAT_EQ(sum_there.read()[0], sum) << n;
  }
}

/// The README's compressor, whose loops are such functors.
TEST_F(Loops, APolicyOfFunctorsTrains) {
  using strategy = compose<compression::error_feedback<byte_codes>>;
  const auto here = train_scattered<strategy, transport::in_process>(3);
  EXPECT_EQ((train_scattered<strategy, transport::in_process_cuda>(3)), here);
}

using of_functors = testing::Types<byte_codes>;
INSTANTIATE_TYPED_TEST_SUITE_P(OfFunctors, DeviceCompression, of_functors);

}  // namespace
}  // namespace tutti::test
