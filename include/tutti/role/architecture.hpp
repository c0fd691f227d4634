#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include "tutti/base/bounds.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti {

namespace role {
struct architecture {};
}  // namespace role

/// Bytes that a compressor moves to encode so many elements, beside its payload: it reads them, and
/// reads and writes what it remembers of each.
template <class Compression>
constexpr std::size_t encoding_bytes(std::size_t elements) {
  return sizeof(float) * elements * (1 + 2 * facts::memory_per_element<Compression>);
}

/// One chunk as an architecture sees it. On entry `data` holds this rank's gradient; on return the
/// average over the workers, or the new parameters where the architecture owns them.
/// A chunk without memory is a phantom: its payloads have lengths and nothing is encoded.
template <class Compression, class Released>
struct parcel {
  std::span<float> data{};
  const Compression* compression{};
  site worker{};  ///< where this rank's gradient is encoded
  site owner{};   ///< where a sum is encoded again, by the rank that made it
  std::span<std::byte> workspace{};
  float average{1.0f};  ///< turns the sum into the mean
  int workers{1};
  int server{};  ///< rank of the chunk's server
  Released released{};

  bool phantom() const { return data.data() == nullptr; }
  std::size_t wire_bytes(std::size_t elements) const { return compression->wire_bytes(elements); }
  std::size_t wire_bytes() const { return wire_bytes(data.size()); }

  /// Encodes `count` elements from `first` on, with this rank's memory of them.
  template <class Queue>
  void encode(Queue& queue, std::size_t first, std::size_t count, std::span<std::byte> out) const {
    charge(queue, encoding_bytes<Compression>(count) + out.size());
    if (!phantom()) {
      tutti::encode(*compression, queue, data.subspan(first, count), wire{out.data(), out.size()},
                    worker.from(first));
    }
  }
  /// Encodes the mean of `count` elements from `first` on, as their owner.
  template <class Queue>
  void encode_mean(Queue& queue, std::size_t first, std::size_t count,
                   std::span<std::byte> out) const {
    charge(queue,
           encoding_bytes<std::remove_cvref_t<decltype(relay(*compression))>>(count) + out.size());
    if (!phantom()) {
      tutti::encode(relay(*compression), queue, data.subspan(first, count),
                    wire{out.data(), out.size()}, owner.from(first));
    }
  }
  template <class Queue>
  void accumulate(Queue& queue, std::span<const std::byte> payload, std::size_t first,
                  std::size_t count) const {
    charge(queue, payload.size() + 2 * sizeof(float) * count);
    if (!phantom()) {
      compression->accumulate(queue, const_wire(payload.data(), payload.size()),
                              data.subspan(first, count));
    }
  }
  template <class Queue>
  void clear(Queue& queue, std::size_t first, std::size_t count) const {
    charge(queue, sizeof(float) * count);
    if (!phantom()) {
      queue.clear(data.data() + first, count * sizeof(float));
    }
  }
  template <class Queue>
  void scale(Queue& queue, std::size_t first, std::size_t count) const {
    charge(queue, average == 1.0f ? 0 : 2 * sizeof(float) * count);
    if (!phantom() && average != 1.0f) {
      kernels::scale(queue, data.subspan(first, count), average);
    }
  }
};

/// Where parameter servers live.
enum class server_hosts {
  own,      ///< each on a host of its own
  workers,  ///< one after the other on the workers' hosts, whose cards they share
};

/// Who lives where, for bounds: workers share hosts.
struct placement {
  int workers{1};
  int servers{};
  int per_host{1};
  server_hosts serving{};
  double server_speed{1};  ///< of the card of a server's own host, a worker's being 1

  constexpr int hosts() const { return bound::hosts(workers, per_host); }
};

/// An architecture says who combines what, and when.
///
/// * `adds_payloads`: encoded payloads are added on their way, so they must be summable.
/// * `completes_alone`: a rank's chunk completes although no other worker starts it now.
/// * `has_servers`: the last `options.servers` ranks keep parameters or sums and do not train.
/// * `owns_parameters`: what comes back is parameters; the optimizer runs where they are owned.
/// * `receives_from_any`: somebody takes what comes first, from whom is for the message to say.
/// * `stale`: a worker may compute on parameters that lack another worker's update.
/// * `workspace_bytes(compression, elements, ranks)`, known from the plan.
/// * `busiest_card(payload, dense, placement)`: bytes that must pass some host's card in one
///   direction, in a step of so many payload bytes a worker, whatever the order: no step is shorter
///   than these at the card's rate. `dense` is the same gradient as floats.
/// * `alone(placement)`: what an exchange that has the network to itself takes, where that is so
///   many latencies and so many payloads through one card: then few ranks can stand for many.
/// * `exchange(endpoint, parcel)` -> task.
template <class A>
concept architecture_policy = std::same_as<typename A::role, role::architecture> && requires {
  { A::adds_payloads } -> std::convertible_to<bool>;
  { A::completes_alone } -> std::convertible_to<bool>;
};

namespace facts {
template <class A>
constexpr bool has_servers = requires {
  requires A::has_servers;
};
template <class A>
constexpr bool owns_parameters = requires {
  requires A::owns_parameters;
};
template <class A>
constexpr bool receives_from_any = requires {
  requires A::receives_from_any;
};
template <class A>
constexpr bool stale = requires {
  requires A::stale;
};
/// The architecture takes votes: it needs a compressor whose payload is one sign an element.
template <class A>
constexpr bool counts_votes = requires {
  requires A::counts_votes;
};
/// Every rank must start its exchanges in the same order.
template <class A>
constexpr bool ordered_start = requires {
  requires A::ordered_start;
};
}  // namespace facts

}  // namespace tutti
