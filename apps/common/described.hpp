#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "tutti/base/sentence.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/core/compose.hpp"

namespace common {

/// What `--list-strategies` prints of one strategy.
struct description {
  std::string_view name;
  std::string composition{};  ///< the policies that are not their role's default
  std::string_view after{};   ///< the paper or system that the strategy comes from
  std::string defaults{};     ///< the default values of its policies' flags
  std::string_view deviations{};
};

/// Returns a type's name as a user writes it: without namespace tutti, and without a space between
/// closing brackets.
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

template <class Policy, class Usual>
void add_unless_usual(std::string& list) {
  if (!std::is_same_v<Policy, Usual>) {
    tutti::add_to_list(list, without_namespace(tutti::type_name<Policy>()));
  }
}

/// Appends each option of a policy, with its value, to a list.
struct lister {
  std::string* list;
  std::string_view role;

  template <class Value>
  [[gnu::cold]] void operator()(std::string_view name, const Value& value, std::string_view) const {
    tutti::add_to_list(*list, std::string(role) + "." + std::string(name) + "=" + text_of(value));
  }
};

template <class Strategy>
[[gnu::cold]] description described() {
  using strategy = tutti::strategy_of<Strategy>;
  using usual = tutti::compose<>;
  description its{.name = Strategy::name};
  std::string& list = its.composition;
  add_unless_usual<typename strategy::fusion, typename usual::fusion>(list);
  add_unless_usual<typename strategy::partition, typename usual::partition>(list);
  add_unless_usual<typename strategy::schedule, typename usual::schedule>(list);
  add_unless_usual<typename strategy::coordination, typename usual::coordination>(list);
  add_unless_usual<typename strategy::compression, typename usual::compression>(list);
  add_unless_usual<typename strategy::architecture, typename usual::architecture>(list);
  auto options = tutti::default_options<Strategy>();
  decltype(options)::each(options, [&](std::string_view role, auto& own) {
    std::remove_cvref_t<decltype(own)>::describe(own, lister{&its.defaults, role});
  });
  if constexpr (requires { Strategy::after; }) {
    its.after = Strategy::after;
  }
  if constexpr (requires { Strategy::deviations; }) {
    its.deviations = Strategy::deviations;
  }
  return its;
}

/// Prints lines "  heading  text", broken between words before the 100th column. Only the first
/// line has the heading.
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

/// Prints a description. Every line but the strategy's name begins with a space.
inline void print(const description& its) {
  std::printf("%.*s\n", static_cast<int>(its.name.size()), its.name.data());
  print_paragraph("composition", its.composition.empty() ? "compose<>" : its.composition);
  print_paragraph("after", its.after);
  print_paragraph("defaults", its.defaults);
  print_paragraph("deviations", its.deviations);
}

}  // namespace common
