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

// example-begin compressor
/// One byte an element, and one scale a chunk: the largest magnitude is 127.
struct byte_codes {
  using role = tutti::role::compression;
  static constexpr bool summable = false;  // codes of different scales do not add

  static std::size_t wire_bytes(std::size_t elements) { return sizeof(float) + elements; }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, tutti::wire wire) const {
    queue.run([=] {
      float largest = 0;
      for (const float each : gradient) largest = std::max(largest, std::abs(each));
      const float scale = *wire.header<float>() = largest > 0 ? largest / 127 : 1;
      for (std::size_t i = 0; i < gradient.size(); ++i)
        wire.body<float>()[i] = std::byte(static_cast<int>(std::lround(gradient[i] / scale)));
    });
  }
  template <class Queue>
  void accumulate(Queue& queue, tutti::const_wire wire, std::span<float> sum) const {
    queue.run([=] {
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += *wire.header<float>() * static_cast<signed char>(wire.body<float>()[i]);
    });
  }
};
static_assert(tutti::compression_policy<byte_codes>);

using Mine = tutti::compose<tutti::compression::error_feedback<byte_codes>>;
// example-end

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
