#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti_torch/trainer.hpp"

namespace tutti_torch {

/// Sets an option to the value that is written as `its`. Throws tutti::usage_error if it cannot
/// have that value.
template <class Value>
void set_option(const std::string& name, const std::string& its, Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    const auto known = names(value);
    std::string all;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (its == known[i]) {
        value = static_cast<Value>(i);
        return;
      }
      tutti::add_to_list(all, known[i]);
    }
    throw tutti::usage_error(name + " cannot be " + its + ". Fix: one of " + all);
  } else {
    Value read{};
    const char* const end = its.data() + its.size();
    if (const auto [stop, failed] = std::from_chars(its.data(), end, read);
        failed != std::errc{} || stop != end) {
      throw tutti::usage_error(
          tutti::sentence({name, " cannot be ", its, ". Fix: ", value, ", for example"}));
    }
    value = read;
  }
}

/// Returns the engine options with the given values. Throws tutti::usage_error for an unknown name
/// or a value that the option cannot have.
template <class Strategy>
tutti::engine_options<Strategy> options_from(named_options given) {
  tutti::engine_options<Strategy> set;
  std::string known;
  const auto take = [&](const std::string& name, auto& value) {
    if (const auto its = given.extract(name)) {
      set_option(name, its.mapped(), value);
    }
    tutti::add_to_list(known, name);
  };
  take("run.deadline", set.run.deadline);
  take("run.progress", set.run.progress);
  tutti::policy_options<tutti::strategy_of<Strategy>>::each(
      set, [&](std::string_view role, auto& own) {
        std::remove_cvref_t<decltype(own)>::describe(
            own, [&](std::string_view option, auto& value, std::string_view) {
              take(tutti::sentence({role, ".", option}), value);
            });
      });
  if (!given.empty()) {
    throw tutti::usage_error("this strategy has no option " + given.begin()->first +
                             ". Fix: one of " + known);
  }
  return set;
}

/// Returns an optimizer with the given values; the others are those of `values`. Throws
/// tutti::usage_error if an integer option's value is not whole.
template <class Optimizer>
Optimizer optimizer_from(const named_values& given, Optimizer values = {}) {
  Optimizer::describe(values, [&given](std::string_view name, auto& value, std::string_view) {
    if (const auto found = given.find(std::string(name)); found != given.end()) {
      using wanted = std::remove_reference_t<decltype(value)>;
      const double its = found->second;
      if constexpr (std::is_integral_v<wanted>) {
        // Above it, a double cannot represent every whole number.
        constexpr double most = 1ULL << 53;
        if (!(its >= 0 && its < most && its == std::floor(its))) {
          throw tutti::usage_error(
              tutti::sentence({name, " cannot be ", its, ". Fix: a whole number, 0 or more"}));
        }
      }
      value = static_cast<wanted>(its);
    }
  });
  return values;
}

}  // namespace tutti_torch
