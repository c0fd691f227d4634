// What only nvcc's users have: functors of their own on a stream, and policies made of them.
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "support/device_training.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/transport/in_process_cuda.hpp"

namespace tutti::test {

class Loops : public needs_a_device {};

// Spelt with a named parameter, or nvcc rejects the lambda.
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
  for (const std::size_t n : {0, 1, 255, 257, 100'000}) {
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

/// A compressor of a user's: floats of half the size, exactly.
struct halved {
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  static std::size_t wire_bytes(std::size_t elements) { return elements * sizeof(float); }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    const float* from = gradient.data();
    float* to = out.header<float>();
    queue.for_each(gradient.size(), [=] TUTTI_HD(std::size_t i) { to[i] = 0.5f * from[i]; });
  }
  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    const float* from = in.header<float>();
    float* to = sum.data();
    queue.for_each(sum.size(), [=] TUTTI_HD(std::size_t i) { to[i] += 2.0f * from[i]; });
  }
};
static_assert(compression_policy<halved>);

TEST_F(Loops, APolicyOfFunctorsTrains) {
  using strategy = compose<halved>;
  const auto here = train_scattered<strategy, transport::in_process>(3);
  EXPECT_EQ((train_scattered<strategy, transport::in_process_cuda>(3)), here);
}

}  // namespace tutti::test
