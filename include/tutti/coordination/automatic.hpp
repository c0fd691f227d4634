#pragma once

#include "tutti/coordination/leader.hpp"
#include "tutti/role/coordination.hpp"

namespace tutti::coordination {

/// Leaves the choice to the composer: `local` where ranks need no common order of launches or the
/// plan gives one, else `leader`.
/// Plan: none.
/// Wire: as the one chosen.
/// Cost: none of its own.
struct automatic {
  using role = tutti::role::coordination;
  static constexpr bool one_order = false;

  /// The machine of `leader`, the one of the two that is legal everywhere.
  template <class Choice>
  using state = leader::state<Choice>;
};
static_assert(coordination_policy<automatic>);

}  // namespace tutti::coordination
