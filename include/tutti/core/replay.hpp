#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/bounds.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/predicate.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/replay_window.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/schedule.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// One tensor of a replayed model, and how long a worker computes for it in a step.
struct computation {
  std::string name{};
  std::size_t elements{};
  seconds forward{};
  seconds backward{};
  tensor_shape shape{};
};

/// A worker that computes `times` as long as its profile says; none if `rank` is negative.
struct slow_worker {
  int rank{-1};
  double times{1};

  double times_of(int which) const { return which == rank ? times : 1; }
};

/// Options of a replay. The first `warmup` iterations fill the pipeline and are not measured.
struct replay_options {
  int iterations{10};
  int warmup{3};
  /// The placement by which the bound is computed: by default that of the ranks themselves, each on
  /// a host of its own. Set it if these ranks represent others.
  std::optional<placement> of{};
  /// Every pass of every rank takes 1 + jitter |z| times as long, z standard normal, so that ranks
  /// lag behind the profile at random.
  double jitter{};
  /// The share by which computing is slower while the rank communicates, as both need the device.
  double slowdown{};
  std::uint64_t seed{1};
  slow_worker slow{};
  window measured_in{window::common};
};

/// When a chunk's exchange began and ended, counted from the beginning of the iteration.
struct exchanged {
  std::uint32_t chunk{};
  seconds started{};
  seconds finished{};
};

/// The result of a replay, as worker 0 saw it, unless a member says that it is over all workers.
struct replayed {
  /// The measured iterations, in order. Where workers keep no common step or train alone, these are
  /// means over the workers, each weighted by its pace: in such a time the job trains as many
  /// batches as it has workers.
  std::vector<seconds> iterations{};
  double iterations_per_second{};  ///< of all workers together, each at its own pace
  push_counts pushes{};            ///< of all ranks that count any, unmeasured iterations included
  std::uint64_t bytes_sent{};      ///< by worker 0, in all measured iterations
  plan planned{};
  std::vector<exchanged> agenda{};  ///< of the last iteration, in the order of starts
  double payload_bytes{};           ///< of one worker's gradient, encoded chunk by chunk
  double busiest_nic{};  ///< bytes of a step that must pass the busiest NIC in one direction
  bool crosses_iterations{};
  bool shares_nics{};  ///< whether a NIC carries messages of several ranks
  /// How far the workers' models are apart when they compute the measured iterations: the root of
  /// the mean over workers and iterations of |x - mean(x)|^2, in units of one worker's step along
  /// noise. Only for drifting payloads.
  std::optional<double> consensus{};
  seconds forward{};         ///< computing time of the profile, undisturbed
  seconds backward{};        ///< likewise
  seconds first_gradient{};  ///< time from the beginning of the backward pass to its first gradient

  seconds compute() const { return forward + backward; }
  /// Returns for how long a step's bytes keep the busiest NIC busy, at this rate.
  seconds on_the_wire(double nic_bytes_per_second) const {
    return busiest_nic / nic_bytes_per_second;
  }
  /// Returns a lower bound of an iteration of this architecture, with NICs of this rate: the longer
  /// of the computing time and the time of the bytes that must pass the busiest NIC. The latter
  /// cannot begin before there is a gradient and, unless the schedule crosses iterations, must end
  /// before the next forward pass. A NIC of several ranks can carry the bytes of one while another
  /// computes.
  seconds bound(double nic_bytes_per_second) const {
    const seconds before = crosses_iterations || shares_nics ? 0 : forward + first_gradient;
    return std::max(compute(), before + on_the_wire(nic_bytes_per_second));
  }

  seconds mean() const {
    return std::accumulate(iterations.begin(), iterations.end(), seconds{}) /
           static_cast<double>(iterations.size());
  }
  /// Returns the time that `share` of the iterations did not exceed.
  seconds quantile(double share) const {
    auto sorted = iterations;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
  }
};

/// What memory a worker has in a replay.
enum class payloads {
  counted,   ///< none: messages have lengths only
  carried,   ///< parameters and gradients, all zero
  drifting,  ///< gradients are noise of each worker's own, and models drift; in one process
};

namespace detail {

/// Fills with 1 and -1, equally likely. Looks them up, because no branch predictor foresees them.
[[gnu::cold]] inline void fill_with_signs(std::span<float> all, std::mt19937_64& random) {
  constexpr std::array signs{-1.0f, 1.0f};
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < all.size(); ++i, bits >>= 1) {
    bits = i % 64 == 0 ? random() : bits;
    all[i] = signs[bits & 1];
  }
}

