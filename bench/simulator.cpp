// How fast is the simulator, in events a second on one core? A message is two events: its first
// byte arrives, and its last byte has passed. Rings alone are measured, and whole training steps.
//
//   bench-simulator

#include <benchmark/benchmark.h>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/add_floats.hpp"
#include "program.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/strategies/byteps.hpp"
#include "tutti/strategies/ddp.hpp"
#include "tutti/transport/simulated.hpp"

namespace bench {

namespace {

using tutti::transport::link;
using tutti::transport::simulated;
using tutti::transport::simulated_run;

constexpr link ten_gbit{1.25e9, 50e-6};
constexpr double aim = 10e6;  // events a second

void count(benchmark::State& state, std::uint64_t events) {
  const auto all = static_cast<double>(events) * static_cast<double>(state.iterations());
  state.counters["events"] = static_cast<double>(events);
  state.counters["events_per_s"] = benchmark::Counter(all, benchmark::Counter::kIsRate);
  state.counters["of_aim"] = benchmark::Counter(all / aim, benchmark::Counter::kIsRate);
}

/// All-reduces in rings without data, several in flight on every rank.
void rings(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  constexpr std::uint32_t at_once = 4;
  const auto ring = [](simulated& world, std::uint32_t chunk) -> tutti::task {
    const tutti::reduction<add_floats> data{nullptr, 1 << 20, sizeof(float), {&uncompressed}};
    co_await tutti::collective::ring{}.all_reduce(
        tutti::endpoint<simulated>(world, tutti::tag{tutti::channel::data, chunk, 0}), data);
  };
  const auto body = [&](simulated& world) -> tutti::task {
    std::vector<tutti::task> running;
    for (std::uint32_t chunk = 0; chunk < at_once; ++chunk) {
      running.push_back(ring(world, chunk));
      running.back().start(world.ready_coroutines());
    }
    for (tutti::task& each : running) {
      co_await each;
    }
  };
  simulated_run last;
  for (auto _ : state) {
    last = tutti::transport::run_simulated(ranks, ten_gbit, body);
  }
  count(state, last.events);
}

/// Training steps of a model of ResNet-50's size, in 161 tensors.
template <class Strategy>
void steps(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  const std::vector<tutti::computation> model(161, {"layer", 158'740, 0.5e-3, 1e-3});
  simulated_run last;
  for (auto _ : state) {
    tutti::replay<Strategy> job(model, {}, tutti::payloads::counted,
                                {.iterations = 2, .warmup = 1});
    last = tutti::transport::run_simulated(ranks, ten_gbit,
                                           [&](simulated& world) { return job(world); });
  }
  count(state, last.events);
}

BENCHMARK(rings)->RangeMultiplier(8)->Range(2, 1024)->Unit(benchmark::kMillisecond);
BENCHMARK(steps<tutti::strategies::DDP>)->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK(steps<tutti::strategies::BytePS>)->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace

}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
