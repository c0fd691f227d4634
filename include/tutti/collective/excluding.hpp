#pragma once

#include "tutti/base/cost.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// The halves of an all-reduce.
enum class phase { reduce_scatter, all_gather };

/// An all-reduce without one of its halves, to measure what the other half takes. Its result is no
/// sum.
/// Wire: half of the collective's. Cost: that of the half that is left; both halves together take
/// as long as the whole if nothing else runs at the same time.
/// After: Zhang et al., "DeAR", ICDCS 2023, whose program has `--exclude-parts`.
template <phase Excluded, splitting_collective Collective = ring>
struct excluding : Collective {
  /// The share of the whole collective's bytes that is sent: both halves send the same number.
  static constexpr double share_of_bytes = 0.5;

  static constexpr exchange_cost alone(int ranks) requires requires { Collective::alone(ranks); }
  {
    const exchange_cost whole = Collective::alone(ranks);
    return {whole.latencies / 2, whole.payloads / 2};
  }

  template <class Endpoint, class Fold>
  task reduce_scatter(Endpoint self, reduction<Fold> data) const {
    if constexpr (Excluded == phase::reduce_scatter) {
      return nothing();
    } else {
      return Collective::reduce_scatter(self, data);
    }
  }
  template <class Endpoint, class Fold>
  task all_gather(Endpoint self, reduction<Fold> data) const {
    if constexpr (Excluded == phase::all_gather) {
      return nothing();
    } else {
      return Collective::all_gather(self, data);
    }
  }
  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    if constexpr (Excluded == phase::all_gather) {
      return Collective::reduce_scatter(self, data);
    } else {
      return Collective::all_gather(self, data);
    }
  }

 private:
  static task nothing() { co_return; }
};
static_assert(collective_policy<excluding<phase::reduce_scatter>> &&
              collective_policy<excluding<phase::all_gather>>);

}  // namespace tutti::collective
