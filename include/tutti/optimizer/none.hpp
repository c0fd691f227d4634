#pragma once

#include "tutti/role/optimizer.hpp"

namespace tutti::optimizer {

/// Leaves the averaged gradients where the model put its own, for an optimizer of the user's.
struct none {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = true;
  static constexpr bool leaves_means = true;

  template <class Self, class Visitor>
  static void describe(Self&, Visitor&&) {}
  static std::size_t memory_per_element() { return 0; }
  template <class Queue>
  void apply(Queue&, std::span<float>, std::span<const float>, const chunk_context&) const {}
};
static_assert(optimizer_policy<none>);

}  // namespace tutti::optimizer
