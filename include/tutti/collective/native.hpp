#pragma once

#include <span>

#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// The transport's own all-reduce: MPI's or NCCL's.
/// Wire and cost: the library's. Every rank must start its all-reduces in the same order.
struct native {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = true;
  static constexpr bool requires_native = true;

  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    co_await self.all_reduce(std::span<float>(reinterpret_cast<float*>(data.data), data.elements));
  }
};
static_assert(collective_policy<native>);

}  // namespace tutti::collective
