#pragma once

#include <string_view>

#include "tutti/base/units.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/schedule/as_ready.hpp"

namespace tutti::strategies {

/// Fusion buffers of 128 MiB, the tensor that would overflow one left out of it: Sergeev and Del
/// Balso, "Horovod", 2018, with its defaults since v0.21.
struct Horovod {
  static constexpr std::string_view name = "Horovod";
  using strategy = compose<fusion::up_to, schedule::as_ready>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.bytes = 128_MiB, .crossing = fusion::crossing::out}};
  }
};

}  // namespace tutti::strategies