/// Measures how far models are apart, from their sums over the workers.
class drift {
 public:
  void add(std::size_t iteration, std::span<const float> model) {
    sums_.resize(std::max(sums_.size(), iteration + 1));
    auto& sum = sums_[iteration];
    sum.resize(model.size());
    double squares = squares_;  // in a register: a write to `sum` might change the member
    for (std::size_t i = 0; i < model.size(); ++i) {
      const auto value = static_cast<double>(model[i]);
      sum[i] += value;
      squares += value * value;
    }
    squares_ = squares;
    ++models_;
  }
  std::size_t models() const { return models_; }
  /// Returns the root mean square, over models and elements, of the distance to the workers' mean.
  double apart(int workers) const {
    double of_means = 0;
    for (const auto& each : sums_) {
      for (const double sum : each) {
        of_means += sum * sum / workers;
      }
    }
    const auto values = static_cast<double>(models_ * sums_.front().size());
    return std::sqrt(std::max(squares_ - of_means, 0.0) / values);
  }

 private:
  std::vector<std::vector<double>> sums_{};  ///< sums over the workers' models, for each iteration
  double squares_ = 0;
  std::size_t models_ = 0;
};

/// Throws usage_error if the bytes of a step, summed over ranks and iterations, could overflow.
[[gnu::cold]] inline void expect_countable(const std::vector<computation>& model) {
  constexpr std::size_t most = std::size_t{1} << 40;  // 4 TiB of floats
  std::size_t left = most;
  for (const computation& each : model) {
    if (each.elements > left) {
      throw usage_error(sentence({"a replayed model may have at most ", most,
                                  " elements, but with the ", each.elements, " of ", each.name,
                                  " this one has more. Fix: use a smaller one"}));
    }
    left -= each.elements;
  }
}

}  // namespace detail

/// Returns the iterations a second. Finite even if they take no time.
inline double pace_of(const std::vector<seconds>& iterations) {
  constexpr seconds least = 1e-30;
  return static_cast<double>(iterations.size()) /
         std::accumulate(iterations.begin(), iterations.end(), least);
}

/// A monitor that notes when exchanges begin and end, in the order of their starts. Without a
/// vector to write to, notes nothing.
class agenda_log {
 public:
  using role = tutti::role::monitor;
  static constexpr bool observes = true;

  explicit agenda_log(std::vector<exchanged>* into) : into_(into) {}

  void record(event what, std::uint32_t which, seconds when) {
    if (into_ == nullptr) {
      return;
    }
    if (what == event::started) {
      into_->push_back({which, when, -1});
    } else if (what == event::finished) {
      const auto same = [&](const exchanged& each) {
        return each.chunk == which && each.finished < 0;
      };
      if (const auto found = loops::find_if(*into_, same); found != into_->end()) {
        found->finished = when;
      }
    }
  }

 private:
  std::vector<exchanged>* into_;
};
static_assert(monitor_policy<agenda_log>);

namespace detail {

/// The part of a replay that is independent of its strategy.
class replay_base {
 public:
  replay_base(const replay_base&) = delete;
  replay_base& operator=(const replay_base&) = delete;

  const replayed& result() const { return result_; }

 protected:
  [[gnu::cold]] replay_base(std::vector<computation> model, payloads what, replay_options length)
      : model_(std::move(model)), what_(what), length_(length) {
    if (length.iterations < 1 || length.warmup < 0) {
      throw usage_error("a replay needs at least 1 iteration and a warm-up of 0 or more");
    }
    if (!(length.jitter >= 0)) {
      throw usage_error(
          "a replay's jitter, a share of a pass, must not be negative. Fix: 0 or more");
    }
    constexpr double most = 100;  // with which a pass is computed in a hundred thousand pieces
    if (!(length.slowdown >= 0) || !(length.slowdown <= most)) {
      throw usage_error(
          "a replay's slowdown, a share of a pass, is out of range. Fix: from 0 to 100");
    }
    expect_countable(model_);
    for (const auto& each : model_) {
      declared_.push_back({each.name, each.elements, each.shape});
      result_.forward += each.forward;
      result_.backward += each.backward;
      result_.first_gradient = each.backward;
    }
  }
  [[gnu::cold]] ~replay_base() = default;

  /// The time of each tensor in the profile's backward pass.
  [[gnu::cold]] std::vector<seconds> backward_of_profile() const {
    std::vector<seconds> all;
    for (const auto& each : model_) {
      all.push_back(each.backward);
    }
    return all;
  }

