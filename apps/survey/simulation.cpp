#include "survey/simulation.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/replayed/computations.hpp"
#include "survey/in_turn.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/strategies/bsp.hpp"
#include "tutti/strategies/mg_wfbp.hpp"
#include "tutti/strategies/wfbp.hpp"
#include "tutti/transport/simulated.hpp"

namespace survey {

namespace {

using tutti::transport::link;

template <class Strategy>
tutti::seconds run(int workers, link nic) {
  using strategy = tutti::strategy_of<Strategy>;
  tutti::engine_options<Strategy> set;
  set.profile.message = ring_cost(workers, nic);
  if constexpr (std::is_same_v<typename strategy::fusion, tutti::fusion::merge_gradients>) {
    set.fusion.rule = tutti::fusion::rule::greedy;  // the published one, which the survey runs
  }
  // Without jitter, one iteration is like the next.
  const tutti::replay_options length{.iterations = 1, .warmup = 0};
  tutti::replay<Strategy> job(models::computations(model()), set, tutti::payloads::counted, length);
  const tutti::transport::network hosts(workers, nic, per_host, tutti::transport::network::at_once);
  tutti::transport::run_simulated(hosts,
                                  [&](tutti::transport::simulated& world) { return job(world); });
  return job.result().iterations.front();
}

template <class Strategy>
tutti::seconds run(traffic on_link, int workers, link nic) {
  // Every rank goes by the plan, so nobody has to lead, and no decision has to travel.
  using serial = tutti::compose<typename tutti::strategy_of<Strategy>::fusion, in_turn,
                                tutti::coordination::local>;
  return on_link == traffic::all_at_once ? run<Strategy>(workers, nic) : run<serial>(workers, nic);
}

}  // namespace

std::string_view name_of(traffic which) {
  constexpr std::array<std::string_view, 2> names{"all at once", "one at a time"};
  return names[static_cast<std::size_t>(which)];
}

const models::replayed& model() {
  static const models::replayed network =
      models::with_totals(models::replay("resnet50"), 0.2529 / 3, 0.2529 * 2 / 3);
  return network;
}

tutti::message_cost ring_cost(int workers, link nic) {
  const double p = workers;
  return {2 * (p - 1) * nic.latency, 2 * (p - 1) / p / nic.bytes_per_second};
}

tutti::seconds simulate(method how, traffic on_link, int workers, link nic) {
  switch (how) {
    case method::BSP:
      return run<tutti::strategies::BSP>(workers, nic);
    case method::WFBP:
      return run<tutti::strategies::WFBP>(on_link, workers, nic);
    case method::MGWFBP:
      break;
  }
  return run<tutti::strategies::MGWFBP>(on_link, workers, nic);
}

}  // namespace survey
