// What does the engine add to the communication that it starts? The nanoseconds a tensor and step,
// beside the same collectives in a loop written by hand, and the costs of its functions, of an
// await and of a message. Resumptions of coroutines are not reported: a sum in shared memory is
// resumed once if its peers are late, which `ready` could avoid only by spinning at the trainer's
// expense (transport/in_process/endpoint.hpp).
//
//   bench-engine

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <thread>
#include <vector>

#include "collectives/add_floats.hpp"
#include "engine/allocations.hpp"
#include "program.hpp"
#include "tutti/base/median.hpp"
#include "tutti/benchmark.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/strategies/bsp.hpp"
#include "tutti/strategies/wfbp.hpp"

namespace bench {

namespace {

using tutti::median;
using tutti::tensor_id;
using tutti::benchmark::detail::pace;
using tutti::benchmark::detail::work;
using tutti::transport::in_process;

constexpr std::uint32_t tensors = 161;  // as many as ResNet-50 has

tutti::arena one_element_each() {
  return tutti::arena(std::vector<tutti::arena::declaration>(tensors, {"one", 1}));
}

/// Lets the rank's caller make progress, because a progress thread would be measured as latency.
template <class Strategy>
tutti::engine_options<Strategy> by_caller() {
  tutti::engine_options<Strategy> options;
  options.run.progress = tutti::progress::by_caller;
  return options;
}

/// One tensor of a step by hand: it is summed and averaged in a coroutine of its own.
tutti::task sum_one(in_process& world, std::uint32_t chunk, std::span<float> gradient) {
  const tutti::reduction<add_floats> data{reinterpret_cast<std::byte*>(gradient.data()),
                                          gradient.size(),
                                          sizeof(float),
                                          {&uncompressed}};
  co_await tutti::collective::addressable{}.all_reduce(
      tutti::endpoint<in_process>(world, tutti::tag{tutti::channel::data, chunk, 0}), data);
  for (float& each : gradient) {
    each /= static_cast<float>(world.size());
  }
}

tutti::task sum_all(in_process& world, const std::vector<tutti::tensor>& all, std::size_t steps) {
  constexpr std::uint32_t after_the_engines_own = 4096;
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::uint32_t i = tensors; i-- > 0;) {
      co_await sum_one(world, after_the_engines_own + i, all[i].gradient);
    }
  }
}

template <class Engine>
void step(Engine& engine) {
  for (std::uint32_t i = tensors; i-- > 0;) {
    engine.ready(tensor_id{i});
  }
  engine.wait();
}

