#include "survey/simulation.hpp"

#include <array>
#include <cstddef>
#include <string>

#include "models/replayed/computations.hpp"
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

template <class Strategy>
tutti::seconds run(const job& of) {
  tutti::engine_options<Strategy> set;
  set.profile.message = tutti::message_cost(of.cost.startup, of.cost.seconds_per_byte);
  if constexpr (requires { set.schedule.exchanges; }) {
    set.schedule.exchanges = of.exchanges;
  }
  // One iteration suffices, because ranks are alike and every iteration takes as long.
  const tutti::replay_options length{.iterations = 1, .warmup = 0, .slowdown = of.slowdown};
  tutti::replay<Strategy> ranks(models::computations(*of.model), set, tutti::payloads::counted,
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
