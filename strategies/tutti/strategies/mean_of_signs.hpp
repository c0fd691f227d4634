#pragma once

#include <string_view>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti::strategies {

/// Every rank sends one bit an element to every other, and applies the mean of these signs, from -1
/// to 1, without a vote. Shi et al.'s benchmark of 2020 calls it `signum`; the momentum is the
/// optimizer's.
struct MeanOfSigns {
  static constexpr std::string_view name = "MeanOfSigns";
  static constexpr std::string_view after = "Shi et al.'s benchmark of 2020, `signum`";
  static constexpr std::string_view deviations = "";
  using strategy = compose<fusion::up_to, compression::sign, architecture::all_gather>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.elements = 67'108'864, .crossing = fusion::crossing::in}};
  }
};

/// MeanOfSigns with error feedback, which remembers what a sign of ±1 leaves behind: `efsignum` in
/// that benchmark. The benchmark's residual takes the sign of 0 for 0, while it is received as 1.
/// Here it is 1 at both ends, so that nothing is lost.
struct EFMeanOfSigns {
  static constexpr std::string_view name = "EFMeanOfSigns";
  static constexpr std::string_view after = "Shi et al.'s benchmark of 2020, `efsignum`";
  static constexpr std::string_view deviations =
      "The benchmark's residual takes the sign of 0 as 0, while receivers take it as 1; in tutti "
      "it is 1 at both ends, so that nothing is lost.";
  using strategy = compose<fusion::up_to, compression::error_feedback<compression::sign>,
                           architecture::all_gather>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = MeanOfSigns::defaults().fusion};
  }
};

}  // namespace tutti::strategies
