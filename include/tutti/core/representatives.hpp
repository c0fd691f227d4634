#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/base/bounds.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/transport/network.hpp"

namespace tutti {

/// A few ranks whose steps take as long as those of many alike ones: the way to simulate more than
/// can be simulated message by message.
///
/// An exchange that has the network to itself takes so many latencies and so many payloads through
/// a NIC (`architecture::alone`). Fewer ranks take as long where latencies and bytes last longer
/// in the proportion of the two closed forms. Servers are sent no more by each worker when there
/// are more of them: there it is the servers' NICs that few workers keep busy for longer. Exact
/// for one exchange at a time where all parts are equally long; several at once share the NICs in
/// larger pieces (test: within 2 % at 8 to 64 ranks). Left out: encoding and adding that grow with
/// p, and the headers of p parts.
struct representatives {
  placement few{};
  transport::stretch data{};  ///< of chunks
  double server_load{1};      ///< how much longer a server's NIC is busy
};

/// `few` workers at least, in hosts as full as theirs, stand for `many`.
template <class Architecture>
requires requires { Architecture::alone(placement()); }
constexpr representatives represent(placement many, int few) {
  representatives chosen{many};
  const std::int64_t hosts = std::max(2, bound::hosts(few, many.per_host));
  chosen.few.workers =
      static_cast<int>(std::min<std::int64_t>(many.workers, hosts * many.per_host));
  const exchange_cost all = Architecture::alone(many);
  const exchange_cost some = Architecture::alone(chosen.few);
  if constexpr (facts::has_servers<Architecture>) {
    chosen.server_load = all.payloads / some.payloads;
  } else if (some.payloads > 0) {
    chosen.data = {all.latencies / some.latencies, all.payloads / some.payloads};
  }
  return chosen;
}

}  // namespace tutti
