// What nvcc must be able to compile: a strategy that is composed, trained and checked in a
// translation unit of its own.
#include <array>
#include <cstdio>
#include <vector>

#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/tutti.hpp"

namespace {

// The same functor could run on a stream's queue, so extended lambdas must compile.
template <class Queue>
void halve(Queue& queue, float* values, std::size_t n) {
  queue.for_each(n, [=] TUTTI_HD(std::size_t i) { values[i] *= 0.5f; });
}

template <class Strategy>
float train() {
  float last = 0;
  tutti::transport::run_ranks(2, [&last](tutti::transport::in_process& world) {
    const std::array declared{tutti::arena::declaration{"weight", 3},
                              tutti::arena::declaration{"bias", 1}};
    tutti::arena memory(declared);
    auto engine = tutti::make_engine<Strategy>(world, memory.tensors(),
                                               tutti::optimizer::sgd{.learning_rate = 1.0f});
    for (float& each : memory.gradients()) {
      each = 2.0f;
    }
    halve(world.queue(), memory.gradients().data(), memory.gradients().size());
    engine.ready(tutti::tensor_id{1});
    engine.ready(tutti::tensor_id{0});
    engine.wait();
    if (world.rank() == 0) {
      last = memory.parameters()[0];
    }
  });
  return last;
}

}  // namespace

int main() {
  const float dense = train<tutti::strategies::Horovod>();
  const float signs =
      train<tutti::compose<tutti::compression::error_feedback<tutti::compression::scaled_sign>>>();
  std::printf("%g %g\n", static_cast<double>(dense), static_cast<double>(signs));
  return dense == -1.0f && signs == -1.0f ? 0 : 1;
}