  [[gnu::cold]] arena make_memory() const {
    return arena(what_ == payloads::counted ? std::span<const arena::declaration>()
                                            : std::span<const arena::declaration>(declared_));
  }
  [[gnu::cold]] std::vector<tensor> tensors(const arena& memory) const {
    if (what_ != payloads::counted) {
      return memory.tensors();
    }
    std::vector<tensor> all;
    for (const auto& each : model_) {
      all.push_back(tensor::phantom(each.name, each.elements, each.shape));
    }
    return all;
  }

  /// Computes for `left` seconds of the profile. If communication slows computing down, it does so
  /// in pieces that each last a thousandth of the profile's iteration, or of this computation if
  /// that is longer. Each is slowed down if the rank communicates when it begins.
  template <class Transport>
  task compute(Transport& world, predicate communicates, seconds left) {
    const seconds lasts = length_.slowdown > 0 ? std::max(result_.compute(), left) / 1000 : left;
    while (left > 0) {
      const double times = length_.slowdown > 0 && communicates() ? 1 + length_.slowdown : 1;
      const seconds piece = lasts / times;
      co_await world.sleep(std::min(piece, left) * times);
      left -= piece;
    }
  }

  /// Takes in the model on which this worker computes an iteration's gradients. `rate` is the
  /// learning rate, the length of a step along noise.
  [[gnu::cold]] void note_drift(std::size_t iteration, int workers, std::span<const float> model,
                                float rate) {
    drift_.add(iteration, model);
    if (drift_.models() == static_cast<std::size_t>(workers * length_.iterations)) {
      result_.consensus = drift_.apart(workers) / double{rate};
    }
  }

  /// Called when an iteration has ended, with the bytes that this rank has sent since the replay
  /// began.
  [[gnu::cold]] void note_end(const replay_window& its, seconds now, std::uint64_t sent) {
    if (its.counts()) {
      result_.bytes_sent += sent - sent_;
    }
    keep_agenda(ended_);
    ended_ = now;
    sent_ = sent;
  }

  std::vector<computation> model_;
  std::vector<arena::declaration> declared_{};
  payloads what_;
  replay_options length_;
  std::vector<exchanged> agenda_{};
  window_progress progress_{};  ///< of the workers that share a common window
  replayed result_{};

 private:
  /// Makes the exchanges that have ended in this iteration the result's agenda. Keeps those in
  /// flight.
  void keep_agenda(seconds began) {
    result_.agenda = agenda_;
    for (exchanged& each : result_.agenda) {
      each.started -= began;
      each.finished -= began;
    }
    std::erase_if(result_.agenda, [](const exchanged& each) { return each.finished < 0; });
    std::erase_if(agenda_, [](const exchanged& each) { return each.finished >= 0; });
  }

  drift drift_{};
  seconds ended_ = 0;
  std::uint64_t sent_ = 0;
};

}  // namespace detail

/// The ranks of a job that computes as a profile says and communicates as `Strategy` does.
/// `run_simulated` or `run_emulated` runs a coroutine of it for each rank. Servers are the last
/// ranks.
///
/// A worker's iteration is a forward pass that waits for each tensor (or for all of them before it,
/// unless the schedule crosses iterations) and a backward pass that hands in gradients one by one.
/// An iteration lasts from the end of one backward pass to the end of the next.
template <class Strategy, optimizer_policy Optimizer = optimizer::sgd>
class replay : public detail::replay_base {
 public:
  replay(std::vector<computation> model, engine_options<Strategy> set, payloads what,
         replay_options length = {})
      : replay_base(std::move(model), what, length), set_(std::move(set)) {
    set_.profile.backward = backward_of_profile();
  }

