#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "tutti/base/type_name.hpp"
#include "tutti/core/compose.hpp"

namespace common {

/// What `--list-strategies` says of one.
struct description {
  std::string_view name;
  std::string composition{};  ///< policies that are not their role's default
  std::string_view after{};   ///< the paper or system
  std::string defaults{};     ///< of its policies' flags
  std::string_view deviations{};
};

/// As a user writes it: without namespace tutti, and without a space between closing brackets.
inline std::string without_namespace(std::string_view type) {
  std::string text(type);
  for (const std::string_view each : {"tutti::", " >"}) {
    for (auto at = text.find(each); at != text.npos; at = text.find(each, at)) {
      text.erase(at, each == " >" ? 1 : each.size());
    }
  }
  return text;
}

template <class Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return std::string(names(value)[static_cast<std::size_t>(value)]);
  } else if constexpr (std::is_floating_point_v<Value>) {
    std::array<char, 32> digits{};
    std::snprintf(digits.data(), digits.size(), "%g", value);
    return digits.data();
  } else {
    return value == std::numeric_limits<Value>::max() ? "unlimited" : std::to_string(value);
  }
}

template <class Strategy>
description described() {
  using strategy = tutti::strategy_of<Strategy>;
  using usual = tutti::compose<>;
  description its{.name = Strategy::name};
  const auto add = [](std::string& list, const std::string& item) {
    if (!list.empty()) {
      list += ", ";
    }
    list += item;
  };
  const auto compare = [&]<class Policy, class Usual>(std::type_identity<Policy>,
                                                      std::type_identity<Usual>) {
    if (!std::is_same_v<Policy, Usual>) {
      add(its.composition, without_namespace(tutti::type_name<Policy>()));
    }
  };
  compare(std::type_identity<typename strategy::fusion>(),
          std::type_identity<typename usual::fusion>());
  compare(std::type_identity<typename strategy::partition>(),
          std::type_identity<typename usual::partition>());
  compare(std::type_identity<typename strategy::schedule>(),
          std::type_identity<typename usual::schedule>());
  compare(std::type_identity<typename strategy::coordination>(),
          std::type_identity<typename usual::coordination>());
  compare(std::type_identity<typename strategy::compression>(),
          std::type_identity<typename usual::compression>());
  compare(std::type_identity<typename strategy::architecture>(),
          std::type_identity<typename usual::architecture>());
  auto options = tutti::default_options<Strategy>();
  decltype(options)::each(options, [&](std::string_view role, auto& own) {
    std::remove_cvref_t<decltype(own)>::describe(
        own, [&](std::string_view name, const auto& value, std::string_view) {
          add(its.defaults, std::string(role) + "." + std::string(name) + "=" + text_of(value));
        });
  });
  if constexpr (requires { Strategy::after; }) {
    its.after = Strategy::after;
  }
  if constexpr (requires { Strategy::deviations; }) {
    its.deviations = Strategy::deviations;
  }
  return its;
}

/// A line "  heading  text", broken between words before its 100th column.
inline void print_paragraph(std::string_view heading, std::string_view text) {
  constexpr std::size_t width = 84;
  while (!text.empty()) {
    const auto end = text.size() <= width ? text.size() : std::min(text.rfind(' ', width), width);
    std::printf("  %-13.*s%.*s\n", static_cast<int>(heading.size()), heading.data(),
                static_cast<int>(end), text.data());
    heading = "";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// Every line but those of the names begins with a space.
inline void print(const description& its) {
  std::printf("%.*s\n", static_cast<int>(its.name.size()), its.name.data());
  print_paragraph("composition", its.composition.empty() ? "compose<>" : its.composition);
  print_paragraph("after", its.after);
  print_paragraph("defaults", its.defaults);
  print_paragraph("deviations", its.deviations);
}

}  // namespace common
