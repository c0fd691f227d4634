#pragma once

#include "tutti/coordination/leader.hpp"
#include "tutti/role/coordination.hpp"

namespace tutti::coordination {

/// The composer's choice: `local` where ranks need no order, or the plan says it; else `leader`.
/// Plan: none. Wire: as what it stands for. Cost: none of its own.
struct automatic {
  using role = tutti::role::coordination;
  static constexpr bool one_order = false;

  /// Of the two, the one that is legal everywhere.
  template <class Choice>
  using state = leader::state<Choice>;
};
static_assert(coordination_policy<automatic>);

}  // namespace tutti::coordination
