#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/training.hpp"
#include "tutti/monitor/timeline.hpp"

// States the rule of a strategy beside its composition: how a known model is fused and cut, which
// chunk starts when, what each worker sends, and what parameters training reaches.
namespace tutti::test {

/// A model's tensors in forward order, in elements: 141 MB in all. Only the sizes matter.
inline const std::vector<std::size_t>& large_model() {
  static const std::vector<std::size_t> sizes{300'000,   2'500'000,  8,
                                              5'000'000, 25'000'000, 2'500'000};
  return sizes;
}

/// The order in which gradients become ready, all within microseconds and long before the first
/// message ends.
inline const std::vector<std::size_t>& ready_order() {
  static const std::vector<std::size_t> order{4, 5, 3, 2, 0, 1};
  return order;
}

/// Each worker's parameters.
using outcomes = std::vector<std::vector<float>>;

struct rule {
  int servers = 0;
  std::vector<std::size_t> buckets{};   ///< tensors in each bucket
  std::vector<std::size_t> chunks{};    ///< elements in each chunk
  std::vector<std::uint32_t> starts{};  ///< chunks in the order in which worker 0 starts them
  std::vector<std::uint64_t> bytes{};   ///< that each worker sends in a step
  std::function<bool(const outcomes&)> result{};
  std::vector<int> owners{};  ///< of each chunk, counted from 0; empty without servers
};

struct observation {
  rule seen{};
  outcomes parameters{};
  std::vector<seconds> start_times{};  ///< of `seen.starts`, since worker 0 began the step
  seconds ended{};                     ///< when the last exchange of worker 0 had ended
};

/// The conditions of a run. Ranks of a host share its NIC, and what they send each other takes no
/// time.
struct conditions {
  seconds between = 1e-6;  ///< the time between two successive gradients
  int on_a_host = 1;
};

inline constexpr int observed_steps = 3;

inline std::vector<tensor> phantoms() {
  std::vector<tensor> tensors;
  for (const std::size_t each : large_model()) {
    tensors.push_back(tensor::phantom("tensor" + std::to_string(tensors.size()), each));
  }
  return tensors;
}

/// Notes what `ranks` ranks planned, and what rank 0 saw of a step that began at `began`.
inline void note(observation& made, int ranks, int servers, const plan& planned,
                 const monitor::timeline& seen, seconds began) {
  made.seen.servers = servers;
  for (const auto& each : planned.buckets) {
    made.seen.buckets.push_back(each.tensors);
  }
  for (const auto& each : planned.chunks) {
    made.seen.chunks.push_back(each.elements);
    if (servers > 0) {
      made.seen.owners.push_back(each.placed_on - (ranks - servers));
    }
  }
  for (const auto& each : seen.moments()) {
    if (each.what == event::started) {
      made.seen.starts.push_back(each.which);
      made.start_times.push_back(each.when - began);
    } else if (each.what == event::finished) {
      made.ended = each.when - began;
    }
  }
}

template <class Strategy>
task observed_rank(transport::simulated& world, engine_options<Strategy> options, seconds between,
                   observation& made) {
  auto engine = make_engine<Strategy>(world, phantoms(), optimizer_for<Strategy>(), options,
                                      monitor::timeline());
  co_await engine.started();
  if (!engine.serves()) {
    const std::uint64_t before = engine.counted().bytes_sent;
    const seconds began = world.now();
    for (const std::size_t id : ready_order()) {
      co_await world.sleep(between);
      engine.ready(tensor_id(id));
    }
    for (std::size_t id = 0; id < engine.tensors().size(); ++id) {
      co_await engine.arrival(tensor_id(id));
    }
    made.seen.bytes[static_cast<std::size_t>(world.rank())] = engine.counted().bytes_sent - before;
    if (world.rank() == 0) {
      note(made, world.size(), engine.servers(), engine.planned(), engine.observed(), began);
    }
  }
  co_await engine.close();
}

template <class Strategy>
task trained_rank(transport::simulated& world, engine_options<Strategy> options,
                  observation& made) {
  arena memory = model_of(world.rank());
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_for<Strategy>(), options,
                                      monitor::timeline());
  co_await engine.started();
  if (!engine.serves()) {
    for (int step = 0; step < observed_steps; ++step) {
      backward(memory, engine.worker(), step);
      for (std::size_t id = memory.tensors().size(); id-- > 0;) {
        engine.ready(tensor_id(id));
      }
      for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
        co_await engine.arrival(tensor_id(id));
      }
    }
    made.parameters[static_cast<std::size_t>(world.rank())].assign(memory.parameters().begin(),
                                                                   memory.parameters().end());
  }
  co_await engine.close();
}

