#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/cost.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// Processes of one host add up as `addressable` does, in one pass, if all of their data lies in
/// memory that they share. Anything else goes by `Otherwise`, as it does between hosts.
/// Wire: none, or that of `Otherwise`. Cost: two rendezvous and one pass over the data, shared by
/// the ranks; if some data lies elsewhere, one rendezvous more than `Otherwise`.
/// After: the shared-memory all-reduces of MPI libraries, without their copies.
template <collective_policy Otherwise>
struct in_host_memory {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = Otherwise::ordered_start;

  static constexpr exchange_cost alone(int ranks) requires requires { Otherwise::alone(1); }
  { return Otherwise::alone(ranks); }
  std::size_t scratch_bytes(std::size_t elements, std::size_t element_bytes, int ranks) const {
    return otherwise.scratch_bytes(elements, element_bytes, ranks);
  }

  template <class Endpoint, class Fold>
  task reduce_scatter(Endpoint self,
                      reduction<Fold> data) const requires splitting_collective<Otherwise> {
    return otherwise.reduce_scatter(self, data);
  }
  template <class Endpoint, class Fold>
  task all_gather(Endpoint self,
                  reduction<Fold> data) const requires splitting_collective<Otherwise> {
    return otherwise.all_gather(self, data);
  }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    if constexpr (requires { self.may_rendezvous(); }) {
      const bool phantom = data.data == nullptr && data.elements != 0;
      if (!phantom && self.may_rendezvous()) {
        return add_in_place(self, data);
      }
    }
    return otherwise.all_reduce(self, data);
  }

 private:
  static constexpr Otherwise otherwise{};  // static, because its tasks keep a pointer to it

  template <class Endpoint, class Fold>
  static task add_in_place(Endpoint self, reduction<Fold> data) {
    if (data.all().size() <= addressable::inline_bytes) {
      const auto shown = co_await self.rendezvous(data.all());
      addressable::add_shown(self, data, shown);
      co_return;
    }
    bool everywhere = true;
    {
      shared_place mine = self.place_of(data.all());
      const auto shown = co_await self.rendezvous(std::as_bytes(std::span(&mine, 1)));
      const auto place = [&](int peer) { return shown.template shown<shared_place>(peer); };
      for (int peer = 0; peer < self.size(); ++peer) {
        everywhere &= place(peer).block != 0;
      }
      if (everywhere) {
        addressable::add_part(self, data, [&](int peer) { return self.at(peer, place(peer)); });
      }
    }
    if (everywhere) {
      co_await self.rendezvous(std::span<const std::byte>{});
    } else {
      co_await otherwise.all_reduce(self, data);
    }
  }
};

}  // namespace tutti::collective
