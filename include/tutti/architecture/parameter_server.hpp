#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tutti/base/bounds.hpp"
#include "tutti/base/options.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// When a server lets a push take effect.
namespace consistency {
/// When every worker has pushed; sums are added in rank order, whatever order they arrive in.
struct synchronous {};
/// At once: a worker's gradient may have been computed on parameters that others have since moved.
struct asynchronous {};
}  // namespace consistency

/// Who runs the optimizer.
namespace updated_by {
struct workers {};  ///< servers add gradients up and send the mean back (BytePS)
struct servers {};  ///< servers keep the parameters and send them back (MXNet's kvstore)
}  // namespace updated_by

namespace architecture {

/// Workers push payloads to servers, each the owner of some chunks, and pull the result.
/// Wire: one payload up and one answer down per worker; s servers share W workers' load. Cost: a
/// server's link carries W/s times the bytes each way. The answer is the mean, encoded again, or
/// the parameters as floats.
/// After: Li et al., "Parameter Server", OSDI 2014; MXNet's kvstore; BytePS, OSDI 2020.
template <class Consistency = consistency::synchronous, class UpdatedBy = updated_by::workers>
struct parameter_server {
  using role = tutti::role::architecture;
  using consistency = Consistency;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = true;
  static constexpr bool has_servers = true;
  static constexpr bool receives_from_any = true;
  static constexpr bool owns_parameters = std::is_same_v<UpdatedBy, updated_by::servers>;
  static constexpr bool stale = std::is_same_v<Consistency, tutti::consistency::asynchronous>;

  static constexpr double busiest_card(double payload, double dense, placement who) {
    const double each_way = owns_parameters ? std::max(payload, dense) : payload;
    return who.serving == server_hosts::own
               ? bound::servers(each_way, who.workers, who.servers, who.per_host, who.server_speed)
               : bound::servers_among_workers(each_way, who.workers, who.servers, who.per_host);
  }
  static constexpr exchange_cost alone(placement who) {
    return {2, 2.0 * who.workers / who.servers};
  }

  struct options {
    int servers{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("servers", self.servers, "ranks, the last ones, that serve and do not train");
    }
  };

  template <class Compression>
  std::size_t workspace_bytes(const Compression& compression, std::size_t elements, int) const {
    return facts::identity<Compression> ? 0 : compression.wire_bytes(elements);
  }

  template <class Endpoint, class Parcel>
  task exchange(Endpoint self, Parcel parcel) const {
    auto& queue = self.queue();
    const std::size_t elements = parcel.data.size();
    const auto floats = std::as_writable_bytes(parcel.data);
    constexpr bool plain = facts::identity<std::remove_cvref_t<decltype(*parcel.compression)>>;
    auto payload = floats;
    if constexpr (!plain) {
      payload = parcel.phantom()
                    ? std::span<std::byte>(static_cast<std::byte*>(nullptr), parcel.wire_bytes())
                    : parcel.workspace.first(parcel.wire_bytes());
      parcel.encode(queue, 0, elements, payload);
    }
    co_await self.on(channel::service).send(parcel.server, payload);
    parcel.released();
    if constexpr (plain || owns_parameters) {
      co_await self.receive(parcel.server, floats);
    } else {
      co_await self.receive(parcel.server, payload);
      parcel.clear(queue, 0, elements);
      parcel.accumulate(queue, payload, 0, elements);
    }
  }
};
static_assert(architecture_policy<parameter_server<>>);

}  // namespace architecture

}  // namespace tutti
