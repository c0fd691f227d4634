// expect: tutti: this policy's work is host code, but the queue is a cuda::stream, whose memory the host cannot reach. Fix: write it with queue.for_each or a function of tutti::kernels, or train over transport::in_process.
#include <cstddef>
#include <cstring>
#include <span>

#include "tutti/transport/in_process_cuda.hpp"
#include "tutti/tutti.hpp"

/// A compressor whose author thought of hosts.
struct plain_copy {
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  static std::size_t wire_bytes(std::size_t elements) { return elements * sizeof(float); }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, tutti::wire out) const {
    queue.run([=] { std::memcpy(out.data, gradient.data(), out.size); });
  }
  template <class Queue>
  void accumulate(Queue& queue, tutti::const_wire in, std::span<float> sum) const {
    tutti::kernels::add(queue, sum, in.as<float>());
  }
};

#ifdef GOOD
using network = tutti::transport::in_process;
#else
using network = tutti::transport::in_process_cuda;
#endif

void train(network& world) {
  auto engine = tutti::make_engine<tutti::compose<plain_copy>>(world, {});
  engine.wait();
}
