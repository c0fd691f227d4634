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

#include "common/algorithms_by_size.hpp"
#include "common/described.hpp"
#include "common/job.hpp"
#include "common/policy_flags.hpp"
#include "common/replicas_differ.hpp"
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

/// What a strategy does to the gradient. Only rows of the same kind are compared.
enum class kind {
  exact,  ///< every worker applies the mean or the sum of all gradients
  lossy,  ///< the same of compressed gradients
  stale,  ///< some updates are applied late
  other,  ///< applies something other than the mean of all gradients
  apart,  ///< every worker trains its own model: an upper bound, and no contender
};

inline const char* name_of(kind which) {
  constexpr const char* names[] = {"exact", "lossy", "stale", "other", "apart"};
  return names[static_cast<int>(which)];
}

inline const char* name_of(tutti::server_hosts which) {
  return names(which)[static_cast<std::size_t>(which)].data();
}

/// The tables in which a strategy is listed.
enum class listed {
  always,   ///< also in the table of all strategies
  by_name,  ///< only where the user names it or its family; else another represents it
};

/// The model, network and world of one row.
struct scenario {
  const models::replayed* model{};
  place where{};
  int workers{};
  std::string world{};
  tutti::server_hosts serving{};
  tutti::slow_worker slow{};
  tutti::transport::device device{};
  std::string kernels{};      ///< cpu: timed on this CPU; profile: its device's; or a FILE of times
  const kernel_file* file{};  ///< the times in FILE
  std::string charged_by{};   ///< what kernels are charged by, in words for the table's head
};

/// The results of one row.
struct row {
  std::string job{};  ///< everything that the row depends on (`job_of`)
  std::string strategy{};
  kind what{};
  scenario of{};
  int servers{};
  int stand_ins{};           ///< workers simulated: all, or a few that represent all
  int period{1};             ///< iterations from one exchange to the next
  double payload_stretch{};  ///< bytes that a worker sends for each byte of a simulated one
  tutti::replayed simulated{};
  tutti::seconds predicted{};                 ///< time of an iteration by simulation
  std::optional<tutti::replayed> measured{};  ///< on the wall clock, in an emulated or real world
  tutti::seconds iteration{};              ///< measured time if there is one, otherwise predicted
  tutti::transport::emulated_run clock{};  ///< of the emulation
  std::string transport{"simulated"};
  std::string ways{};  ///< a line for each all-reduce algorithm that chunks use
  /// The rate of each NIC, in bits a second, below which its iteration is shorter than Dense16's.
  /// Only for lossy strategies.
  std::optional<double> pays_below{};
  /// How far the workers' models are apart (`tutti::replayed::consensus`), if they may differ.
  std::optional<double> consensus{};

  /// Relative error of the prediction: measured over predicted time, less 1.
  double error() const { return iteration / predicted - 1; }
  /// Hosts that the job occupies: the workers', and the servers' own if they have any.
  int machines() const {
    return of.where.hosts({of.workers, servers, of.where.per_host, of.serving});
  }
  const tutti::replayed& shown() const { return measured ? *measured : simulated; }
  /// Samples a second of all workers together.
  double samples_per_second() const {
    return static_cast<double>(of.model->batch) * of.workers / iteration;
  }
  /// The part of an iteration that exceeds its compute time.
  double exposed() const { return std::max(0.0, iteration - simulated.compute()); }
  bool unusable() const { return measured && clock.unusable(iteration); }
  double bytes_sent() const {
    return payload_stretch * static_cast<double>(shown().bytes_sent) /
           static_cast<double>(shown().iterations.size());
  }
  /// Seconds for which the bytes that must pass one NIC keep it busy. Empty if bytes are sent but
  /// no NIC is known to be a bottleneck, or if single ranks have NICs unlike the others'.
  std::optional<double> on_the_wire() const {
    return (simulated.busiest_nic == 0 && bytes_sent() > 0) || !of.where.nic_of_rank.empty()
               ? std::nullopt
               : std::optional(simulated.on_the_wire(of.where.nic.bytes_per_second));
  }
  /// A lower bound on the duration of an iteration.
  double bound() const {
    return of.where.nic_of_rank.empty() ? simulated.bound(of.where.nic.bytes_per_second)
                                        : simulated.compute();
  }
  /// The iteration as a multiple of its bound; 1 if both are 0.
  double of_bound() const { return iteration == bound() ? 1 : iteration / bound(); }
};

/// Runs one strategy in the scenario of one row, in each of the worlds.
class replays {
 public:
  replays() = default;
  replays(const replays&) = delete;
  replays& operator=(const replays&) = delete;
  virtual ~replays() = default;

  virtual tutti::replayed simulated(const scenario& of) const = 0;
  virtual tutti::replayed emulated(const scenario& of, tutti::payloads what,
                                   tutti::transport::emulated_run& clock) const = 0;
  /// Runs it on the launcher's processes, over what connects them, on the wall clock.
  virtual tutti::replayed measured(const scenario& of) const = 0;
  /// Returns how far workers' models drift apart in a simulation. Empty if replicas are equal, or
  /// if there are more workers than are simulated for this.
  virtual std::optional<double> consensus(const scenario& of) const = 0;
  /// Returns a line for each all-reduce algorithm that the plan's chunks use.
  virtual std::string ways(const tutti::plan& its) const = 0;

