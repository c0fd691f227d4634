// Two processes: one gradient each, whose mean comes back to both.
#include <cmath>
#include <cstdlib>
#include <tutti/strategies/horovod.hpp>
#include <tutti/transport/mpi.hpp>
#include <tutti/tutti.hpp>
#include <vector>

int main() {
  tutti::transport::mpi world;
  tutti::arena memory(std::vector<tutti::arena::declaration>{{"weight", 1000}});
  auto engine = tutti::make_engine<tutti::strategies::Horovod>(
      world, memory.tensors(), tutti::optimizer::sgd{.learning_rate = 1.0f});
  for (float& each : memory.gradients()) {
    each = static_cast<float>(world.rank());
  }
  engine.ready(tutti::tensor_id{0});
  engine.wait();
  const float mean = static_cast<float>(world.size() - 1) / 2;
  return std::abs(memory.parameters()[0] + mean) < 1e-6f ? EXIT_SUCCESS : EXIT_FAILURE;
}
