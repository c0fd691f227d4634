#pragma once

#include <string_view>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// Seven levels of each 512 elements' norm, rounded at random and Elias-coded, from every rank to
/// every other: Alistarh et al., "QSGD", NeurIPS 2017, algorithm 1.
struct QSGD {
  static constexpr std::string_view name = "QSGD";
  using strategy = compose<compression::qsgd, architecture::all_gather>;
};

}  // namespace tutti::strategies
