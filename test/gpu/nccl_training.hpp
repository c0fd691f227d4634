#pragma once

#include <vector>

#include "support/device_training.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/nccl.hpp"

namespace tutti::test {

/// Calls `body(world)` on threads that each own a device.
template <class Body>
void run_on_devices(int ranks, const Body& body) {
  transport::run_ranks(ranks, [&](transport::in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    transport::nccl<transport::in_process> world(carrier);
    body(world);
  });
}

/// Returns rank 0's parameters after all steps over NCCL, with threads that each own a device.
template <class Strategy>
std::vector<float> train_by_nccl(int ranks, engine_options<Strategy> options = {}) {
  std::vector<float> result;
  run_on_devices(ranks, [&](transport::nccl<transport::in_process>& world) {
    cuda::stream compute;
    scattered_model<cuda::stream> model(compute);
    auto engine = make_engine<Strategy>(world, model.tensors(), device_optimizer(), options);
    take_steps(engine, model, compute, 0, device_steps);
    if (world.rank() == 0) {
      result = model.parameters();
    }
  });
  return result;
}

}  // namespace tutti::test
