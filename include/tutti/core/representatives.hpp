#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "tutti/base/bounds.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/transport/network.hpp"

namespace tutti {

/// A few ranks whose steps take as long as those of many similar ones, for jobs that are too large
/// to be simulated message by message.
///
/// An exchange that has the network to itself takes a number of latencies, and a number of payloads
/// through a NIC (`architecture::alone`). Fewer ranks take as long if latencies and bytes are
/// stretched in the ratios of the two closed forms. Where the ranks of a host exchange among
/// themselves, those messages are not stretched. With servers, a worker sends each of them no more
/// if there are more workers; instead the servers' NICs are slowed down, so that few workers keep
/// them busy for as long.
/// Exact for one exchange at a time if all parts are equally long. Several at once share the NICs
/// in larger pieces than in the full job (test: within 2 % at 8 to 64 ranks). Encoding and adding
/// that grow with the number of ranks p, and the headers of p parts, are left out.
struct representatives {
  placement few{};
  std::vector<transport::cost_factors> data{};  ///< of each chunk, or a single one for all
  double sent{1};  ///< what the first rank of many sends, divided by what the first of few sends
  double server_load{1};  ///< factor by which a server's NIC is busy for longer
};

namespace detail {

/// Returns a placement of at least `few` workers. Its hosts are as full as those of `many`, the
/// last one included.
constexpr placement fewer(placement many, int few) {
  const int hosts = std::max(2, bound::hosts(few, many.per_host));
  if (hosts < many.hosts()) {
    const int last = bound::ranks_on(many.hosts() - 1, many.workers, many.per_host);
    many.workers = (hosts - 1) * many.per_host + last;
  }
  return many;
}

constexpr transport::cost_factors factors_of(const exchange_cost& all, const exchange_cost& some) {
  return some.payloads > 0
             ? transport::cost_factors{all.latencies / some.latencies, all.payloads / some.payloads,
                                       all.between_hosts}
             : transport::cost_factors();
}

}  // namespace detail

/// Represents `many` by at least `few` workers.
template <class Architecture>
requires requires { Architecture::alone(placement()); }
representatives represent(placement many, int few) {
  representatives chosen{detail::fewer(many, few)};
  const exchange_cost all = Architecture::alone(many);
  const exchange_cost some = Architecture::alone(chosen.few);
  if constexpr (facts::has_servers<Architecture>) {
    chosen.server_load = all.payloads / some.payloads;
  } else {
    chosen.data = {detail::factors_of(all, some)};
    chosen.sent = some.sent > 0 ? all.sent / some.sent : 1;
  }
  return chosen;
}

/// Likewise, for exchanges that may differ from chunk to chunk of a plan. Returns nothing if one of
/// them has no closed form.
template <class Architecture>
std::optional<representatives> represent(const options_of<Architecture>& set, placement many,
                                         int few, const std::vector<chunk>& chunks) {
  representatives chosen{detail::fewer(many, few)};
  double sent_by_all = 0;
  double sent_by_some = 0;
  for (const chunk& each : chunks) {
    const auto all = Architecture::alone(set, many, each.elements);
    const auto some = Architecture::alone(set, chosen.few, each.elements);
    if (!all || !some) {
      return std::nullopt;
    }
    chosen.data.push_back(detail::factors_of(*all, *some));
    sent_by_all += static_cast<double>(each.elements) * all->sent;
    sent_by_some += static_cast<double>(each.elements) * some->sent;
  }
  chosen.sent = sent_by_some > 0 ? sent_by_all / sent_by_some : 1;
  return chosen;
}

}  // namespace tutti
