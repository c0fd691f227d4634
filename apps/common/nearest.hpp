#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/sentence.hpp"

namespace common {

/// Returns the edit distance: how many letters must be inserted, removed or changed, in upper or
/// lower case, to turn one string into the other. After: Wagner and Fischer, "The string-to-string
/// correction problem", 1974.
inline std::size_t edits(const std::string& from, const std::string& to) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t kept = diagonal + (same(from[i], to[j]) ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({kept, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

/// Returns the candidate that takes the fewest edits to become `wanted`.
inline std::string nearest(const std::string& wanted, const std::vector<std::string>& candidates) {
  const auto closest = std::ranges::min_element(
      candidates, {}, [&](const std::string& each) { return edits(wanted, each); });
  return closest == candidates.end() ? "" : *closest;
}

/// Returns the end of a message that refuses `wanted`, for flags with few values: the nearest
/// value, and a list of all.
inline std::string choices(const std::string& wanted, const std::vector<std::string>& all) {
  std::string known;
  for (const std::string& each : all) {
    tutti::add_to_list(known, each);
  }
  return "Did you mean " + nearest(wanted, all) + "? Fix: one of " + known;
}

}  // namespace common
