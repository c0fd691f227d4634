#pragma once

#include <string_view>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// Every rank sends its gradient to every other: blocks of 512 elements, each rounded at random to
/// seven levels of its norm, in Elias' code.
struct QSGD {
  static constexpr std::string_view name = "QSGD";
  static constexpr std::string_view after = "Alistarh et al., \"QSGD\", NeurIPS 2017, algorithm 1";
  static constexpr std::string_view deviations = "";
  using strategy = compose<compression::qsgd, architecture::all_gather>;
};

}  // namespace tutti::strategies
