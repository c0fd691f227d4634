#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/described.hpp"
#include "common/job.hpp"
#include "common/policy_flags.hpp"
#include "common/replicas_differ.hpp"
#include "common/ways.hpp"
#include "compare/compiled.hpp"
#include "compare/kernel_rates.hpp"
#include "compare/kernel_trial.hpp"
#include "compare/measure.hpp"
#include "compare/place.hpp"
#include "compare/processes.hpp"
#include "models/replayed/computations.hpp"
#include "models/replayed/replayed.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/architecture/parameter_server/placed_by.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine_types.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/core/representatives.hpp"
#include "tutti/strategies.hpp"
#include "tutti/transport/simulated.hpp"

namespace compare {

/// What a strategy does to the gradient, so that rows are compared with their like.
enum class kind {
  exact,  ///< every worker applies the mean, or the sum
  lossy,  ///< of what is left of it after compression
  stale,  ///< some updates come late
  other,  ///< something else than the mean of all gradients
  apart,  ///< every worker trains a model of its own: an upper bound, and no way to train one
};

inline const char* name_of(kind which) {
  constexpr const char* names[] = {"exact", "lossy", "stale", "other", "apart"};
  return names[static_cast<int>(which)];
}

inline const char* name_of(tutti::server_hosts which) {
  return names(which)[static_cast<std::size_t>(which)].data();
}

/// Which tables a strategy is in.
enum class listed {
  always,   ///< that of all
  by_name,  ///< those that name it, or its family: another stands for it in that of all
};

/// One row's job.
struct scenario {
  const models::replayed* model{};
  place where{};
  int workers{};
  std::string world{};
  tutti::server_hosts serving{};
  tutti::slow_worker slow{};
  tutti::transport::device device{};
  std::string kernels{};  ///< whose time kernels take: cpu, this one's, profile, its device's; FILE
  const kernel_file* file{};  ///< FILE's times
  std::string charged_by{};   ///< who says what kernels take, for people
};

/// What came of it.
struct row {
  std::string job{};  ///< all that it depends on
  std::string strategy{};
  kind what{};
  scenario of{};
  int servers{};
  int stand_ins{};           ///< workers that were simulated: all, or some for the rest
  int period{1};             ///< iterations from one exchange to the next
  double payload_stretch{};  ///< bytes that each of theirs stands for
  tutti::replayed simulated{};
  tutti::seconds predicted{};                 ///< for an iteration, by simulation
  std::optional<tutti::replayed> measured{};  ///< on the wall clock
  tutti::seconds iteration{};                 ///< measured, where it was, or predicted
  tutti::transport::emulated_run clock{};     ///< of the emulation
  std::string transport{"simulated"};
  std::string ways{};  ///< a line for each that chunks take by their sizes
  /// Bits a second of each NIC below which its iteration is shorter than Dense16's, where something
  /// is lost for that.
  std::optional<double> pays_below{};
  /// How far the workers' models are apart (`tutti::replayed::consensus`), where they may be.
  std::optional<double> consensus{};

  /// Measured beside predicted, less 1.
  double error() const { return iteration / predicted - 1; }
  /// Hosts that the job takes: the workers', and the servers' own where they have some.
  int machines() const {
    return of.where.hosts({of.workers, servers, of.where.per_host, of.serving});
  }
  const tutti::replayed& shown() const { return measured ? *measured : simulated; }
  /// Of all workers.
  double samples_per_second() const {
    return static_cast<double>(of.model->batch) * of.workers / iteration;
  }
  /// Time that the iteration is longer than its compute.
  double exposed() const { return std::max(0.0, iteration - simulated.compute()); }
  bool unusable() const { return measured && clock.unusable(iteration); }
  double bytes_sent() const {
    return payload_stretch * static_cast<double>(shown().bytes_sent) /
           static_cast<double>(shown().iterations.size());
  }
  /// Seconds for which the bytes that must pass one NIC keep it busy; nothing where bytes are sent
  /// and no NIC's are known to be in anybody's way, or NICs of single ranks are unlike the others.
  std::optional<double> on_the_wire() const {
    return (simulated.busiest_nic == 0 && bytes_sent() > 0) || !of.where.nic_of_rank.empty()
               ? std::nullopt
               : std::optional(simulated.on_the_wire(of.where.nic.bytes_per_second));
  }
  /// No iteration is shorter.
  double bound() const {
    return of.where.nic_of_rank.empty() ? simulated.bound(of.where.nic.bytes_per_second)
                                        : simulated.compute();
  }
  /// How many times as long as that; what takes no time is as fast as can be.
  double of_bound() const { return iteration == bound() ? 1 : iteration / bound(); }
};

/// A strategy's replays of one row, in each of the worlds.
class replays {
 public:
  replays() = default;
  replays(const replays&) = delete;
  replays& operator=(const replays&) = delete;
  virtual ~replays() = default;

