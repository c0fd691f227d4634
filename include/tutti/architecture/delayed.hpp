#pragma once

#include "tutti/architecture/replicated.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Runs `Inner` one step late. Each step applies the mean of the step before, which has had a whole
/// step to arrive, so that no rank waits for the mean of the gradients that it has just computed.
/// The first step applies nothing, and the last mean is never applied. If `Inner` mixes models, a
/// step mixes in the model that was requested a step before.
/// Wire: as `Inner`.
/// Cost: a buffer as large as the model.
/// After: tf_cnn_benchmarks, `--variable_consistency=relaxed`; for pair_averaging, KungFu's
/// prefetched requests, Mai et al., OSDI 2020.
template <architecture_policy Inner = replicated<>>
struct delayed : Inner {
  static_assert(
      (facts::carries_of<Inner> == carries::gradient && !facts::updates_first<Inner> &&
       !facts::has_outgoing<tutti::detail::state_of<Inner>>) ||
          facts::mixes_late<Inner>,
      "tutti: only means of gradients, and models that are mixed in, can be applied a step late, "
      "but this architecture carries something else. Fix: delay architecture::replicated, "
      "all_reduce, pair_averaging, or a parameter_server that is updated_by::workers.");
  static constexpr bool stale = true;
  static constexpr int delay = 1;
};
static_assert(architecture_policy<delayed<>>);

template <class Inner, class Compression, class Transport>
struct resolved<delayed<Inner>, Compression, Transport> {
  using type = delayed<typename resolved<Inner, Compression, Transport>::type>;
};

}  // namespace tutti::architecture
