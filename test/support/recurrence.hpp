#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "support/oracle.hpp"
#include "support/training.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"

/// Checks architectures in one frame, each against its recurrence in plain double loops. The runs
/// have several passes a step, pieces and buckets, and a checkpoint on the way.
namespace tutti::test::recurring {

inline constexpr int steps = 9;
inline constexpr unsigned passes = 2;
inline constexpr sgd_values values{};

/// One element's parameter and momentum on one worker.
struct replica {
  double x;
  double m = 0;

  void step(double gradient) {
    m = values.momentum * m + (gradient + values.weight_decay * x);
    x -= values.learning_rate * m;
  }
};
using replicas = std::vector<replica>;

/// Returns a worker's own gradient in a step: the mean over its passes.
inline double own_gradient(int worker, int step, std::size_t element) {
  double sum = 0;
  for (unsigned pass = 0; pass < passes; ++pass) {
    sum += gradient(worker, step * static_cast<int>(passes) + static_cast<int>(pass), element);
  }
  return sum / passes;
}
inline double mean_gradient(int workers, int step, std::size_t element) {
  double sum = 0;
  for (int worker = 0; worker < workers; ++worker) {
    sum += own_gradient(worker, step, element);
  }
  return sum / workers;
}
inline double mean_of(const replicas& all) {
  double sum = 0;
  for (const replica& each : all) {
    sum += each.x;
  }
  return sum / static_cast<double>(all.size());
}

/// A function `rule(replicas, step, element)` that applies one step to one element of all workers.
using recurrence = std::function<void(replicas&, int, std::size_t)>;

inline std::vector<std::vector<double>> recurred(int workers, const recurrence& rule) {
  std::vector<std::vector<double>> all(static_cast<std::size_t>(workers));
  for (std::size_t element = 0; element < total_elements(); ++element) {
    replicas mine(static_cast<std::size_t>(workers), replica{initial(element)});
    for (int step = 0; step < steps; ++step) {
      rule(mine, step, element);
    }
    for (std::size_t worker = 0; worker < mine.size(); ++worker) {
      all[worker].push_back(mine[worker].x);
    }
  }
  return all;
}

/// A composition that fuses small tensors and cuts large ones into pieces; with two passes a step,
/// many exchanges are on the way at a time.
template <class Architecture, class... Policies>
using cut = compose<fusion::up_to, partition::into, Architecture, Policies...>;

template <class Strategy>
engine_options<Strategy> options_for() {
  engine_options<Strategy> set;
  set.fusion.bytes = 3000;
  set.partition.bytes = 20'000;
  set.run.accumulation = passes;
  set.run.deadline = 20;
  return set;
}

/// Hands in the gradients of a step; each pass adds to the passes before.
template <class Engine>
void hand_in(Engine& engine, arena& memory, int step, gradient_function given = gradient) {
  std::vector<float> sum(total_elements());
  for (unsigned pass = 0; pass < passes; ++pass) {
    const int counted = step * static_cast<int>(passes) + static_cast<int>(pass);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += given(engine.worker(), counted, i);
    }
    std::ranges::copy(sum, memory.gradients().begin());
    for (const tensor_id id : shuffled(memory.tensors().size(), engine.worker(), step)) {
      engine.ready(id);
    }
  }
}

struct ended {
  std::vector<std::vector<float>> parameters{};
};

/// Trains on threads. Where `stop` lies within the steps, saves a checkpoint there and continues
/// with new engines.
template <class Strategy>
ended train_in_parts(int workers, int stop, engine_options<Strategy> set,
                     gradient_function given = gradient) {
  const int ranks = workers + servers_in<Strategy>(set);
  std::vector<std::string> files(static_cast<std::size_t>(ranks));
  ended result{std::vector<std::vector<float>>(static_cast<std::size_t>(workers))};
  const auto part = [&](int first, int last) {
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(values), set);
      if (engine.serves()) {
        engine.serve();
        return;
      }
      auto& file = files[static_cast<std::size_t>(world.rank())];
      if (first > 0) {
        std::istringstream in(file);
        load(engine, in);
      }
      for (int step = first; step < last; ++step) {
        for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
          engine.wait(tensor_id(id));
        }
        hand_in(engine, memory, step, given);
      }
      engine.wait();
      if (last < steps) {
        std::ostringstream out;
        save(engine, out);
        file = out.str();
      } else {
        engine.drain();
        const auto rank = static_cast<std::size_t>(world.rank());
        result.parameters[rank].assign(memory.parameters().begin(), memory.parameters().end());
      }
    });
  };
  if (stop > 0) {
    part(0, stop);
  }
  part(stop, steps);
  return result;
}