/// Delays every rank once, so that each has had the most messages in flight that it can have. Later
/// steps then find all of their memory allocated.
template <class Engine>
void warm_up(Engine& engine) {
  for (int late = 0; late < engine.workers(); ++late) {
    if (late == engine.worker()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    step(engine);
  }
}

/// Takes steps by the engine and by hand in turn.
template <class Take>
void measure_steps(benchmark::State& state, pace& all, const Take& take) {
  constexpr std::size_t steps = 50;
  constexpr double in_ns = 1e9 / (static_cast<double>(steps) * tensors);
  std::vector<double> engine;
  std::vector<double> by_hand;
  all.lead(work::training, steps, take);
  all.lead(work::computing, steps, take);
  std::size_t allocated = 0;
  while (state.KeepRunningBatch(steps)) {
    const std::size_t before = allocations();
    const double took = all.lead(work::training, steps, take);
    allocated += allocations() - before;
    engine.push_back(took);  // after counting, because it allocates
    state.SetIterationTime(took);
    by_hand.push_back(all.lead(work::computing, steps, take));
  }
  all.end();
  state.counters["ns_per_tensor"] = median(engine) * in_ns;
  state.counters["by_hand_ns_per_tensor"] = median(by_hand) * in_ns;
  state.counters["engine_ns_per_tensor"] = (median(engine) - median(by_hand)) * in_ns;
  state.counters["allocations_per_step"] =
      static_cast<double>(allocated) / static_cast<double>(steps * engine.size());
}

void tensor_and_step(benchmark::State& state) {
  const tutti::benchmark::core_to_core_note cores(state);
  const int ranks = static_cast<int>(state.range(0));
  pace all(ranks);
  tutti::transport::run_ranks(ranks, [&](in_process& world) {
    tutti::benchmark::stay_on_core(world.rank());
    const auto model = one_element_each();
    auto engine = tutti::make_engine<tutti::strategies::WFBPUnlimited>(
        world, model.tensors(), {}, by_caller<tutti::strategies::WFBPUnlimited>());
    warm_up(engine);
    const auto take = [&](work what, std::size_t steps) {
      if (what == work::computing) {
        drive(world, sum_all(world, model.tensors(), steps));
        return;
      }
      for (std::size_t i = 0; i < steps; ++i) {
        step(engine);
      }
    };
    if (world.rank() == 0) {
      measure_steps(state, all, take);
    } else {
      while (all.follow(static_cast<std::size_t>(world.rank()), take)) {
      }
    }
  });
}

/// Runs `body` with an engine in a job of one rank.
template <class Strategy, class Body>
void alone(const tutti::engine_options<Strategy>& options, Body body) {
  tutti::transport::run_ranks(1, [&](in_process& world) {
    const auto model = one_element_each();
    auto engine = tutti::make_engine<Strategy>(world, model.tensors(), {}, options);
    body(world, engine);
  });
}
template <class Strategy, class Body>
void alone(Body body) {
  alone<Strategy>(by_caller<Strategy>(), body);
}

double seconds_of(const auto& what) {
  const auto begin = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Measures how much of a core a progress thread uses while its engine has nothing to do.
void idle(benchmark::State& state) {
  tutti::engine_options<tutti::strategies::BSP> options;
  options.run.progress = tutti::progress::by_thread;
  alone<tutti::strategies::BSP>(options, [&](in_process&, auto& engine) {
    step(engine);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const std::clock_t begin = std::clock();
    const double wall = seconds_of([&] {
      for (auto _ : state) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
      }
    });
    state.counters["of_a_core"] = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / wall;
  });
}

/// Measures `ready` for all tensors of a bucket but the last, so that nothing is launched.
void ready(benchmark::State& state) {
  alone<tutti::strategies::BSP>([&](in_process&, auto& engine) {
    while (state.KeepRunningBatch(tensors - 1)) {
      state.SetIterationTime(seconds_of([&] {
        for (std::uint32_t i = tensors - 1; i > 0; --i) {
          engine.ready(tensor_id{i});
        }
      }));
      engine.ready(tensor_id{0});
      engine.wait();
    }
  });
}

void wait_for_current(benchmark::State& state) {
  alone<tutti::strategies::BSP>([&](in_process&, auto& engine) {
    while (state.KeepRunningBatch(tensors)) {
      state.SetIterationTime(seconds_of([&] {
        for (std::uint32_t i = 0; i < tensors; ++i) {
          engine.wait(tensor_id{i});
        }
      }));
    }
  });
}

template <class Engine>
tutti::task await_arrivals(Engine& engine, int times) {
  for (int i = 0; i < times; ++i) {
    co_await engine.arrival(tensor_id{0});
  }
}

void completed_await(benchmark::State& state) {
  alone<tutti::strategies::BSP>([&](in_process& world, auto& engine) {
    constexpr int times = 10000;
    while (state.KeepRunningBatch(times)) {
      state.SetIterationTime(seconds_of([&] { drive(world, await_arrivals(engine, times)); }));
    }
  });
}

tutti::task nothing() { co_return; }
tutti::task await_tasks(int times) {
  for (int i = 0; i < times; ++i) {
    co_await nothing();
  }
}

void completed_task(benchmark::State& state) {
  tutti::run_queue queue;
  constexpr int times = 10000;
  while (state.KeepRunningBatch(times)) {
    state.SetIterationTime(seconds_of([&] {
      auto all = await_tasks(times);
      all.start(queue);
      queue.drain();
    }));
  }
}

/// Sends a byte there and back. One way is half of the time. With one rank it measures what the
/// transport itself costs.
tutti::task bounce(in_process& world, int times) {
  std::byte ball{};
  const tutti::tag where{tutti::channel::data, 0, 0};
  const int peer = world.size() - 1 - world.rank();
  for (int i = 0; i < times; ++i) {
    if (world.rank() == 0 && world.size() == 2) {
      co_await world.send(peer, where, std::span(&ball, 1));
      co_await world.receive(peer, where, std::span(&ball, 1));
    } else if (world.size() == 2) {
      co_await world.receive(peer, where, std::span(&ball, 1));
      co_await world.send(peer, where, std::span(&ball, 1));
    } else {
      std::byte hand{};
      co_await world.exchange(0, std::span(&ball, 1), 0, std::span(&hand, 1), where);
    }
  }
}

void message(benchmark::State& state) {
  const tutti::benchmark::core_to_core_note cores(state);
  const int ranks = static_cast<int>(state.range(0));
  const int ways = ranks;  // messages one after another in a bounce
  constexpr int times = 2000;
  pace all(ranks);
  tutti::transport::run_ranks(ranks, [&](in_process& world) {
    tutti::benchmark::stay_on_core(world.rank());
    const auto take = [&](work, std::size_t) { drive(world, bounce(world, times)); };
    if (world.rank() == 0) {
      while (state.KeepRunningBatch(times * ways)) {
        state.SetIterationTime(all.lead(work::training, 1, take));
      }
      all.end();
    } else {
      while (all.follow(1, take)) {
      }
    }
  });
}

BENCHMARK(tensor_and_step)
    ->Name("engine/tensor_and_step")
    ->ArgName("ranks")
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(idle)->Name("engine/idle")->Iterations(3)->Unit(benchmark::kMillisecond);
BENCHMARK(ready)->Name("engine/ready")->UseManualTime();
BENCHMARK(wait_for_current)->Name("engine/wait/current")->UseManualTime();
BENCHMARK(completed_await)->Name("engine/arrival/current")->UseManualTime();
BENCHMARK(completed_task)->Name("task/completed")->UseManualTime();
BENCHMARK(message)->Name("message/one_byte")->ArgName("ranks")->Arg(1)->Arg(2)->UseManualTime();

}  // namespace

}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
