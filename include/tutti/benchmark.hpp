#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/median.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::benchmark {

/// The cores that this process may use, even if a launcher has bound its first thread to one of
/// them.
inline const std::vector<int>& cores() {
  static const std::vector<int> found = [] {
    std::vector<int> all;
    std::thread([&all] {
      cpu_set_t allowed;
      CPU_ZERO(&allowed);
      for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
        CPU_SET(core, &allowed);
      }
      pthread_setaffinity_np(pthread_self(), sizeof allowed, &allowed);
      pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed);
      for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(static_cast<std::size_t>(core), &allowed)) {
          all.push_back(core);
        }
      }
    }).join();
    return all;
  }();
  return found;
}

/// Binds the calling thread to one core, rank by rank, beginning again with the first core where
/// there are more ranks than cores.
inline void stay_on_core(int rank) {
  const auto& all = cores();
  if (!all.empty()) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(all[static_cast<std::size_t>(rank) % all.size()]), &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);  // if refused, nothing changes
  }
}

/// Returns the one-way latency of a cache line between two cores, in ns, or 0 if there is only one
/// core.
///
/// The cores of a virtual machine move between physical cores that share everything, a cache, or
/// nothing, and every figure changes with them. Only figures that were measured in the same state
/// can be compared.
inline double core_to_core_ns() {
  if (cores().size() < 2) {
    return 0;
  }
  constexpr int rounds = 3;
  constexpr std::uint32_t trips = 20000;
  alignas(128) std::atomic<std::uint32_t> ball{0};
  double best = 0;
  std::thread far([&ball] {
    stay_on_core(1);
    for (std::uint32_t hit = 1; hit < 2 * rounds * trips; hit += 2) {
      while (ball.load(std::memory_order_acquire) != hit) {
      }
      ball.store(hit + 1, std::memory_order_release);
    }
  });
  std::thread near([&ball, &best] {
    stay_on_core(0);
    std::uint32_t hit = 0;
    for (int round = 0; round < rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (std::uint32_t trip = 0; trip < trips; ++trip, hit += 2) {
        ball.store(hit + 1, std::memory_order_release);
        while (ball.load(std::memory_order_acquire) != hit + 2) {
        }
      }
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - begin;
      const double one_way = took.count() / (2.0 * trips);
      best = round == 0 ? one_way : std::min(best, one_way);
    }
  });
  near.join();
  far.join();
  return best;
}

/// Returns the cores' state: `smt` for two threads of one core, `ccx` for two cores on one cache,
/// `far` for no cache in common.
inline std::string_view core_to_core_state(double ns) {
  return ns < 35 ? "smt" : ns < 120 ? "ccx" : "far";
}

/// Records the state of the cores before and after a case, as counter `c2c_ns` and in the case's
/// label.
class core_to_core_note {
 public:
  explicit core_to_core_note(::benchmark::State& state)
      : state_(&state), before_(core_to_core_ns()) {}
  core_to_core_note(const core_to_core_note&) = delete;
  core_to_core_note& operator=(const core_to_core_note&) = delete;
  ~core_to_core_note() {
    const double after = core_to_core_ns();
    const auto began = core_to_core_state(before_);
    const auto ended = core_to_core_state(after);
    state_->counters["c2c_ns"] = (before_ + after) / 2;
    state_->SetLabel(began == ended ? std::string(began)
                                    : std::string(began) + ">" + std::string(ended));
  }

 private:
  ::benchmark::State* state_;
  double before_;
};

/// The interface of the model that a rank trains in a benchmark. With one interface for all models,
/// a strategy is compiled once and not once per model.
class model {
 public:
  model() = default;
  model(const model&) = delete;
  model& operator=(const model&) = delete;
  virtual ~model() = default;

  virtual const std::vector<tensor>& tensors() const = 0;
  /// Calls `use(id)` before it reads parameter `id`.
  virtual void forward(const std::function<void(tensor_id)>& use) = 0;
  /// Calls `done(id)` when gradient `id` is final.
  virtual void backward(const std::function<void(tensor_id)>& done) = 0;
  /// The number of samples on which a rank trains in one step.
  virtual std::size_t samples() const = 0;
};

