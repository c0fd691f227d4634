#pragma once

#include <string_view>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// Each worker takes an optimizer step of its own, and pushes how much that has changed the
/// parameters, which servers add. A worker waits only while it is more than three steps ahead of
/// the slowest.
struct SSP {
  static constexpr std::string_view name = "SSP";
  static constexpr std::string_view after =
      "Ho et al., \"More effective distributed ML via a stale synchronous parallel parameter "
      "server\", NIPS 2013";
  static constexpr std::string_view deviations =
      "The paper leaves the bound open; three is tutti's choice. In the paper a worker reads a row "
      "again when its copy is too old, in tutti after each of its steps.";
  using strategy =
      compose<architecture::parameter_server<consistency::bounded_staleness, updated_by::workers>>;
};

}  // namespace tutti::strategies
