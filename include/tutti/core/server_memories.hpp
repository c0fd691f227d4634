#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/role/transport.hpp"

/// How worker 0 reads and restores what servers remember; one end of each conversation per
/// function, all on one tag, so that order is enough.
namespace tutti {

namespace detail {
inline std::span<std::byte> bytes_of(std::uint64_t& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}
}  // namespace detail

template <class Endpoint>
task receive_memories(Endpoint self, int server, std::size_t count,
                      std::vector<std::vector<float>>& all) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t length = 0;
    co_await self.receive(server, detail::bytes_of(length));
    all.emplace_back(length);
    co_await self.receive(server, std::as_writable_bytes(std::span(all.back())));
  }
}

template <class Endpoint, class Server>
task send_memories(Endpoint self, int worker, Server& server) {
  for (const std::span<float> each : server.memories()) {
    std::uint64_t length = each.size();
    co_await self.send(worker, detail::bytes_of(length));
    co_await self.send(worker, std::as_bytes(each));
  }
}

/// Step, parameters and memories to one server, until it has taken them in.
template <class Endpoint>
task send_restored(Endpoint self, int server, std::uint64_t steps, std::span<const tensor> forward,
                   std::span<const std::vector<float>> memories) {
  co_await self.send(server, detail::bytes_of(steps));
  for (const auto& each : forward) {
    co_await self.send(server, std::as_bytes(each.parameter));
  }
  for (const auto& each : memories) {
    co_await self.send(server, std::as_bytes(std::span(each)));
  }
  co_await self.receive(server, {});
}

template <class Endpoint, class Server>
task receive_restored(Endpoint self, int worker, std::span<const tensor> forward, Server& server) {
  std::uint64_t steps = 0;
  co_await self.receive(worker, detail::bytes_of(steps));
  for (const auto& each : forward) {
    co_await self.receive(worker, std::as_writable_bytes(each.parameter));
  }
  for (const std::span<float> each : server.memories()) {
    co_await self.receive(worker, std::as_writable_bytes(each));
  }
  server.resume(steps);
  co_await self.send(worker, {});
}

}  // namespace tutti
