#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tutti/base/plan.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine_options.hpp"

namespace tutti {

/// The settings that every rank must have alike, as lines of `name=value`: the policies and their
/// options, the optimizer and its values, and the run options. Policies come first, so that the
/// first line in which two ranks differ is never an option that only one of them has.
///
/// Settings are those that a description of options (base/options.hpp) lists; nothing else is
/// compared.
class settings {
 public:
  /// Like other functions of this class not inlined, because strategies have many lines.
  [[gnu::noinline]] void add(std::string_view name, std::string_view value) {
    lines_.append(name).append("=").append(value).append("\n");
  }

  /// Adds the values that `described` lists, each as `role.name`.
  template <class Described>
  void add_values(std::string_view role, const Described& described) {
    Described::describe(described, visitor{this, role});
  }

  std::string lines() && { return std::move(lines_); }

 private:
  struct visitor {
    settings* into;
    std::string_view role;

    template <class Value>
    void operator()(std::string_view name, const Value& value, std::string_view) const {
      into->begin(role);
      if constexpr (std::is_enum_v<Value>) {
        into->add(name, names(value)[static_cast<std::size_t>(value)]);
      } else if constexpr (std::same_as<Value, bool>) {
        into->add(name, value ? "true" : "false");
      } else if constexpr (std::signed_integral<Value>) {
        into->add_number(name, std::int64_t{value});
      } else if constexpr (std::unsigned_integral<Value>) {
        into->add_number(name, std::uint64_t{value});
      } else {
        into->add_number(name, value);
      }
    }
  };

  [[gnu::noinline]] void begin(std::string_view role) { lines_.append(role).append("."); }

  template <class Number>
  [[gnu::noinline]] void add_number(std::string_view name, Number value) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    add(name, {digits.data(), static_cast<std::size_t>(end - digits.data())});
  }

  std::string lines_{};
};

/// Returns a hash of the values that `described` lists.
template <class Described>
std::uint64_t hash_of_values(const Described& described) {
  running_hash hash;
  Described::describe(described, [&hash](std::string_view, const auto& each, std::string_view) {
    hash.feed(std::as_bytes(std::span(&each, 1)));
  });
  return hash.value();
}

/// The settings that all ranks of a strategy must have alike.
template <class Strategy, class Optimizer>
[[gnu::cold]] std::string settings_of(const engine_options<Strategy>& set,
                                      const Optimizer& optimizer) {
  using strategy = strategy_of<Strategy>;
  settings all;
  all.add("fusion", type_name<typename strategy::fusion>());
  all.add("partition", type_name<typename strategy::partition>());
  all.add("schedule", type_name<typename strategy::schedule>());
  all.add("coordination", type_name<typename strategy::coordination>());
  all.add("compression", type_name<typename strategy::compression>());
  all.add("architecture", type_name<typename strategy::architecture>());
  all.add("optimizer", type_name<Optimizer>());
  policy_options<strategy>::each(
      set, [&all](std::string_view role, const auto& own) { all.add_values(role, own); });
  all.add_values("optimizer", optimizer);
  all.add_values("run", set.run);
  return std::move(all).lines();
}

}  // namespace tutti
