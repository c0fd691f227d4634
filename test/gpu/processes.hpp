#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

#include "support/device_training.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {

/// Trains this process on a device, and then again with threads of a CPU. Returns the greatest
/// difference, which is NaN where a value is, and 0 on a server.
template <class Strategy, class World>
float difference(World& world) {
  cuda::stream compute;
  scattered_model<cuda::stream> model(compute);
  {
    auto engine = make_engine<Strategy>(world, model.tensors(), device_optimizer());
    if (engine.serves()) {
      engine.serve();
      return 0;
    }
    take_steps(engine, model, compute, 0, device_steps);
  }
  const auto expected = train_scattered<Strategy, transport::in_process>(world.size());
  const auto got = model.parameters();
  float greatest = got.size() == expected.size() ? 0.0f : 1.0f;
  for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i) {
    const float off = std::abs(got[i] - expected[i]);
    if (off > greatest || std::isnan(off)) {
      greatest = off;
    }
  }
  std::printf("%s, rank %d of %d: off by %g\n", std::string(Strategy::name).c_str(), world.rank(),
              world.size(), static_cast<double>(greatest));
  return greatest;
}

}  // namespace tutti::test
