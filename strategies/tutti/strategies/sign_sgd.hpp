#pragma once

#include <string_view>

#include "tutti/architecture/majority_vote.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/signum.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/up_to.hpp"

namespace tutti::strategies {

/// One bit an element, the majority decides, in buckets of 100 MB.
struct SignSGD {
  static constexpr std::string_view name = "SignSGD";
  static constexpr std::string_view after =
      "Bernstein et al., \"signSGD with Majority Vote\", 2018";
  static constexpr std::string_view deviations =
      "Every rank has a vote; in its program every machine, and a single one votes nothing.";
  using strategy = compose<fusion::up_to, compression::sign, architecture::majority_vote>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.bytes = 100'000'000, .crossing = fusion::crossing::in}};
  }
};

/// The vote on momenta, Signum: what the paper trains with.
struct Signum {
  static constexpr std::string_view name = "Signum";
  static constexpr std::string_view after =
      "Bernstein et al., \"signSGD with Majority Vote\", 2018";
  static constexpr std::string_view deviations =
      "Every rank has a vote; in its program every machine, and a single one votes nothing.";
  using strategy = compose<fusion::up_to, compression::signum, architecture::majority_vote>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.bytes = 100'000'000, .crossing = fusion::crossing::in}};
  }
};

}  // namespace tutti::strategies
