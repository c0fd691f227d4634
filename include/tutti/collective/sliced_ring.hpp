#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>

#include "tutti/base/all_of.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::collective {

/// Up to four rings at once, each for a share of the data. A single ring leaves the wire idle after
/// each of its 2(p-1) messages, until its neighbour has begun the next. Here the messages of the
/// other rings travel meanwhile. Data are cut only as far as messages keep at least `Shortest`
/// bytes, and not at all over a stream-ordered transport, which moves one message at a time.
/// Wire: the ring's bytes, in up to four times as many messages. Cost: the ring's without those
/// pauses, and up to four times its staging; bench/figures.md has both beside each other.
/// After: the slices of NCCL's rings.
template <std::size_t Shortest = 128 << 10>
struct sliced_ring {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = false;

  static constexpr exchange_cost alone(int ranks) { return ring::alone(ranks); }
  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  template <class Endpoint, class Fold>
  task reduce_scatter(Endpoint self, reduction<Fold> data) const {
    return sliced(self, data, ring::add_up<Endpoint, Fold>);
  }
  template <class Endpoint, class Fold>
  task all_gather(Endpoint self, reduction<Fold> data) const {
    return sliced(self, data, ring::spread<Endpoint, Fold>);
  }
  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    return sliced(self, data, ring::add_up_and_spread<Endpoint, Fold>);
  }

 private:
  static constexpr std::size_t most_slices = 4;

  template <class Endpoint, class Fold>
  using around = task (*)(Endpoint, reduction<Fold>, detail::slice);

  template <class Endpoint, class Fold>
  static task sliced(Endpoint self, reduction<Fold> data, around<Endpoint, Fold> run) {
    if constexpr (!is_stream_ordered<typename Endpoint::transport_type>) {
      const std::size_t message = data.all().size() / at(self.size());
      if (const std::size_t slices = std::min(message / Shortest, most_slices); slices > 1) {
        return together(self, data, slices, run);
      }
    }
    return run(self, data, {});
  }

  template <class Endpoint, class Fold>
  static task together(Endpoint self, reduction<Fold> data, std::size_t slices,
                       around<Endpoint, Fold> run) {
    frame_array<task> rings(slices);
    std::exception_ptr failure;
    try {
      for (std::size_t slice = 0; slice < slices; ++slice) {
        rings.add([&] {
          return run(self.lane(static_cast<std::uint32_t>(slice)), data, {slices, slice});
        });
        self.start(rings[slice]);
      }
    } catch (...) {
      failure = std::current_exception();  // rings that have begun must end first
    }
    for (const task& each : rings.span()) {
      try {
        co_await each;
      } catch (...) {
        failure = failure ? failure : std::current_exception();
      }
    }
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
};
static_assert(collective_policy<sliced_ring<>>);

}  // namespace tutti::collective
