#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "tutti/base/bounds.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::architecture {

/// How the payloads of a summable compressor add up in a collective. Payloads are elements one by
/// one, of 1, 2, 4 or 8 bytes, so any pieces of `unit` bytes are whole ones.
template <class Compression>
struct payload_fold {
  static constexpr std::size_t unit = 64;
  const Compression* compression;

  template <class Queue>
  void operator()(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
    compression->fold(queue, wire{into, bytes}, const_wire(from, bytes));
  }
  template <class Queue, std::size_t Count>
  void everywhere(Queue& queue, const std::array<std::byte*, Count>& all,
                  std::size_t bytes) const requires requires(const std::array<wire, Count>& wires) {
    compression->fold_everywhere(queue, wires);
  }
  {
    std::array<wire, Count> wires;
    std::ranges::transform(all, wires.begin(), [bytes](std::byte* each) {
      return wire{each, bytes};
    });
    compression->fold_everywhere(queue, wires);
  }
};

/// Every rank holds the parameters; payloads are added on their way by a collective.
/// Wire: the collective's, of the payload's size.
/// After: Horovod, Sergeev and Del Balso, 2018.
template <collective_policy Collective = collective::ring>
struct all_reduce {
  using role = tutti::role::architecture;
  using collective = Collective;
  static constexpr bool adds_payloads = true;
  static constexpr bool completes_alone = false;
  static constexpr bool ordered_start = Collective::ordered_start;

  static constexpr double busiest_card(double payload, double, placement who) {
    return bound::all_reduce(payload, who.hosts());
  }
  static constexpr exchange_cost alone(placement who) requires requires { Collective::alone(1); }
  { return Collective::alone(who.workers); }

  template <class Compression>
  std::size_t workspace_bytes(const Compression& compression, std::size_t elements,
                              int ranks) const {
    const std::size_t scratch =
        Collective{}.scratch_bytes(elements, element_bytes(compression), ranks);
    return payload_room(compression, elements) + scratch;
  }

  template <class Endpoint, class Parcel>
  task exchange(Endpoint self, Parcel parcel) const {
    const auto& compression = *parcel.compression;
    auto& queue = self.queue();
    using compressor = std::remove_cvref_t<decltype(compression)>;
    reduction<payload_fold<compressor>> sum{
        nullptr, parcel.data.size(), element_bytes(compression), {&compression}};
    const std::size_t room = payload_room(compression, parcel.data.size());
    const auto payload = parcel.workspace.first(parcel.phantom() ? 0 : room);
    if (!parcel.phantom()) {
      sum.scratch = parcel.workspace.subspan(room);
      sum.data =
          encoded(compression) ? payload.data() : reinterpret_cast<std::byte*>(parcel.data.data());
    }
    if (encoded(compression)) {
      parcel.encode(queue, 0, parcel.data.size(), sum.all());
    }
    co_await Collective{}.all_reduce(self, sum);
    if (encoded(compression)) {
      parcel.clear(queue, 0, parcel.data.size());
      parcel.accumulate(queue, sum.all(), 0, parcel.data.size());
    }
    parcel.scale(queue, 0, parcel.data.size());
  }

 private:
  template <class Compression>
  static constexpr bool encoded(const Compression&) {
    return !facts::identity<Compression>;
  }
  template <class Compression>
  static std::size_t element_bytes(const Compression& compression) {
    return compression.wire_bytes(1);
  }
  template <class Compression>
  static std::size_t payload_room(const Compression& compression, std::size_t elements) {
    return encoded(compression) ? round_up(compression.wire_bytes(elements), 64) : 0;
  }
};
static_assert(architecture_policy<all_reduce<>>);

}  // namespace tutti::architecture