/// A named model. `make(rank)` builds that of one rank.
struct model_choice {
  std::string name;
  std::function<std::unique_ptr<model>(int rank)> make;
};

/// A model of tensors of given sizes that only writes gradients. It shows what a step costs when
/// computing costs almost nothing.
class tensors_only : public model {
 public:
  explicit tensors_only(const std::vector<arena::declaration>& forward) : arena_(forward) {}

  const std::vector<tensor>& tensors() const override { return arena_.tensors(); }
  void forward(const std::function<void(tensor_id)>& use) override {
    for (std::uint32_t id = 0; id < tensors().size(); ++id) {
      use(tensor_id{id});
    }
  }
  void backward(const std::function<void(tensor_id)>& done) override {
    for (auto id = static_cast<std::uint32_t>(tensors().size()); id-- > 0;) {
      std::fill(tensors()[id].gradient.begin(), tensors()[id].gradient.end(), 1e-3F);
      done(tensor_id{id});
    }
  }
  std::size_t samples() const override { return 1; }

 private:
  arena arena_;
};

/// The 161 tensors of ResNet-50 (He et al., CVPR 2016) with a quarter of its channels: 1.6 million
/// parameters, most of them in few tensors and most tensors small.
inline std::vector<arena::declaration> quarter_resnet50() {
  std::vector<arena::declaration> all;
  const auto add = [&all](const std::string& name, std::size_t in, std::size_t out,
                          std::size_t kernel) {
    all.push_back({name + ".weight", in * out * kernel * kernel});
    all.push_back({name + ".norm.weight", out});
    all.push_back({name + ".norm.bias", out});
  };
  constexpr std::size_t blocks[] = {3, 4, 6, 3};
  add("conv1", 3, 16, 7);
  std::size_t in = 16;
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const std::size_t width = std::size_t{16} << stage;
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      add(name + ".conv1", in, width, 1);
      add(name + ".conv2", width, width, 3);
      add(name + ".conv3", width, 4 * width, 1);
      if (block == 0) {
        add(name + ".downsample", in, 4 * width, 1);
      }
      in = 4 * width;
    }
  }
  all.push_back({"fc.weight", in * 1000});
  all.push_back({"fc.bias", 1000});
  return all;
}

/// The models with which `add` measures by default.
inline const std::vector<model_choice>& default_models() {
  static const std::vector<model_choice> all = {
      {"quarter_resnet50", [](int) { return std::make_unique<tensors_only>(quarter_resnet50()); }}};
  return all;
}

namespace detail {

enum class work { computing, training };

/// Lets all workers take the same number of steps together, as worker 0 decides.
class pace {
 public:
  explicit pace(int workers) : took_(static_cast<std::size_t>(workers)), together_(workers) {}

  /// For worker 0: has every worker take `steps` steps and returns the seconds of the slowest
  /// worker.
  template <class Take>
  double lead(work what, std::size_t steps, const Take& take) {
    what_ = what;
    steps_ = steps;
    follow(0, take);
    return *std::max_element(took_.begin(), took_.end());
  }
  /// For the other workers: takes the steps that worker 0 has decided on. Returns false at the end.
  template <class Take>
  bool follow(std::size_t worker, const Take& take) {
    together_.arrive_and_wait();
    if (steps_ == 0 || failed_) {
      return false;
    }
    const auto begin = std::chrono::steady_clock::now();
    take(what_, steps_);
    took_[worker] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    together_.arrive_and_wait();
    return !failed_;
  }
  void end() {
    steps_ = 0;
    together_.arrive_and_wait();
  }
  /// Marks the job as failed. This worker is about to throw and takes no more steps.
  void fail() {
    failed_ = true;
    together_.arrive_and_drop();
  }
  bool failed() const { return failed_; }