/// Observes what a strategy does over links of 10 Gbit/s and 50 microseconds.
template <class Strategy>
observation observe(int workers, engine_options<Strategy> options = {}, conditions under = {}) {
  observation made;
  made.seen.bytes.resize(static_cast<std::size_t>(workers));
  made.parameters.resize(static_cast<std::size_t>(workers));
  const int ranks = workers + servers_in<Strategy>(options);
  const transport::link ethernet{1.25e9, 50e-6};
  const transport::network hosts(ranks, ethernet, under.on_a_host, {1e18, 0});
  transport::run_simulated(hosts, [&](transport::simulated& world) {
    return observed_rank<Strategy>(world, options, under.between, made);
  });
  transport::run_simulated(hosts, [&](transport::simulated& world) {
    return trained_rank<Strategy>(world, options, made);
  });
  return made;
}

/// Returns the names of the parts of the rule that do not hold, empty if it holds.
inline std::string broken(const observation& made, const rule& stated) {
  std::string parts;
  const auto check = [&parts](bool holds, const char* part) { parts += holds ? "" : part; };
  check(made.seen.servers == stated.servers, "servers ");
  check(made.seen.buckets == stated.buckets, "buckets ");
  check(made.seen.chunks == stated.chunks, "chunks ");
  check(made.seen.owners == stated.owners, "owners ");
  check(made.seen.starts == stated.starts, "starts ");
  check(made.seen.bytes == stated.bytes, "bytes ");
  check(stated.result(made.parameters), "result ");
  return parts;
}

/// Returns whether both are equal but for the rounding of a few sums.
inline bool close(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= 1e-5f * (1.0f + std::abs(b[i])))) {
      return false;
    }
  }
  return a.size() == b.size();
}

/// Returns a check that every worker has these parameters.
inline std::function<bool(const outcomes&)> all_have(std::vector<float> expected) {
  return [expected = std::move(expected)](const outcomes& made) {
    bool same = true;
    for (const auto& each : made) {
      same = same && close(each, expected);
    }
    return same;
  };
}

/// As `trained`, but on sums instead of means.
inline std::vector<float> trained_on_sums(int workers, int steps) {
  return descended(steps, {}, [workers](int step, std::size_t i) {
    float sum = 0;
    for (int worker = 0; worker < workers; ++worker) {
      sum += gradient(worker, step, i);
    }
    return sum;
  });
}

/// Returns the parameters of momentum SGD on means that `mean(step, means)` writes into `means`.
template <class Mean>
std::vector<float> trained_with(Mean mean, sgd_values set = {}) {
  const std::size_t n = total_elements();
  std::vector<float> x(n);
  std::vector<float> m(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = initial(i);
  }
  for (int step = 0; step < observed_steps; ++step) {
    std::vector<float> means(n);
    mean(step, means);
    for (std::size_t i = 0; i < n; ++i) {
      m[i] = set.momentum * m[i] + (means[i] + set.weight_decay * x[i]);
      x[i] -= set.learning_rate * m[i];
    }
  }
  return x;
}

}  // namespace tutti::test
