#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <vector>

#include "common/job.hpp"
#include "common/policy_flags.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine_options.hpp"

namespace train {

template <class Options>
concept has_density = requires(Options its) {
  its.density;
};

/// The strategy's compressor, or the one that it decorates, sends a share of all elements.
template <class Strategy>
concept selects_a_share = requires(tutti::engine_options<Strategy> set) {
  requires has_density<decltype(set.compression)> || requires {
    requires has_density<decltype(set.compression.decorated)>;
  };
};

template <selects_a_share Strategy>
double& density(tutti::engine_options<Strategy>& set) {
  if constexpr (has_density<decltype(set.compression)>) {
    return set.compression.density;
  } else {
    return set.compression.decorated.density;
  }
}

/// Returns the shares for the first epochs: those that `--density-warm-up` lists, or those of the
/// strategy's authors. Throws flag_error if the flag is no list of shares, or if the strategy's
/// compressor does not select a share.
template <class Strategy>
std::vector<double> densities_of_first_epochs(const common::job& asked) {
  std::vector<double> all;
  if (asked.density_warm_up == "none") {
    return all;
  }
  if (asked.density_warm_up == "own") {
    if constexpr (requires { Strategy::warm_up; }) {
      all.assign(Strategy::warm_up.densities.begin(), Strategy::warm_up.densities.end());
    }
    return all;
  }
  const std::string& list = asked.density_warm_up;
  for (const char* next = list.data(); next <= list.data() + list.size();) {
    double share = 0;
    const auto [end, status] = std::from_chars(next, list.data() + list.size(), share);
    if (status != std::errc{} || (*end != ',' && *end != '\0') || !(share > 0 && share <= 1)) {
      throw common::flag_error("--density-warm-up " + list +
                               " is no list of shares. Fix: as 0.25,0.0625, or own, or none");
    }
    all.push_back(share);
    next = end + 1;
  }
  if (!selects_a_share<Strategy>) {
    throw common::flag_error("--density-warm-up " + list + ": " + std::string(Strategy::name) +
                             " selects no share of its elements. Fix: leave it out");
  }
  return all;
}

/// Returns the job's options in an epoch. Epochs are numbered from 0.
template <class Strategy>
tutti::engine_options<Strategy> options_in(std::size_t epoch, const common::job& asked) {
  auto set = common::options<Strategy>(asked);
  if constexpr (selects_a_share<Strategy>) {
    const auto first = densities_of_first_epochs<Strategy>(asked);
    if (epoch < first.size()) {
      density<Strategy>(set) = std::max(first[epoch], density<Strategy>(set));
    }
  }
  return set;
}

}  // namespace train