  tutti::placement many{};
  tutti::representatives who{};
  int period{1};  ///< iterations from one exchange to the next
  tutti::replay_options length{};
};

/// A named strategy that can be compared: an entry of the registry, with its type erased.
struct contender {
  std::string_view name;
  listed in;
  kind what;
  bool must_encode;  ///< only its encoder knows the lengths of its payloads
  common::description (*described)();
  common::flag_values (*flags)(const common::job&);
  int (*servers)(const common::job&);
  tutti::transport::device (*device)(const scenario&, const common::job&);
  std::unique_ptr<replays> (*prepared)(const scenario&, const common::job&);
  bool (*has_representatives)(const common::job&);  ///< a few workers can represent many
};

/// Runs one strategy and returns its row.
row row_of(const contender& who, scenario of, const common::job& asked);

/// Returns the seconds of a simulated iteration on the scenario's device.
double iteration(const contender& who, const scenario& of, const common::job& asked);

/// With more workers than this, a few represent the rest instead of simulating every message.
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

/// Throws common::flag_error if the number or the hosts of servers contradict the rule by which
/// they are placed.
template <class Options>
void check_servers(const Options& set, const tutti::placement& many) {
  using tutti::server_hosts;
  if (many.serving == server_hosts::mixed) {
    if (many.servers < many.workers || many.servers - many.workers > many.workers) {
      throw common::flag_error(
          std::to_string(many.servers) + " servers do not fit: each of " +
          std::to_string(many.workers) +
          " workers' hosts needs one, and at most as many more can have hosts of their own. Fix: "
          "--servers from " +
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
          "--architecture.placed_by mixed and optimal_split need a server on each worker's host "
          "and any further ones on hosts of their own. Fix: --server-hosts mixed");
    }
  }
}

/// Returns the job's options as options of the bare composition, so that strategies that differ
/// only in their defaults are compiled once.
template <class Strategy>
tutti::engine_options<tutti::strategy_of<Strategy>> options_of(const common::job& asked) {
  const auto its = common::options<Strategy>(asked);
  return {its.fusion,      its.partition,    its.schedule, its.coordination,
          its.compression, its.architecture, its.run,      its.profile};
}

template <class Strategy>
using architecture_of = typename tutti::engine_types<Strategy, any_world, profiled_sgd,
                                                     tutti::agenda_log>::architecture;

/// Whether the architecture gives the cost of its exchange in closed form.
template <class Strategy>
constexpr bool has_a_form = requires(tutti::placement many) {
  architecture_of<Strategy>::alone(many);
};
/// Whether it gives one for each chunk. A fusion at run time makes chunks of unknown sizes, so that
/// an all-reduce that chooses its algorithm by size has none.
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
[[gnu::cold]] bool has_representatives(const common::job& asked) {
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

/// Returns the chunks of a strategy's plan, which does not depend on the number of workers.
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
                             " is simulated message by message, with at most " +
                             std::to_string(message_by_message) +
                             " workers. Fix: fewer --ranks, or --server-hosts own");
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
        " workers would be simulated message by message, but at most " +
        std::to_string(message_by_message) +
        " can be. Fix: fewer --ranks, fewer of them on a host, or other strategies");
  }
  return chosen;
}

/// Whether payloads must be encoded even where they are only counted, because their lengths are
/// known only then.
template <class Strategy>
constexpr bool must_encode =
    tutti::facts::variable_length<typename tutti::strategy_of<Strategy>::compression>;

/// Returns the bytes a second at which kernels run on this CPU while all workers run theirs.
/// Collective.
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

/// Returns the device on which a strategy's kernels are charged. Where kernels take the times of a
/// file or of this CPU, its bandwidth is the one that reproduces these times. Collective.
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

/// Divides the number of elements of each tensor by `times`, but leaves at least one where there
/// was one.
inline std::vector<tutti::computation> shrunk(std::vector<tutti::computation> model,
                                              std::size_t times) {
  for (auto& each : model) {
    each.elements = each.elements == 0 ? 0 : std::max<std::size_t>(each.elements / times, 1);
    each.shape = {};
  }
  return model;
}
/// Makes links and kernels slower by the factor `times`.
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
      seen.consensus.reset();  // slept kernels update no model
    }
    return seen;
  }

  /// Simulates the model shrunk to about 20,000 elements, behind links that are slower in
  /// proportion, so that models are averaged at much the same times. Each worker is measured in its
  /// own iterations, because models drift further the longer they train.
  std::optional<double> consensus(const scenario& of) const override {
    if constexpr (common::replicas_differ<Strategy>) {
      constexpr int most = 64;  // because it takes as long as the row itself
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
    return common::algorithms_by_size<Strategy>(its, options_);
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
          detail::has_representatives<Strategy>};
}

}  // namespace compare