inline void expect_near(const ended& got, const std::vector<std::vector<double>>& expected) {
  for (std::size_t worker = 0; worker < expected.size(); ++worker) {
    ASSERT_EQ(got.parameters[worker].size(), expected[worker].size());
    for (std::size_t i = 0; i < expected[worker].size(); ++i) {
      ASSERT_NEAR(got.parameters[worker][i], expected[worker][i],
                  1e-5 * (1 + std::abs(expected[worker][i])))
          << "worker " << worker << " of " << expected.size() << ", element " << i;
    }
  }
}

/// Expects the result of the recurrence with 1 to 5 workers, and the same bits when training stops
/// at a checkpoint on the way.
template <class Strategy>
void equals(const std::function<recurrence(int)>& rule, engine_options<Strategy> set,
            std::vector<int> ranks = {1, 2, 3, 4, 5}) {
  for (const int workers : ranks) {
    const ended whole = train_in_parts<Strategy>(workers, 0, set);
    expect_near(whole, recurred(workers, rule(workers)));
    if (workers == 3) {
      EXPECT_EQ(train_in_parts<Strategy>(workers, 5, set).parameters, whole.parameters);
    }
  }
}

/// Trains one rank on the virtual clock.
template <class Strategy>
task rank_on_the_clock(transport::simulated& world, engine_options<Strategy> set, ended& result) {
  arena memory = model_of(world.rank());
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(values), set);
  co_await engine.started();
  for (int step = 0; step < steps; ++step) {
    for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
      co_await engine.arrival(tensor_id(id));
    }
    hand_in(engine, memory, step);
  }
  for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
    co_await engine.arrival(tensor_id(id));
  }
  result.parameters[static_cast<std::size_t>(world.rank())].assign(memory.parameters().begin(),
                                                                   memory.parameters().end());
  co_await engine.close();
}

/// Expects the first rule before step `at` and the second from it on, on threads, on the virtual
/// clock, and also if a checkpoint lies before the switch. Three ranks are also run with a switch
/// before the first step and with one that never comes.
template <class Strategy>
void switches(const recurrence& first, const recurrence& second, engine_options<Strategy> set) {
  for (const int at : {0, 6, 100}) {
    set.architecture.step = static_cast<std::uint64_t>(at);
    const recurrence rule = [&](replicas& all, int step, std::size_t element) {
      (step < at ? first : second)(all, step, element);
    };
    const auto ranks = at == 6 ? std::vector{1, 2, 3, 4, 5} : std::vector{3};
    equals<Strategy>([&rule](int) { return rule; }, set, ranks);
    for (const int workers : ranks) {
      ended clocked{std::vector<std::vector<float>>(static_cast<std::size_t>(workers))};
      transport::run_simulated(workers, transport::link{1.25e9, 50e-6},
                               [&](transport::simulated& world) {
                                 return rank_on_the_clock<Strategy>(world, set, clocked);
                               });
      expect_near(clocked, recurred(workers, rule));
    }
  }
}

inline void by_the_mean_gradient(replicas& all, int step, std::size_t element) {
  double sum = 0;
  for (std::size_t worker = 0; worker < all.size(); ++worker) {
    sum += own_gradient(static_cast<int>(worker), step, element);
  }
  for (replica& each : all) {
    each.step(sum / static_cast<double>(all.size()));
  }
}
inline void alone(replicas& all, int step, std::size_t element) {
  for (std::size_t worker = 0; worker < all.size(); ++worker) {
    all[worker].step(own_gradient(static_cast<int>(worker), step, element));
  }
}
inline void to_the_mean_model(replicas& all, double share) {
  const double mean = mean_of(all);
  for (replica& each : all) {
    each.x = (1 - share) * each.x + share * mean;
  }
}

}  // namespace tutti::test::recurring
