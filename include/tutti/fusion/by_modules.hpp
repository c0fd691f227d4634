#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/units.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// Modules that follow each other in the forward pass travel together: as many as stay below
/// `bytes` or, if `modules` is set, that many instead. Tensors are of one module if their names
/// agree up to the last dot, as those of a layer's weight and bias do.
/// Plan: groups are filled from the input on; a module that would reach the limit begins the next
/// group.
/// Cost: one copy in and one copy out per byte that is fused.
/// After: Zhang et al., "DeAR", ICDCS 2023: its threshold and its nearby layers.
class by_modules {
 public:
  using role = tutti::role::fusion;

  struct options {
    std::size_t bytes{25_MiB};
    std::size_t modules{0};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("bytes", self.bytes,
            "a group of several modules stays below this size; 0: every module alone");
      visit("modules", self.modules, "number of modules in a group; 0: set by bytes");
    }
  };

  constexpr by_modules() = default;
  explicit constexpr by_modules(const options& values) : options_(values) {}

  [[gnu::cold]] std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                                    const profile&) const {
    std::vector<std::size_t> ends;
    std::size_t modules = 0;
    std::size_t held = 0;
    for (std::size_t end = backward.size(); end > 0;) {  // of the forward pass's next module
      std::size_t begin = end;
      std::size_t bytes = 0;
      do {
        bytes += backward[--begin].elements * sizeof(float);
      } while (begin > 0 && are_of_one_module(backward[begin - 1], backward[begin]));
      const bool full = options_.modules != 0 ? modules == options_.modules
                                              : modules > 0 && held + bytes >= options_.bytes;
      if (modules == 0 || full) {
        ends.push_back(end);
        modules = 0;
        held = 0;
      }
      ++modules;
      held += bytes;
      end = begin;
    }
    return {ends.rbegin(), ends.rend()};
  }

 private:
  /// A tensor whose name has no dot is a module by itself.
  static bool are_of_one_module(const tensor_facts& one, const tensor_facts& other) {
    const std::size_t dot = one.name.rfind('.');
    return dot != std::string::npos && other.name.rfind('.') == dot &&
           one.name.compare(0, dot, other.name, 0, dot) == 0;
  }

  options options_{};
};
static_assert(fusion_policy<by_modules>);

}  // namespace tutti::fusion
