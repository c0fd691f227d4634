#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "common/job.hpp"
#include "tutti/core/replay.hpp"

namespace compare {

/// Parses RANK:FACTOR: "2:10" is worker 2, which computes 10 times as long as its profile says. An
/// empty text means no slow worker. Throws common::flag_error for anything else.
inline tutti::slow_worker parse_slow_rank(std::string_view text, int workers) {
  constexpr double least = 1;  // a row's iteration is never shorter than its profile's compute
  constexpr double most = 1e6;
  tutti::slow_worker parsed;
  if (text.empty()) {
    return parsed;
  }
  const char* end = text.data() + text.size();
  const auto rank = std::from_chars(text.data(), end, parsed.rank);
  const bool colon = rank.ec == std::errc() && rank.ptr != end && *rank.ptr == ':';
  const auto times = std::from_chars(colon ? rank.ptr + 1 : end, end, parsed.times);
  if (!colon || times.ec != std::errc() || times.ptr != end || !(parsed.times >= least) ||
      !(parsed.times <= most)) {
    throw common::flag_error(
        "--slow-rank '" + std::string(text) +
        "' is no rank and how many times as long it computes. Fix: 2:10, of 1 to 1000000");
  }
  if (parsed.rank < 0 || parsed.rank >= workers) {
    throw common::flag_error("--slow-rank: rank " + std::to_string(parsed.rank) +
                             " does not train. Fix: from 0 to " + std::to_string(workers - 1));
  }
  return parsed;
}

}  // namespace compare