 private:
  work what_{};
  std::size_t steps_ = 0;
  std::vector<double> took_;
  std::atomic<bool> failed_{false};
  std::barrier<> together_;
};

/// For worker 0: takes batches of steps for as long as Google Benchmark asks, and sets the case's
/// counters.
template <class Engine, class Take>
void measure(::benchmark::State& state, Engine& engine, const model& trained, pace& all,
             const Take& take) {
  constexpr std::size_t warm_up = 3;
  constexpr double batch_seconds = 0.05;
  const double once = all.lead(work::training, warm_up, take) / warm_up;
  const auto steps =
      std::clamp(static_cast<std::size_t>(batch_seconds / once), std::size_t{4}, std::size_t{1000});
  std::vector<double> computing;
  for (int batch = 0; batch < 5; ++batch) {
    computing.push_back(all.lead(work::computing, steps, take));
  }
  const auto before = engine.report();
  std::vector<double> training;
  while (!all.failed() && state.KeepRunningBatch(static_cast<::benchmark::IterationCount>(steps))) {
    training.push_back(all.lead(work::training, steps, take));
    state.SetIterationTime(training.back());
  }
  if (all.failed()) {
    return;
  }
  all.end();
  const auto after = engine.report();
  const auto taken = static_cast<double>(steps * training.size());
  const double iteration = median(training) / static_cast<double>(steps);
  auto& counters = state.counters;
  counters["iteration_ms"] = 1e3 * iteration;
  counters["lower_bound_ms"] = 1e3 * median(computing) / static_cast<double>(steps);
  counters["samples_per_second"] =
      static_cast<double>(trained.samples()) * engine.workers() / iteration;
  counters["exposed_ms"] = 1e3 * (after.exposed - before.exposed) / taken;
  counters["bytes_sent_per_rank"] =
      static_cast<double>(after.traffic.bytes_sent - before.traffic.bytes_sent) / taken;
  counters["workers"] = engine.workers();
}

template <class Engine>
void work_on(::benchmark::State& state, Engine& engine, model& trained, pace& all) {
  const auto take = [&](work what, std::size_t steps) {
    const bool training = what == work::training;
    const std::function<void(tensor_id)> use = [&](tensor_id id) {
      if (training) {
        engine.wait(id);
      }
    };
    const std::function<void(tensor_id)> done = [&](tensor_id id) {
      if (training) {
        engine.ready(id);
      }
    };
    for (std::size_t step = 0; step < steps; ++step) {
      trained.forward(use);
      trained.backward(done);
    }
    engine.wait();
  };
  if (engine.worker() == 0) {
    measure(state, engine, trained, all, take);
  } else {
    while (all.follow(static_cast<std::size_t>(engine.worker()), take)) {
    }
  }
}

template <class Strategy>
void run(::benchmark::State& state, const model_choice& choice, int ranks,
         const engine_options<Strategy>& options) {
  const core_to_core_note cores(state);
  try {
    const int workers =
        workers_among<typename strategy_of<Strategy>::architecture>(options.architecture, ranks);
    pace all(workers);
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      try {
        const auto trained = choice.make(world.rank());
        auto engine = make_engine<Strategy>(world, trained->tensors(),
                                            optimizer::sgd{.learning_rate = 1e-3F}, options);
        if (engine.serves()) {
          engine.serve();
        } else {
          work_on(state, engine, *trained, all);
        }
      } catch (...) {
        if (world.rank() < workers) {
          all.fail();
        }
        throw;
      }
    });
  } catch (const std::exception& failure) {
    state.SkipWithError(failure.what());
  }
}

}  // namespace detail

/// A simulated job: a model that computes as its profile says, its workers, and the links between
/// them. Nothing of it depends on the machine that simulates it.
struct replayed_choice {
  std::string model{};
  std::vector<computation> profile{};  ///< of each tensor, in forward order
  std::size_t batch{1};                ///< samples per iteration and worker
  transport::device device{};
  std::string link{};  ///< the link's name in cases
  transport::link nic{};
  int workers{4};
};

