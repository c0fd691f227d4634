#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>

namespace tutti {

/// The options of a policy that has none.
struct no_options {
  template <class Self, class Visitor>
  static void describe(Self&, Visitor&&) {}
};

namespace detail {
template <class Policy>
struct options_of {
  using type = no_options;
};
template <class Policy>
requires requires { typename Policy::options; }
struct options_of<Policy> {
  static constexpr bool constant = std::is_trivially_destructible_v<typename Policy::options>;
  using type = std::conditional_t<constant, typename Policy::options, no_options>;
  static_assert(constant,
                "tutti: this policy has options that own memory, so their defaults are no "
                "constants. Fix: numbers, enumerations with names, or arrays of them, instead of "
                "std::string or std::vector.");
};
}  // namespace detail

/// A policy's options: values with constant defaults, never types.
///
/// An options struct describes itself once. Flags, help, JSON and checkpoints read that
/// description:
///
///     struct options {
///       std::size_t bytes{64_MiB};
///       template <class Self, class Visitor>
///       static void describe(Self& self, Visitor&& visit) {
///         visit("bytes", self.bytes, "close a bucket when it holds this many bytes");
///       }
///     };
///
/// A visited value is an integer, a double, or an enumeration with a `names(value_type)` overload.
/// Which values are visited may depend on the values visited before them.
template <class Policy>
using options_of = typename detail::options_of<Policy>::type;

/// Returns a policy that is made with `options`, or a default one if the policy has no options.
template <class Policy>
constexpr Policy make_policy(const options_of<Policy>& options) {
  if constexpr (std::constructible_from<Policy, const options_of<Policy>&>) {
    return Policy(options);
  } else if constexpr (requires { Policy{options}; }) {  // an aggregate, under clang 14
    return Policy{options};
  } else {
    static_assert(std::same_as<options_of<Policy>, no_options>,
                  "tutti: this policy has options, but cannot be made with them, so they would do "
                  "nothing. Fix: give it a constructor that takes them; a policy that derives from "
                  "another inherits that one's with a using declaration.");
    static_assert(std::default_initializable<Policy>,
                  "tutti: this policy has no options, but cannot be made without arguments. Fix: "
                  "give it a default constructor, or options and a constructor that takes them.");
    return Policy{};
  }
}

}  // namespace tutti
