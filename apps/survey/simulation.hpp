#pragma once

#include <array>
#include <string_view>

#include "models/replayed/replayed.hpp"
#include "survey/measured.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/units.hpp"
#include "tutti/transport/network.hpp"

namespace survey {

/// How many all-reduces of one iteration may be on their way.
enum class traffic {
  all_at_once,    ///< whatever is ready: the library's strategies as they are
  one_at_a_time,  ///< one after the other: the survey's definition of its methods
};

inline constexpr std::array traffics{traffic::all_at_once, traffic::one_at_a_time};

std::string_view name_of(traffic which);

/// ResNet-50 as one of the survey's GPUs computes it: 252.9 ms, a third of it forward.
const models::replayed& model();

/// What one all-reduce costs by the law of extrapolation: a ring's 2(p-1) messages, each with the
/// NIC's latency, that carry 2(p-1)/p of the bytes past the NIC.
tutti::message_cost ring_cost(int workers, tutti::transport::link nic);

/// How long an iteration takes on hosts of `per_host` workers, connected by `nic`. Inside a host
/// and on the device nothing takes time but the model.
tutti::seconds simulate(method how, traffic on_link, int workers, tutti::transport::link nic);

}  // namespace survey