namespace detail {

/// Returns among how many ranks so many train. Throws usage_error unless as many ranks do not train
/// there as among very many.
template <class Architecture>
int ranks_with(int workers, const options_of<Architecture>& options) {
  constexpr int many = 1 << 20;
  const int ranks = workers + many - workers_among<Architecture>(options, many);
  if (workers_among<Architecture>(options, ranks) != workers) {
    throw usage_error(
        sentence({"it is not known among how many ranks ", workers,
                  " train. Fix: let as many ranks serve whatever the number of all"}));
  }
  return ranks;
}

template <class Strategy>
replayed simulated(const replayed_choice& choice, const engine_options<Strategy>& options) {
  const int ranks = ranks_with<typename strategy_of<Strategy>::architecture>(choice.workers,
                                                                             options.architecture);
  replay<Strategy> job(choice.profile, options, payloads::counted);
  transport::run_simulated(transport::network(ranks, choice.nic), choice.device,
                           [&](transport::simulated& world) { return job(world); });
  return job.result();
}

template <class Strategy>
void simulate(::benchmark::State& state, const replayed_choice& choice,
              const engine_options<Strategy>& options) {
  replayed found;
  try {
    for (auto _ : state) {
      found = simulated<Strategy>(choice, options);
      state.SetIterationTime(found.mean());
    }
  } catch (const std::exception& failure) {
    state.SkipWithError(failure.what());
    return;
  }
  const seconds iteration = found.mean();
  auto& counters = state.counters;
  counters["iteration_ms"] = 1e3 * iteration;
  counters["wire_bound_ms"] = 1e3 * found.on_the_wire(choice.nic.bytes_per_second);
  counters["lower_bound_ms"] = 1e3 * found.bound(choice.nic.bytes_per_second);
  counters["samples_per_second"] = static_cast<double>(choice.batch) * choice.workers / iteration;
  counters["exposed_ms"] = 1e3 * std::max(0.0, iteration - found.compute());
  counters["bytes_sent_per_rank"] =
      static_cast<double>(found.bytes_sent) / static_cast<double>(found.iterations.size());
  counters["workers"] = choice.workers;
}

}  // namespace detail

/// Registers `Strategy` under `name` for each of these jobs, as cases
/// `name/model/simulated/link/ranks:N`. A case's time is that of a simulated iteration, equal on
/// every machine. Counters: those of `add` except c2c_ns, and wire_bound_ms. Here lower_bound_ms is
/// the bound by computing and by the busiest NIC together.
template <class Strategy>
std::size_t add_simulated(const std::string& name, const std::vector<replayed_choice>& jobs,
                          const engine_options<Strategy>& options = {}) {
  for (const auto& each : jobs) {
    const std::string full = name + "/" + each.model + "/simulated/" + each.link +
                             "/ranks:" + std::to_string(each.workers);
    ::benchmark::RegisterBenchmark(full.c_str(),
                                   [each, options](::benchmark::State& state) {
                                     detail::simulate<Strategy>(state, each, options);
                                   })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(::benchmark::kMillisecond);
  }
  return jobs.size();
}

/// Registers `Strategy` under `name`, as cases `name/model/real/ranks:N` for every model and for 2
/// and 4 ranks in this process, timed by the slowest worker. Returns the number of cases, so that
/// one line outside any function is enough:
///
///     const auto mine_is_added = tutti::benchmark::add<Mine>("mine");
///     BENCHMARK_MAIN();
///
/// Counters: iteration_ms (median of batches), lower_bound_ms (the same ranks computing and sending
/// nothing), samples_per_second, exposed_ms, bytes_sent_per_rank (messages; what ranks read from
/// each other's memory is not counted), workers, c2c_ns.
template <class Strategy>
std::size_t add(const std::string& name, const std::vector<model_choice>& models = default_models(),
                const engine_options<Strategy>& options = {}) {
  std::size_t added = 0;
  for (const auto& each : models) {
    for (const int ranks : {2, 4}) {
      const std::string full = name + "/" + each.name + "/real/ranks:" + std::to_string(ranks);
      ::benchmark::RegisterBenchmark(full.c_str(),
                                     [each, ranks, options](::benchmark::State& state) {
                                       detail::run<Strategy>(state, each, ranks, options);
                                     })
          ->UseManualTime()
          ->Unit(::benchmark::kMillisecond);
      ++added;
    }
  }
  return added;
}

}  // namespace tutti::benchmark
