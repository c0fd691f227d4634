#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string_view>

#include "tutti/base/options.hpp"
#include "tutti/base/tensor.hpp"

namespace tutti {

/// A rule that chooses tensors: `rule(tensor)` returns whether it chooses this one. It is a pure
/// function of the tensor's size, shape and name and of the rule's options, and so equal on all
/// ranks.
template <class R>
concept tensor_rule = requires(const R rule, const tensor_facts& tensor) {
  { rule(tensor) } -> std::same_as<bool>;
};

/// All tensors.
struct every_tensor {
  constexpr bool operator()(const tensor_facts&) const { return true; }
};
static_assert(tensor_rule<every_tensor>);

/// A text that can be a template argument.
template <std::size_t Length>
struct fixed_text {
  char letters[Length]{};

  constexpr fixed_text(const char (&text)[Length]) { std::copy_n(text, Length, letters); }
  constexpr std::string_view view() const { return {letters, Length - 1}; }
};

/// Tensors whose name fits one of the patterns, such as `named<"*.bias", "fc.weight">`. A `*` at
/// the beginning or the end of a pattern fits any letters.
template <fixed_text... Patterns>
struct named {
  constexpr bool operator()(const tensor_facts& tensor) const {
    return (fits(Patterns.view(), tensor.name) || ...);
  }

 private:
  static constexpr bool fits(std::string_view wanted, std::string_view name) {
    const bool any_before = wanted.starts_with('*');
    wanted.remove_prefix(any_before ? 1 : 0);
    const bool any_after = wanted.ends_with('*');
    wanted.remove_suffix(any_after ? 1 : 0);
    if (any_before && any_after) {
      return name.find(wanted) != std::string_view::npos;
    }
    return any_before  ? name.ends_with(wanted)
           : any_after ? name.starts_with(wanted)
                       : name == wanted;
  }
};
static_assert(tensor_rule<named<"*.bias">>);

/// Tensors of at least two dimensions of which the first is longer than 1, and so is the product of
/// the others.
struct matrices {
  constexpr bool operator()(const tensor_facts& tensor) const {
    return tensor.shape.dimensions() > 1 && tensor.shape[0] > 1 &&
           tensor.elements > tensor.shape[0];
  }
};
static_assert(tensor_rule<matrices>);

/// Tensors of at least `elements` elements.
class at_least {
 public:
  struct options {
    std::size_t elements{16384};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("elements", self.elements, "tensors with fewer elements are not chosen");
    }
  };

  constexpr at_least() = default;
  explicit constexpr at_least(const options& values) : options_(values) {}
  constexpr bool operator()(const tensor_facts& tensor) const {
    return tensor.elements >= options_.elements;
  }

 private:
  options options_{};
};
static_assert(tensor_rule<at_least>);

/// Tensors that both rules choose.
template <tensor_rule First, tensor_rule Second>
class both {
 public:
  struct options {
    options_of<First> first{};
    options_of<Second> second{};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      options_of<First>::describe(self.first, visit);
      options_of<Second>::describe(self.second, visit);
    }
  };

  constexpr both() = default;
  explicit constexpr both(const options& values)
      : first_(make_policy<First>(values.first)), second_(make_policy<Second>(values.second)) {}
  constexpr bool operator()(const tensor_facts& tensor) const {
    return first_(tensor) && second_(tensor);
  }

 private:
  First first_{};
  Second second_{};
};
static_assert(tensor_rule<both<matrices, at_least>>);

}  // namespace tutti
