#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/job.hpp"
#include "tutti/base/error.hpp"
#include "tutti/core/engine_options.hpp"

namespace common {

/// Number with an optional KiB, MiB or GiB, or a name of an enumeration's.
template <class T>
void parse_value(const std::string& flag, const std::string& text, T& value) {
  if constexpr (std::is_enum_v<T>) {
    const auto known = names(value);
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i] == text) {
        value = static_cast<T>(i);
        return;
      }
    }
    throw tutti::usage_error("--" + flag + " " + text + " cannot be. Did you mean " +
                             nearest(text, std::vector<std::string>(known.begin(), known.end())) +
                             "?");
  } else {
    double number = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
    const double unit = suffix.empty()    ? 1
                        : suffix == "KiB" ? 1024.0
                        : suffix == "MiB" ? 1024.0 * 1024
                        : suffix == "GiB" ? 1024.0 * 1024 * 1024
                                          : 0;
    number *= unit;
    const bool whole = !std::is_integral_v<T> || number == std::floor(number);
    const bool sign = !std::is_unsigned_v<T> || number >= 0;
    if (status != std::errc{} || unit == 0 || !whole || !sign || std::abs(number) > 1e15) {
      throw tutti::usage_error("--" + flag + " " + text +
                               " is not a number that fits. Fix: as 64, 32MiB or 0.001");
    }
    value = static_cast<T>(number);
  }
}

/// The flags of a strategy's policies, with their help.
template <class Strategy>
std::vector<std::pair<std::string, std::string>> policy_flags() {
  std::vector<std::pair<std::string, std::string>> all;
  auto options = tutti::default_options<Strategy>();
  decltype(options)::each(options, [&all](std::string_view role, auto& own) {
    std::remove_cvref_t<decltype(own)>::describe(
        own, [&](std::string_view name, auto&, std::string_view meaning) {
          all.emplace_back(std::string(role) + "." + std::string(name), meaning);
        });
  });
  return all;
}

/// Sets what the job says of a strategy's policies. Throws usage_error, naming the nearest flag, if
/// this strategy has none of that name.
template <class Strategy>
void apply_policy_flags(const job& asked, tutti::engine_options<Strategy>& options) {
  const auto set = [&asked, &options](const std::string& flag, const std::string& text) {
    bool found = false;
    const auto visit_role = [&](std::string_view role, auto& own) {
      std::remove_cvref_t<decltype(own)>::describe(
          own, [&](std::string_view name, auto& value, std::string_view) {
            if (flag == std::string(role) + "." + std::string(name)) {
              parse_value(flag, text, value);
              found = true;
            }
          });
    };
    visit_role("fusion", options.fusion);
    visit_role("partition", options.partition);
    visit_role("schedule", options.schedule);
    visit_role("compression", options.compression);
    visit_role("architecture", options.architecture);
    if (!found) {
      std::vector<std::string> known;
      for (const auto& each : policy_flags<Strategy>()) {
        known.push_back("--" + each.first);
      }
      const std::string closest = nearest("--" + flag, known);
      throw tutti::usage_error("this strategy has no --" + flag +
                               (closest.empty() ? "" : ". Did you mean " + closest + "?"));
    }
  };
  for (const auto& [flag, text] : asked.policy_flags) {
    set(flag, text);
  }
}

}  // namespace common
