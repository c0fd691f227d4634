#pragma once

#include <string_view>

#include "tutti/architecture/local_sgd.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti::strategies {

/// Four steps alone, then the mean of all models.
struct LocalSGD {
  static constexpr std::string_view name = "LocalSGD";
  static constexpr std::string_view after =
      "Stich, \"Local SGD converges fast and communicates little\", ICLR 2019";
  static constexpr std::string_view deviations = "The paper leaves the period open; four is ours.";
  using strategy = compose<fusion::up_to, architecture::local_sgd<>>;
};

}  // namespace tutti::strategies