  virtual tutti::replayed simulated(const scenario& of) const = 0;
  virtual tutti::replayed emulated(const scenario& of, tutti::payloads what,
                                   tutti::transport::emulated_run& clock) const = 0;
  /// Over what the launcher's processes are connected by.
  virtual tutti::replayed measured(const scenario& of) const = 0;
  /// How far workers' models drift apart in a simulation; nothing where replicas are equal, or of
  /// more workers than are simulated so.
  virtual std::optional<double> consensus(const scenario& of) const = 0;
  /// A line for each way that chunks of the plan take by their sizes.
  virtual std::string ways(const tutti::plan& its) const = 0;

  tutti::placement many{};
  tutti::representatives who{};
  int period{1};  ///< iterations from one exchange to the next
  tutti::replay_options length{};
};

/// A named strategy that can be compared.
struct contender {
  std::string_view name;
  listed in;
  kind what;
  bool must_encode;  ///< only an encoder knows the lengths of its payloads
  common::description (*described)();
  common::flag_values (*flags)(const common::job&);
  int (*servers)(const common::job&);
  tutti::transport::device (*device)(const scenario&, const common::job&);
  std::unique_ptr<replays> (*prepared)(const scenario&, const common::job&);
  bool (*has_stand_ins)(const common::job&);  ///< a few workers can represent many
};

/// The row of one strategy.
row row_of(const contender& who, scenario of, const common::job& asked);

/// Seconds of a simulated iteration on the scenario's device.
double iteration(const contender& who, const scenario& of, const common::job& asked);

/// Up to so many workers, every message is simulated.
constexpr int message_by_message = 1024;

const std::vector<contender>& registry();

namespace detail {

template <class Strategy>
constexpr kind kind_of() {
  using strategy = tutti::strategy_of<Strategy>;
  using architecture = typename strategy::architecture;
  if (std::is_same_v<architecture, tutti::architecture::independent>) {
    return kind::apart;
  }
  if (tutti::facts::drops_gradients<architecture> || tutti::facts::weighs_tensors<architecture>) {
    return kind::other;
  }
  if (tutti::facts::stale<architecture>) {
    return kind::stale;
  }
  return tutti::facts::identity<typename strategy::compression> ? kind::exact : kind::lossy;
}

/// Refuses servers that are not as many, or not where, their rules take them to be.
template <class Options>
void check_servers(const Options& set, const tutti::placement& many) {
  using tutti::server_hosts;
  if (many.serving == server_hosts::mixed) {
    if (many.servers < many.workers || many.servers - many.workers > many.workers) {
      throw common::flag_error(
          std::to_string(many.servers) + " servers cannot be one on each of " +
          std::to_string(many.workers) +
          " workers' hosts and at most as many more on their own. Fix: --servers from " +
          std::to_string(many.workers) + " to " + std::to_string(2 * std::int64_t{many.workers}) +
          ", or another --server-hosts");
    }
    return;
  }
  if constexpr (requires { set.architecture.placed_by; }) {
    using tutti::architecture::placed_by;
    const auto how = set.architecture.placed_by;
    const bool one_each = many.serving == server_hosts::workers && many.servers == many.workers;
    if ((how == placed_by::mixed || how == placed_by::optimal_split) && !one_each) {
      throw common::flag_error(
          "--architecture.placed_by mixed and optimal_split are for a server on each worker's host "
          "and others on hosts of their own. Fix: --server-hosts mixed");
    }
  }
}

/// What a job asks of a strategy, as its composition takes it: strategies that differ in their
/// defaults alone are one to the compiler.
template <class Strategy>
tutti::engine_options<tutti::strategy_of<Strategy>> options_of(const common::job& asked) {
  const auto its = common::options<Strategy>(asked);
  return {its.fusion,      its.partition,    its.schedule, its.coordination,
          its.compression, its.architecture, its.run,      its.profile};
}

template <class Strategy>
using architecture_of = typename tutti::engine_types<Strategy, any_world, profiled_sgd,
                                                     tutti::agenda_log>::architecture;

/// Its exchange has a closed form.
template <class Strategy>
constexpr bool has_a_form = requires(tutti::placement many) {
  architecture_of<Strategy>::alone(many);
};
/// There may be one of each chunk. What is gathered at run time is as long as nobody knows before.
template <class Strategy>
constexpr bool has_forms_of_chunks = requires(const tutti::engine_options<Strategy>& set,
                                              tutti::placement many) {
  architecture_of<Strategy>::alone(set.architecture, many, 1);
}
&&!(tutti::facts::at_run_time<typename tutti::strategy_of<Strategy>::fusion> &&
    requires(const tutti::engine_options<Strategy>& set) {
      architecture_of<Strategy>::way_of(set.architecture, 1);
    });

template <class Strategy>
[[gnu::cold]] bool has_stand_ins(const common::job& asked) {
  using composition = tutti::strategy_of<Strategy>;
  if constexpr (has_forms_of_chunks<composition>) {
    const auto set = options_of<Strategy>(asked);
    constexpr tutti::placement many{message_by_message + 1};
    return architecture_of<composition>::alone(set.architecture, many, 1).has_value();
  } else {
    return has_a_form<composition>;
  }
}

template <class Strategy>
using replay = tutti::replay<Strategy, profiled_sgd>;

/// The chunks of its plan, which does not depend on how many workers there are.
template <class Strategy>
std::vector<tutti::chunk> chunks_of(const std::vector<tutti::computation>& model,
                                    const tutti::engine_options<Strategy>& set) {
  replay<Strategy> alone(model, set, tutti::payloads::counted, {.iterations = 1, .warmup = 0});
  simulate({1, tutti::transport::network::at_once}, {}, std::ref(alone));
  return alone.result().planned.chunks;
}

template <class Strategy>
tutti::representatives stand_ins(tutti::placement many,
                                 [[maybe_unused]] const std::vector<tutti::computation>& model,
                                 [[maybe_unused]] const tutti::engine_options<Strategy>& set) {
  if (many.workers <= message_by_message) {
    return {many};
  }
  if (many.servers > 0 && many.serving != tutti::server_hosts::own) {
    throw common::flag_error("--server-hosts " + std::string(name_of(many.serving)) +
                             " is simulated message by message, so for " +
                             std::to_string(message_by_message) +
                             " workers at most. Fix: less --ranks, or --server-hosts own");
  }
  constexpr int few = 16;
  tutti::representatives chosen{many};
  if constexpr (has_a_form<Strategy>) {
    chosen = tutti::represent<architecture_of<Strategy>>(many, few);
  } else if constexpr (has_forms_of_chunks<Strategy>) {
    const auto chunks = chunks_of<Strategy>(model, set);
    chosen = tutti::represent<architecture_of<Strategy>>(set.architecture, many, few, chunks)
                 .value_or(chosen);
  }
  if (chosen.few.workers > message_by_message) {
    throw common::flag_error(
        std::to_string(chosen.few.workers) + " of " + std::to_string(many.workers) +
        " workers would be simulated message by message, and " +
        std::to_string(message_by_message) +
        " can be. Fix: less --ranks, fewer of them on a host, or other strategies");
  }
  return chosen;
}

/// Lengths that only an encoder knows are those of what it has encoded.
template <class Strategy>
constexpr bool must_encode =
    tutti::facts::variable_length<typename tutti::strategy_of<Strategy>::compression>;

/// Bytes a second that kernels on this CPU are charged while all workers run theirs. Collective.
template <class Compression>
double measured_rate(const Compression& its, const tutti::tensor_facts& tensor, int workers) {
  return on_trial(its, tensor, [workers](auto& kernels) {
    const tutti::transport::virtual_clock at_rest;
    tutti::transport::virtual_queue queue(at_rest, {});
    const kernel_charge charged = kernels.charged();
    const double taken = median_seconds(workers, [&] {
      kernels.encode(queue);
      for (int i = 0; i < workers; ++i) {
        kernels.add(queue);
      }
    });
    return (static_cast<double>(charged.encode) + workers * static_cast<double>(charged.add)) /
           taken;
  });
}

/// The device that its kernels are charged on: where they take a file's time, or this CPU's, as
/// fast as theirs. Collective.
template <class Strategy>
[[gnu::cold]] tutti::transport::device device_of(const scenario& of, const common::job& asked) {
  using compression = typename tutti::strategy_of<Strategy>::compression;
  if (asked.memory_bandwidth) {
    return of.device;
  }
  if (of.file != nullptr) {
    return {rate_of(of.file->of(filed_as<compression>()), of.workers)};
  }
  if (of.kernels == "cpu" || (of.world == "real" && must_encode<Strategy>)) {
    const auto& all = of.model->tensors;
    const auto& largest = *std::ranges::max_element(all, {}, &models::replayed_tensor::elements);
    const auto set = common::options<Strategy>(asked);
    return {measured_rate(tutti::make_policy<compression>(set.compression),
                          {{}, largest.elements, largest.shape, largest.name}, of.workers)};
  }
  return of.device;
}

/// So many times fewer elements, and at least one where there are any.
inline std::vector<tutti::computation> shrunk(std::vector<tutti::computation> model,
                                              std::size_t times) {
  for (auto& each : model) {
    each.elements = each.elements == 0 ? 0 : std::max<std::size_t>(each.elements / times, 1);
    each.shape = {};
  }
  return model;
}
/// Links and kernels that are so many times slower.
inline scenario slowed(scenario of, double times) {
  of.where = of.where.faster(1 / times);
  of.where.inside.bytes_per_second /= times;
  of.device.bytes_per_second /= times;
  return of;
}

template <class Strategy>
class replays_of final : public replays {
 public:
  replays_of(const scenario& of, const tutti::placement& all,
             tutti::engine_options<Strategy> options)
      : options_(std::move(options)), model_(models::computations(*of.model)) {
    many = all;
    if constexpr (has_a_form<Strategy>) {
      const auto& nic = of.where.nic;
      const tutti::exchange_cost alone = architecture_of<Strategy>::alone(many);
      const double rate = nic.bytes_per_second * nic.share_of_one;
      options_.profile.message =
          tutti::message_cost(alone.latencies * nic.latency, alone.payloads / rate);
      options_.profile.share_of_one = nic.share_of_one;
    }
    if constexpr (requires { options_.architecture.period; }) {
      period = options_.architecture.period;
    }
    if (many.servers > 0) {
      check_servers(options_, many);
    }
    who = stand_ins<Strategy>(many, model_, options_);
  }

