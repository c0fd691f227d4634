#pragma once

#include <string_view>

#include "tutti/architecture/majority_vote.hpp"
#include "tutti/base/units.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/signum.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/schedule/at_end.hpp"

namespace tutti::strategies {

/// Every rank sends one bit an element, and the majority decides. This happens after the backward
/// pass, in buckets of at most 100 MiB.
struct SignSGD {
  static constexpr std::string_view name = "SignSGD";
  static constexpr std::string_view after =
      "Bernstein et al., \"signSGD with Majority Vote\", 2018";
  static constexpr std::string_view deviations =
      "Every rank has a vote, where in the original's program every machine has one. Buckets are "
      "those of that program, but the ones with the last parameters are sent first, and in each "
      "bucket the last parameters come first.";
  using strategy =
      compose<fusion::up_to, schedule::at_end, compression::sign, architecture::majority_vote>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.bytes = 100_MiB,
                       .crossing = fusion::crossing::out,
                       .from = fusion::filled_from::first},
            .architecture = {.single = architecture::single_voter::is_believed}};
  }
};

/// Signum, with which the paper trains: SignSGD's vote, on momenta.
struct Signum {
  static constexpr std::string_view name = "Signum";
  static constexpr std::string_view after =
      "Bernstein et al., \"signSGD with Majority Vote\", 2018";
  static constexpr std::string_view deviations =
      "Every rank has a vote, where in the original's program every machine has one. Buckets are "
      "those of that program, but the ones with the last parameters are sent first, and in each "
      "bucket the last parameters come first.";
  using strategy =
      compose<fusion::up_to, schedule::at_end, compression::signum, architecture::majority_vote>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.bytes = 100_MiB,
                       .crossing = fusion::crossing::out,
                       .from = fusion::filled_from::first},
            .architecture = {.single = architecture::single_voter::is_believed}};
  }
};

}  // namespace tutti::strategies
