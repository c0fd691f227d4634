#pragma once

#include <type_traits>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/mean.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/collective/in_host_memory.hpp"
#include "tutti/collective/native.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/sliced_ring.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::architecture {

/// Every rank holds all parameters, and the composer picks the cheapest legal way to keep them
/// equal: an all_reduce where payloads add, reduce_scatter_all_gather where they do not add but can
/// be cut, and else an all_gather. The collective of the all_reduce depends on the transport:
/// `addressable` where ranks can read their peers' memory; `native` where the transport is a
/// stream-ordered library with an all-reduce of its own and floats travel; `in_host_memory` over a
/// `sliced_ring` where processes of a host can share memory, as with MPI; and else a ring.
///
/// With mean::before or mean::none, payloads must add, because the architecture is then an
/// all_reduce.
/// After: Xie et al., "Espresso", EuroSys 2023, which chooses among the same three.
template <mean Mean = mean::after>
struct replicated {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = Mean != mean::after;
  static constexpr bool adds_in_rounds = Mean == mean::after;
  static constexpr bool divides_first = Mean == mean::before;
  static constexpr bool leaves_sums = Mean == mean::none;
  static constexpr bool completes_alone = false;

  template <class Compression, class Transport>
  static constexpr bool librarys_own =
      is_stream_ordered<Transport>&& has_all_reduce<Transport>&& facts::identity<Compression>;

  template <class Compression, class Transport>
  using collective_over = std::conditional_t<
      has_addressable_peers<Transport>, collective::addressable,
      std::conditional_t<librarys_own<Compression, Transport>, collective::native,
                         std::conditional_t<has_host_memory<Transport>,
                                            collective::in_host_memory<collective::sliced_ring<>>,
                                            collective::ring>>>;

  template <class Compression, class Transport>
  using resolve =
      std::conditional_t<facts::summable<Compression>,
                         all_reduce<collective_over<Compression, Transport>, Mean>,
                         std::conditional_t<(facts::unit_of<Compression> <= unit::block),
                                            reduce_scatter_all_gather, all_gather>>;

  template <class World>
  using state = typename resolve<typename World::compression,
                                 typename World::transport>::template state<World>;
};
static_assert(architecture_policy<replicated<>>);

/// The architecture that implements `Architecture` for a compressor and a transport: `Architecture`
/// itself, unless it is `replicated` or contains it.
template <class Architecture, class Compression, class Transport>
struct resolved {
  static_assert(
      !requires { typename Architecture::template resolve<Compression, Transport>; },
      "tutti: replicated stands for an architecture that the composer picks, and one "
      "that is derived from it would have the facts of none. Fix: derive from "
      "all_reduce, reduce_scatter_all_gather or all_gather.");
  using type = Architecture;
};
template <mean Mean, class Compression, class Transport>
struct resolved<replicated<Mean>, Compression, Transport> {
  using type = typename replicated<Mean>::template resolve<Compression, Transport>;
};

}  // namespace tutti::architecture