  tutti::replayed simulated(const scenario& of) const override {
    replay<Strategy> simulation(model_, options_, tutti::payloads::counted, length);
    simulate(of.where.with(who), of.device, std::ref(simulation));
    return simulation.result();
  }

  tutti::replayed emulated(const scenario& of, tutti::payloads what,
                           tutti::transport::emulated_run& clock) const override {
    replay<Strategy> emulation(model_, options_, what, length);
    clock = emulate(of.where.with(who), of.device, std::ref(emulation));
    return emulation.result();
  }

  tutti::replayed measured(const scenario& of) const override {
    tutti::replayed seen;
    std::optional<tutti::transport::device> slept;
    if (of.kernels == "profile") {
      slept = of.device;
    }
    carry(many.workers + many.servers, slept,
          [&](any_world& world) { seen = measure<Strategy>(world, model_, options_, length); });
    if (slept) {
      seen.consensus.reset();  // nothing was written
    }
    return seen;
  }

  /// Of a model of a few thousand elements behind links as much slower: who meets whom, and when,
  /// is much the same. Each worker's own iterations, for models drift the further the longer.
  std::optional<double> consensus(const scenario& of) const override {
    if constexpr (common::replicas_differ<Strategy>) {
      constexpr int most = 64;  // it takes as long as the row itself
      constexpr std::size_t few = 20'000;
      if (many.workers <= most) {
        const std::size_t times = 1 + of.model->elements() / few;
        auto its = length;
        its.measured_in = tutti::window::own;
        replay<Strategy> drift(shrunk(model_, times), options_, tutti::payloads::drifting, its);
        const scenario slow = slowed(of, static_cast<double>(times));
        simulate(slow.where.with(who), slow.device, std::ref(drift));
        return drift.result().consensus;
      }
    }
    return std::nullopt;
  }

