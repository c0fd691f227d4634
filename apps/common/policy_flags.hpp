#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/job.hpp"
#include "common/nearest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/core/engine_options.hpp"

namespace common {

/// Whether `number` can be converted to T, and is small enough for a double to be exact.
template <class T>
bool fits(double number) {
  constexpr double exact = 1e15;
  if constexpr (std::is_integral_v<T>) {
    constexpr auto least = static_cast<double>(std::numeric_limits<T>::min());
    constexpr auto greatest = static_cast<double>(std::numeric_limits<T>::max());
    return number >= std::max(least, -exact) && number <= std::min(greatest, exact);
  } else {
    return std::abs(number) < exact;
  }
}

/// Parses a number with an optional suffix KiB, MiB or GiB, or the name of an enumerator. Throws
/// flag_error if the text is neither or does not fit.
template <class T>
[[gnu::cold]] void parse_value(const std::string& flag, const std::string& text, T& value) {
  if constexpr (std::is_enum_v<T>) {
    const auto known = names(value);
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i] == text) {
        value = static_cast<T>(i);
        return;
      }
    }
    throw flag_error("--" + flag + " " + text + " is not valid. " +
                     choices(text, std::vector<std::string>(known.begin(), known.end())));
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
    if (status != std::errc{} || unit == 0 || !whole || !fits<T>(number)) {
      throw flag_error(
          "--" + flag + " " + text + " is not a valid number. Fix: " +
          (std::is_integral_v<T> ? "a whole number, as 64 or 32MiB" : "a number, as 0.001"));
    }
    value = static_cast<T>(number);
  }
}

namespace detail {

/// Sets each option to the value that the flags give it.
struct setter {
  std::string_view role;
  const flag_values* flags;

  template <class T>
  [[gnu::cold]] void operator()(std::string_view name, T& value, std::string_view) const {
    const std::string mine = std::string(role) + "." + std::string(name);
    for (const auto& [flag, text] : *flags) {
      if (flag == mine) {
        parse_value(flag, text, value);
      }
    }
  }
};

/// Lists the flags of all options, whether they are set or not.
struct flag_lister {
  std::string_view role;
  flag_values* all;

  template <class T>
  void operator()(std::string_view name, const T&, std::string_view meaning) const {
    add(name, meaning);
  }
  [[gnu::cold]] void add(std::string_view name, std::string_view meaning) const {
    all->emplace_back(std::string(role) + "." + std::string(name), meaning);
  }
};

}  // namespace detail

/// Sets the options that `own` describes to the values of the flags named `role.OPTION`.
template <class Described>
void set_described(std::string_view role, Described& own, const flag_values& flags) {
  Described::describe(own, detail::setter{role, &flags});
}

/// Adds the flags of the options that `own` describes, with their help.
template <class Described>
void add_flags(std::string_view role, const Described& own, flag_values& all) {
  Described::describe(own, detail::flag_lister{role, &all});
}

/// Returns the flags of a strategy's policies, with their help. The flags of the job are applied
/// first, because some values make further options available.
template <class Strategy>
[[gnu::cold]] flag_values policy_flags(const job& asked) {
  flag_values all;
  auto options = tutti::default_options<Strategy>();
  decltype(options)::each(options, [&](std::string_view role, auto& own) {
    set_described(role, own, asked.policy_flags);
    add_flags(role, own, all);
  });
  return all;
}

inline void print_policy_flags(const flag_values& flags) {
  for (const auto& [flag, meaning] : flags) {
    std::printf("  --%-26s %s\n", (flag + " arg").c_str(), meaning.c_str());
  }
}

/// Throws flag_error, suggesting the nearest, if `asked` has a flag that is not among the known.
inline void expect_flags(const std::string& whose, const flag_values& asked,
                         const flag_values& known) {
  std::vector<std::string> names;
  for (const auto& each : known) {
    names.push_back(each.first);
  }
  for (const auto& each : asked) {
    if (std::ranges::find(names, each.first) == names.end()) {
      const std::string closest = nearest(each.first, names);
      throw flag_error(whose + " has no --" + each.first +
                       (closest.empty() ? " because it has no options. Fix: leave it out"
                                        : ". Did you mean --" + closest + "?"));
    }
  }
}

/// Sets one policy's options from the flags. Throws flag_error if the policy refuses their values.
/// Those of schedules and architectures are refused only by their states, when an engine is made.
template <class Policy>
[[gnu::cold]] void apply_to(std::string_view role, tutti::options_of<Policy>& own,
                            const job& asked) {
  set_described(role, own, asked.policy_flags);
  if constexpr (std::constructible_from<Policy, const tutti::options_of<Policy>&>) {
    try {
      static_cast<void>(Policy(own));
    } catch (const tutti::usage_error& wrong) {
      throw flag_error(wrong.what());
    }
  }
}

/// Sets a strategy's policies from the job's flags. Throws flag_error, naming the nearest flag, if
/// the strategy has no flag of that name.
template <class Strategy>
[[gnu::cold]] void apply_policy_flags(const job& asked, tutti::engine_options<Strategy>& options) {
  expect_flags("this strategy", asked.policy_flags, policy_flags<Strategy>(asked));
  using strategy = tutti::strategy_of<Strategy>;
  apply_to<typename strategy::fusion>("fusion", options.fusion, asked);
  apply_to<typename strategy::partition>("partition", options.partition, asked);
  apply_to<typename strategy::schedule>("schedule", options.schedule, asked);
  apply_to<typename strategy::coordination>("coordination", options.coordination, asked);
  apply_to<typename strategy::compression>("compression", options.compression, asked);
  apply_to<typename strategy::architecture>("architecture", options.architecture, asked);
}

/// Returns the engine options for a job. Throws flag_error if the job sets an option that this
/// strategy does not have, or gives one a value that cannot be.
template <class Strategy>
[[gnu::cold]] tutti::engine_options<Strategy> options(const job& asked) {
  tutti::engine_options<Strategy> set;
  set.run.deadline = asked.deadline;
  parse_value("progress", asked.progress, set.run.progress);
  if constexpr (requires { set.architecture.servers; }) {
    set.architecture.servers = asked.servers;
  }
  apply_policy_flags(asked, set);
  if constexpr (requires { set.architecture.servers; }) {
    if (set.architecture.servers > most_ranks) {
      throw flag_error("--architecture.servers " + std::to_string(set.architecture.servers) +
                       " is out of range. Fix: from 1 to " + std::to_string(most_ranks));
    }
  }
  return set;
}

/// Returns how many server ranks the job has beside its workers.
template <class Strategy>
[[gnu::cold]] int servers(const job& asked) {
  const auto set = options<Strategy>(asked);
  if constexpr (requires { set.architecture.servers; }) {
    return set.architecture.servers;
  } else {
    return 0;
  }
}

}  // namespace common