  /// The coroutine of one rank. Pass the replay to a transport's `run_…` by reference.
  template <class Transport>
  task operator()(Transport& world) {
    arena memory = make_memory();
    auto engine = make_engine<Strategy>(world, tensors(memory), Optimizer(), set_,
                                        agenda_log(world.rank() == 0 ? &agenda_ : nullptr));
    using architecture = typename decltype(engine)::architecture;
    progress_.workers += engine.serves() ? 0 : 1;  // before `started`, which awaits all ranks
    co_await engine.started();
    if (!engine.serves()) {
      std::seed_seq both{static_cast<std::uint64_t>(world.rank()), length_.seed};
      std::mt19937_64 random(both);
      std::normal_distribution<double> normal;
      const double times = length_.slow.times_of(world.rank());
      detail::window_progress alone{1};
      const bool shares =
          facts::waits_for_nobody<architecture> && length_.measured_in == window::common;
      detail::replay_window its(length_.warmup, length_.iterations, shares ? progress_ : alone);
      while (!its.is_over()) {
        co_await forward(world, engine, times * (1 + length_.jitter * std::abs(normal(random))));
        if (what_ == payloads::drifting) {
          if (its.counts()) {
            note_drift(its.measured(), engine.workers(), memory.parameters(),
                       Optimizer().learning_rate);
          }
          detail::fill_with_signs(memory.gradients(), random);
        }
        co_await backward(world, engine, times * (1 + length_.jitter * std::abs(normal(random))));
        if (world.rank() == 0) {
          if (!its.is_open()) {
            weigh(engine);
          }
          note_end(its, world.now(), engine.counted().bytes_sent);
        }
        its.end_iteration(world.now());
      }
      std::vector<seconds> iterations = its.iterations();
      co_await all_arrived(engine);
      double pace = pace_of(iterations);
      if constexpr (goes_at_its_own_pace<architecture>) {
        const double its_pace = pace;
        co_await engine.averaged(pace);
        for (seconds& each : iterations) {
          each *= its_pace;
          co_await engine.averaged(each);
          each /= pace;
        }
      }
      if (world.rank() == 0) {
        result_.iterations = std::move(iterations);
        result_.iterations_per_second = pace * engine.workers();
        co_await engine.collect_pushes(result_.pushes);
      }
    }
    co_await engine.close();
  }

 private:
  using strategy = strategy_of<Strategy>;
  template <class A>
  static constexpr bool goes_at_its_own_pace = facts::keeps_no_step<A> ||
                                               (A::completes_alone && !facts::has_servers<A>);
  static constexpr bool crosses = facts::crosses_iterations<typename strategy::schedule>;

  template <class Transport, class Engine>
  task forward(Transport& world, Engine& engine, double lag) {
    if constexpr (!crosses) {
      co_await all_arrived(engine);
    }
    const auto communicates = [&engine] { return engine.communicates(); };
    for (std::size_t i = 0; i < model_.size(); ++i) {
      co_await engine.arrival(tensor_id(i));
      co_await compute(world, communicates, model_[i].forward * lag);
    }
  }
  template <class Transport, class Engine>
  task backward(Transport& world, Engine& engine, double lag) {
    const auto communicates = [&engine] { return engine.communicates(); };
    for (std::size_t i = model_.size(); i-- > 0;) {
      co_await compute(world, communicates, model_[i].backward * lag);
      engine.ready(tensor_id(i));
    }
  }
  template <class Engine>
  task all_arrived(Engine& engine) {
    for (std::size_t i = 0; i < model_.size(); ++i) {
      co_await engine.arrival(tensor_id(i));
    }
  }

  template <class Engine>
  void weigh(const Engine& engine) {
    const auto compression = make_policy<typename Engine::compression>(set_.compression);
    const tutti::report report = engine.report();
    const plan& made = result_.planned = engine.planned();
    result_.payload_bytes = 0;
    for (const chunk& each : made.chunks) {
      const tensor_facts& first = made.backward[made.buckets[each.bucket].first_tensor];
      result_.payload_bytes += with_compressor(compression, each.chosen, [&](const auto& its) {
        return static_cast<double>(expected(its, each.elements, first));
      });
    }
    const auto dense = static_cast<double>(report.elements * sizeof(float));
    const placement who = length_.of.value_or(placement{report.workers, report.servers});
    using architecture = typename Engine::architecture;
    constexpr bool by_options = requires {
      architecture::busiest_nic(set_.architecture, 0, 0, who);
    };
    static_assert(
        by_options || requires { architecture::busiest_nic(0, 0, who); },
        "tutti: a bound needs the bytes through the busiest NIC, which this architecture "
        "does not state. Fix: give it busiest_nic(payload, dense, placement).");
    if constexpr (by_options) {
      result_.busiest_nic =
          architecture::busiest_nic(set_.architecture, result_.payload_bytes, dense, who);
    } else {
      result_.busiest_nic = architecture::busiest_nic(result_.payload_bytes, dense, who);
    }
    result_.crosses_iterations = crosses || (facts::delay<architecture> > 0);
    result_.shares_nics = bound::ranks_on(0, who.workers, who.per_host) > 1 ||
                          (who.servers > 0 && who.serving != server_hosts::own);
  }

  engine_options<Strategy> set_;
};

}  // namespace tutti
