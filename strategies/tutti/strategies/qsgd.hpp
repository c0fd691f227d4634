#pragma once

#include <string_view>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// Seven levels of each 512 elements' norm, rounded at random and Elias-coded, from every rank to
/// every other.
struct QSGD {
  static constexpr std::string_view name = "QSGD";
  static constexpr std::string_view after = "Alistarh et al., \"QSGD\", NeurIPS 2017, algorithm 1";
  static constexpr std::string_view deviations = "";
  using strategy = compose<compression::qsgd, architecture::all_gather>;
};

}  // namespace tutti::strategies
