#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/base/memory.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/startup.hpp"
#include "tutti/role/transport.hpp"

/// How worker 0 reads and restores what servers remember; one end of each conversation per
/// function, all on one tag, so that order is enough.
namespace tutti {

template <class Endpoint>
task receive_memories(Endpoint self, int server, std::size_t count,
                      std::vector<std::vector<float>>& all) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t length = 0;
    co_await receive_now(self, server, bytes_of(length));
    all.emplace_back(length);
    co_await receive_now(self, server, std::as_writable_bytes(std::span(all.back())));
  }
}

template <class Endpoint, class Server>
task send_memories(Endpoint self, int worker, Server& server) {
  for (const std::span<float> each : server.memories()) {
    const auto values = host_view(self.queue(), each);
    std::uint64_t length = each.size();
    co_await self.send(worker, bytes_of(length));
    co_await self.send(worker, std::as_bytes(std::span(values)));
  }
}

/// Step, parameters and memories to one server, until it has taken them in.
template <class Endpoint>
task send_restored(Endpoint self, int server, std::uint64_t steps, std::span<const tensor> forward,
                   std::span<const std::vector<float>> memories) {
  co_await self.send(server, bytes_of(steps));
  for (const auto& each : forward) {
    const auto values = host_view(self.queue(), each.parameter);
    co_await self.send(server, std::as_bytes(std::span(values)));
  }
  for (const auto& each : memories) {
    co_await self.send(server, std::as_bytes(std::span(each)));
  }
  co_await self.receive(server, {});
}

/// Receives what lay on a host into memory of the queue's.
template <class Endpoint>
task receive_through_host(Endpoint self, int peer, std::span<float> memory) {
  const auto mail = co_await self.receive_loan(peer, memory.size_bytes());
  const auto bytes = mail.bytes();
  fill_from_host(self.queue(), memory, [bytes](std::span<float> values) {
    std::ranges::copy(bytes, std::as_writable_bytes(values).begin());
  });
}

template <class Endpoint, class Server>
task receive_restored(Endpoint self, int worker, std::span<const tensor> forward, Server& server) {
  self.queue().synchronize();
  std::uint64_t steps = 0;
  co_await receive_now(self, worker, bytes_of(steps));
  for (const auto& each : forward) {
    co_await receive_through_host(self, worker, each.parameter);
  }
  for (const std::span<float> each : server.memories()) {
    co_await receive_through_host(self, worker, each);
  }
  server.resume(steps);
  co_await self.send(worker, {});
}

}  // namespace tutti
