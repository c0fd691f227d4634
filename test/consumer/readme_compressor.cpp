// The README's compressor: written outside tutti, composed with tutti's error feedback, and
// trained.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <tutti/architecture/all_gather.hpp>
#include <tutti/architecture/parameter_server.hpp>
#include <tutti/compression/error_feedback.hpp>
#include <tutti/tutti.hpp>
#include <vector>

#include "byte_codes.hpp"

template <class Strategy>
float largest_after_training(int ranks) {
  float largest = 0;
  tutti::transport::run_ranks(ranks, [&](tutti::transport::in_process& world) {
    tutti::arena memory(std::vector<tutti::arena::declaration>{{"weight", 301}});
    for (std::size_t i = 0; i < memory.parameters().size(); ++i) {
      memory.parameters()[i] = static_cast<float>(i % 13) - 6.0f;
    }
    auto engine = tutti::make_engine<Strategy>(world, memory.tensors(),
                                               tutti::optimizer::sgd{.learning_rate = 0.2f});
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < 60; ++step) {
      std::copy(memory.parameters().begin(), memory.parameters().end(), memory.gradients().begin());
      engine.ready(tutti::tensor_id{0});
      engine.wait();
    }
    if (world.rank() == 0) {
      for (const float each : memory.parameters()) {
        largest = std::max(largest, std::abs(each));
      }
    }
  });
  return largest;
}

int main() {
  using tutti::compression::error_feedback;
  const float worst = std::max(
      {largest_after_training<Mine>(3),
       largest_after_training<
           tutti::compose<error_feedback<byte_codes>, tutti::architecture::all_gather>>(2),
       largest_after_training<
           tutti::compose<error_feedback<byte_codes>, tutti::architecture::parameter_server<>>>(
           3)});
  std::printf("largest parameter left: %g\n", static_cast<double>(worst));
  return worst < 0.01f ? EXIT_SUCCESS : EXIT_FAILURE;
}
