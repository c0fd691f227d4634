#include "survey/simulation.hpp"

#include <array>
#include <cstddef>
#include <string>

#include "models/replayed/computations.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/strategies/bsp.hpp"
#include "tutti/strategies/mg_wfbp.hpp"
#include "tutti/strategies/wfbp.hpp"
#include "tutti/transport/simulated.hpp"

namespace survey {

namespace {

/// Returns the NIC that gives a ring all-reduce the job's cost. The ring's 2(p-1) messages carry
/// 2(p-1)/p of the bytes past each NIC.
tutti::transport::link nic_of(const job& of) {
  const double messages = 2.0 * (of.workers - 1);
  return {messages / of.workers / of.cost.seconds_per_byte, of.cost.startup / messages};
}

/// A method with one ring an all-reduce. `all_reduce_cost` counts the start-ups of all its
/// messages, of which a sliced ring would hide some.
template <class Method>
struct by_one_ring {
  using strategy =
      tutti::compose<typename Method::strategy::fusion, typename Method::strategy::schedule,
                     tutti::architecture::all_reduce<tutti::collective::ring>>;
  static constexpr tutti::policy_options<strategy> defaults() {
    constexpr auto own = tutti::default_options<Method>();
    return {.fusion = own.fusion, .schedule = own.schedule};
  }
};

template <class Method>
tutti::seconds run(const job& of) {
  using strategy = by_one_ring<Method>;
  tutti::engine_options<strategy> set;
  set.profile.message = tutti::message_cost(of.cost.startup, of.cost.seconds_per_byte);
  if constexpr (requires { set.schedule.exchanges; }) {
    set.schedule.exchanges = of.exchanges;
  }
  // One iteration suffices, because ranks are alike and every iteration takes as long.
  const tutti::replay_options length{.iterations = 1, .warmup = 0, .slowdown = of.slowdown};
  tutti::replay<strategy> ranks(models::computations(*of.model), set, tutti::payloads::counted,
                                length);
  const tutti::transport::network hosts(of.workers, nic_of(of), per_host,
                                        tutti::transport::network::at_once);
  tutti::transport::run_simulated(hosts,
                                  [&](tutti::transport::simulated& world) { return ranks(world); });
  return ranks.result().iterations.front();
}

}  // namespace

const models::replayed& model(dnn which) {
  static const auto all = [] {
    std::array<models::replayed, dnns.size()> made;
    for (const dnn each : dnns) {
      const tutti::seconds compute = compute_of(each);
      made[static_cast<std::size_t>(each)] = models::with_totals(
          models::replay(std::string(name_of(each))), compute / 3, compute * 2 / 3);
    }
    return made;
  }();
  return all[static_cast<std::size_t>(which)];
}

tutti::seconds simulate(method how, const job& of) {
  switch (how) {
    case method::BSP:
      return run<tutti::strategies::BSP>(of);
    case method::WFBP:
      return run<tutti::strategies::WFBP>(of);
    case method::MGWFBP:
      break;
  }
  return run<tutti::strategies::MGWFBP>(of);
}

}  // namespace survey
