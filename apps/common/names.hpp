#pragma once

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "common/described.hpp"
#include "common/job.hpp"
#include "common/nearest.hpp"

namespace common {

/// Throws flag_error, suggesting the nearest known name, unless `wanted` is one of the `known`.
inline void expect_one_of(std::string_view kind, const std::string& wanted,
                          const std::vector<std::string>& known) {
  if (wanted.empty()) {
    throw flag_error("no " + std::string(kind) +
                     " has an empty name. Fix: name one, without a comma behind the last");
  }
  if (std::ranges::find(known, wanted) == known.end()) {
    throw flag_error("no " + std::string(kind) + " is named '" + wanted + "'. Did you mean " +
                     nearest(wanted, known) + "?");
  }
}

/// Whether `name` matches `pattern`, where `*` stands for any characters and case is ignored.
inline bool is_like(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) {
    return name.empty();
  }
  if (pattern.front() == '*') {
    return is_like(name, pattern.substr(1)) || (!name.empty() && is_like(name.substr(1), pattern));
  }
  const auto small = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return !name.empty() && small(name.front()) == small(pattern.front()) &&
         is_like(name.substr(1), pattern.substr(1));
}

/// Returns the known names that `wanted` means, in their order: the name itself, or all that match
/// a pattern such as `horovod*`. Throws flag_error if there is none.
inline std::vector<std::string> names_like(std::string_view kind, const std::string& wanted,
                                           const std::vector<std::string>& known) {
  if (wanted.find('*') == std::string::npos) {
    expect_one_of(kind, wanted, known);
    return {wanted};
  }
  std::vector<std::string> all;
  std::ranges::copy_if(known, std::back_inserter(all),
                       [&](const std::string& each) { return is_like(each, wanted); });
  if (all.empty()) {
    throw flag_error("no " + std::string(kind) + " matches '" + wanted +
                     "'. Fix: see the names with --list-strategies");
  }
  return all;
}

template <class Registry>
std::vector<std::string> names_of(const Registry& all) {
  std::vector<std::string> names;
  for (const auto& each : all) {
    names.emplace_back(each.name);
  }
  return names;
}

template <class Registry>
void print_descriptions(const Registry& all) {
  for (const auto& each : all) {
    print(each.described());
  }
}

inline void print_names(const std::vector<std::string>& names) {
  for (const auto& each : names) {
    std::puts(each.c_str());
  }
}

}  // namespace common
