// The READMEs' policies composed, trained and simulated.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <tutti/architecture/all_gather.hpp>
#include <tutti/architecture/all_reduce.hpp>
#include <tutti/architecture/parameter_server.hpp>
#include <tutti/compression/error_feedback.hpp>
#include <tutti/core/replay.hpp>
#include <tutti/partition/into.hpp>
#include <tutti/transport/simulated.hpp>
#include <tutti/tutti.hpp>
#include <vector>

#include "readme_policies.hpp"

// example-begin strategies
using Coded = tutti::compose<tutti::compression::error_feedback<byte_codes>>;
using Mine = tutti::compose<tutti::architecture::all_reduce<by_rank_0>, newest_first>;
using Gossip = tutti::compose<neighbours>;
// example-end

/// The largest parameter after steps that shrink each.
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

/// What every rank's monitor says after a step in which so many of 308 elements are zero, of ranks
/// 0 and 1.
double zeros_seen(std::size_t of_rank_0, std::size_t of_rank_1) {
  double seen = 0;
  tutti::transport::run_ranks(2, [&](tutti::transport::in_process& world) {
    tutti::arena memory(std::vector<tutti::arena::declaration>{{"weight", 301}, {"bias", 7}});
    auto engine = tutti::make_engine<tutti::compose<>>(
        world, memory.tensors(), tutti::optimizer::sgd{}, {}, zeros{.tensors = memory.tensors()});
    std::fill(memory.gradients().begin(), memory.gradients().end(), 1.0f);
    std::fill_n(memory.gradients().begin(), world.rank() == 0 ? of_rank_0 : of_rank_1, 0.0f);
    for (unsigned id = 2; id-- > 0;) engine.ready(tutti::tensor_id{id});
    engine.drain();
    if (world.rank() == 1) seen = engine.observed().share;
  });
  return seen;
}

/// The largest distance of a parameter to the mean of what the ranks see, after training.
template <class Strategy>
float distance_left(int ranks, tutti::engine_options<Strategy> options = {}) {
  std::vector<float> left(static_cast<std::size_t>(ranks));
  const float mean = static_cast<float>(ranks - 1) / 2;
  tutti::transport::run_ranks(ranks, [&](tutti::transport::in_process& world) {
    tutti::arena memory(std::vector<tutti::arena::declaration>{{"weight", 301}, {"bias", 7}});
    auto engine = tutti::make_engine<Strategy>(
        world, memory.tensors(), tutti::optimizer::sgd{.learning_rate = 0.1f}, options);
    for (int step = 0; step < 100; ++step) {
      engine.wait();
      for (std::size_t i = 0; i < memory.parameters().size(); ++i)
        memory.gradients()[i] = memory.parameters()[i] - static_cast<float>(world.rank());
      for (unsigned id = 2; id-- > 0;) engine.ready(tutti::tensor_id{id});
    }
    engine.wait();
    for (const float each : memory.parameters())
      left[static_cast<std::size_t>(world.rank())] =
          std::max(left[static_cast<std::size_t>(world.rank())], std::abs(each - mean));
  });
  return *std::max_element(left.begin(), left.end());
}

/// Milliseconds of a simulated step.
template <class Strategy>
double simulated_step(int ranks) {
  tutti::replay<Strategy> job({{"weight", 1'000'000, 1e-3, 1e-3}},
                              tutti::engine_options<Strategy>{}, tutti::payloads::counted,
                              {.iterations = 2, .warmup = 1});
  tutti::transport::run_simulated(ranks, tutti::transport::link{1e9, 0},
                                  [&](tutti::transport::simulated& world) { return job(world); });
  return 1e3 * job.result().quantile(0.5);
}

int main() {
  using tutti::compression::error_feedback;
  const float coded = std::max(
      {largest_after_training<Coded>(3),
       largest_after_training<
           tutti::compose<error_feedback<byte_codes>, tutti::architecture::all_gather>>(2),
       largest_after_training<
           tutti::compose<error_feedback<byte_codes>, tutti::architecture::parameter_server<>>>(
           3)});
  const float added = std::max(distance_left<Mine>(1), distance_left<Mine>(4));
  using cut = tutti::compose<tutti::architecture::all_reduce<by_rank_0>, newest_first,
                             tutti::partition::into>;
  const float pieces = distance_left<cut>(3, {.partition = {.bytes = 64}});
  // Three ranks are everybody's neighbours; of more, each stays near its own data.
  const float near = distance_left<Gossip>(3);
  const float far = distance_left<Gossip>(5);
  std::printf("left: %g coded, %g, %g in pieces, %g with both neighbours, %g among five\n", coded,
              added, pieces, near, far);
  // 2 ms of compute and 4 MB through a NIC of 1 GB/s, so often.
  const double star = simulated_step<Mine>(3);
  const double gossip = simulated_step<Gossip>(5);
  std::printf("simulated steps: %g and %g ms\n", star, gossip);
  if (std::abs(star - (2 + 2 * 8)) > 0.01 || std::abs(gossip - (2 + 2 * 4)) > 0.01) {
    return EXIT_FAILURE;
  }
  if (zeros_seen(7, 70) != 77.0 / 616) {
    return EXIT_FAILURE;
  }
  return coded < 0.01f && added < 1e-3f && pieces < 1e-3f && near < 1e-3f && far > 1e-2f &&
                 far < 0.5f
             ? EXIT_SUCCESS
             : EXIT_FAILURE;
}