  std::string ways(const tutti::plan& its) const override {
    return common::ways_of<Strategy>(its, options_);
  }

 private:
  tutti::engine_options<Strategy> options_;
  std::vector<tutti::computation> model_;
};

template <class Strategy>
[[gnu::cold]] std::unique_ptr<replays> prepared(const scenario& of, const common::job& asked) {
  const auto& nic = of.where.nic;
  const tutti::placement all{
      of.workers, common::servers<Strategy>(asked), of.where.per_host, of.serving,
      of.where.server_nic.value_or(nic).bytes_per_second / nic.bytes_per_second};
  return std::make_unique<replays_of<tutti::strategy_of<Strategy>>>(of, all,
                                                                    options_of<Strategy>(asked));
}

template <class Strategy, class... All>
constexpr listed listed_among(const std::tuple<All...>*) {
  return (std::is_same_v<Strategy, All> || ...) ? listed::always : listed::by_name;
}

}  // namespace detail

template <class Strategy>
contender entry() {
  return {Strategy::name,
          detail::listed_among<Strategy>(static_cast<const tutti::strategies::all*>(nullptr)),
          detail::kind_of<Strategy>(),
          detail::must_encode<Strategy>,
          common::described<Strategy>,
          common::policy_flags<Strategy>,
          common::servers<Strategy>,
          detail::device_of<Strategy>,
          detail::prepared<Strategy>,
          detail::has_stand_ins<Strategy>};
}

}  // namespace compare
