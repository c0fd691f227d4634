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

/// A few ranks whose steps take as long as those of many alike ones: the way to simulate more than
/// can be simulated message by message.
///
/// An exchange that has the network to itself takes so many latencies and so many payloads through
/// a NIC (`architecture::alone`). Fewer ranks take as long where latencies and bytes last longer
/// in the proportion of the two closed forms; where ranks of a host have steps of their own, those
/// are as they are. Servers are sent no more by each worker when there are more of them: there it
/// is the servers' NICs that few workers keep busy for longer. Exact for one exchange at a time
/// where all parts are equally long; several at once share the NICs in larger pieces (test: within
/// 2 % at 8 to 64 ranks). Left out: encoding and adding that grow with p, and the headers of p
/// parts.
struct representatives {
  placement few{};
  std::vector<transport::stretch> data{};  ///< of each chunk, or one of all
  double sent{1};                          ///< by the first rank of many, beside the first of few
  double server_load{1};                   ///< how much longer a server's NIC is busy
};

namespace detail {

/// `few` workers at least, in hosts as full as theirs, the last one as well.
constexpr placement fewer(placement many, int few) {
  const int hosts = std::max(2, bound::hosts(few, many.per_host));
  if (hosts < many.hosts()) {
    const int last = bound::ranks_on(many.hosts() - 1, many.workers, many.per_host);
    many.workers = (hosts - 1) * many.per_host + last;
  }
  return many;
}

constexpr transport::stretch stretch_of(const exchange_cost& all, const exchange_cost& some) {
  return some.payloads > 0 ? transport::stretch{all.latencies / some.latencies,
                                                all.payloads / some.payloads, all.between_hosts}
                           : transport::stretch();
}

}  // namespace detail

/// `few` workers at least stand for `many`.
template <class Architecture>
requires requires { Architecture::alone(placement()); }
representatives represent(placement many, int few) {
  representatives chosen{detail::fewer(many, few)};
  const exchange_cost all = Architecture::alone(many);
  const exchange_cost some = Architecture::alone(chosen.few);
  if constexpr (facts::has_servers<Architecture>) {
    chosen.server_load = all.payloads / some.payloads;
  } else {
    chosen.data = {detail::stretch_of(all, some)};
    chosen.sent = some.sent > 0 ? all.sent / some.sent : 1;
  }
  return chosen;
}

/// Likewise, where exchanges of a plan's chunks, of so many elements each, may differ. Nothing
/// where one of them has no closed form.
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
    chosen.data.push_back(detail::stretch_of(*all, *some));
    sent_by_all += static_cast<double>(each.elements) * all->sent;
    sent_by_some += static_cast<double>(each.elements) * some->sent;
  }
  chosen.sent = sent_by_some > 0 ? sent_by_all / sent_by_some : 1;
  return chosen;
}

}  // namespace tutti
