#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "common/job.hpp"
#include "common/nearest.hpp"

namespace common {

/// Throws flag_error, suggesting the nearest, unless `wanted` is one of the `known`.
inline void expect_one_of(std::string_view kind, const std::string& wanted,
                          const std::vector<std::string>& known) {
  if (std::ranges::find(known, wanted) == known.end()) {
    throw flag_error("no " + std::string(kind) + " is named '" + wanted + "'. Did you mean " +
                     nearest(wanted, known) + "?");
  }
}

/// The names of a registry's entries.
template <class Registry>
std::vector<std::string> names_of(const Registry& all) {
  std::vector<std::string> names;
  for (const auto& each : all) {
    names.emplace_back(each.name);
  }
  return names;
}

inline void print_names(const std::vector<std::string>& names) {
  for (const auto& each : names) {
    std::puts(each.c_str());
  }
}

}  // namespace common
