#pragma once

#include <string_view>

#include "tutti/architecture/elastic_averaging.hpp"
#include "tutti/architecture/elastic_servers.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti::strategies {

/// In each step every rank's model and a common centre move towards each other.
struct EASGD {
  static constexpr std::string_view name = "EASGD";
  static constexpr std::string_view after =
      "Zhang, Choromanska and LeCun, \"Deep learning with elastic averaging SGD\", NIPS 2015, its "
      "synchronous form";
  static constexpr std::string_view deviations =
      "Every rank has a copy of the centre, which the paper keeps on a server.";
  using strategy = compose<fusion::up_to, architecture::elastic_averaging<>>;
};

/// Each worker's model and a centre on servers move towards each other. No worker runs in lock-step
/// with another.
struct AsyncEASGD {
  static constexpr std::string_view name = "AsyncEASGD";
  static constexpr std::string_view after =
      "Zhang, Choromanska and LeCun, \"Deep learning with elastic averaging SGD\", NIPS 2015, "
      "algorithm 1";
  static constexpr std::string_view deviations =
      "Each bucket's centre moves independently of the others'; the period is 1 step, where the "
      "paper tries 1 to 64.";
  using strategy = compose<fusion::up_to, architecture::elastic_servers>;
};

}  // namespace tutti::strategies
