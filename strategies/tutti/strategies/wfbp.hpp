#pragma once

#include <string_view>

#include "tutti/core/compose.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/schedule/as_ready.hpp"

namespace tutti::strategies {

/// One all-reduce a tensor, as soon as its gradient exists: wait-free back-propagation, Zhang et
/// al., "Poseidon", ATC 2017.
struct WFBP {
  static constexpr std::string_view name = "WFBP";
  using strategy = compose<fusion::none, schedule::as_ready>;
};

}  // namespace tutti::strategies
