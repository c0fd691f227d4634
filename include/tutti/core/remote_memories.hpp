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
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

/// How worker 0 reads and restores what architectures remember on ranks that do not train. Each
/// function is one end of a conversation. All of them use one tag, so messages are told apart by
/// their order.
namespace tutti {

/// The memories of one rank, as a checkpoint keeps them.
using memories_of_rank = std::vector<std::vector<float>>;

template <class Endpoint>
[[gnu::cold]] task receive_memories(Endpoint self, int rank, memories_of_rank& all) {
  std::uint64_t count = 0;
  co_await receive_now(self, rank, bytes_of(count));
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t length = 0;
    co_await receive_now(self, rank, bytes_of(length));
    all.emplace_back(length);
    co_await receive_now(self, rank, std::as_writable_bytes(std::span(all.back())));
  }
}

template <class Endpoint>
[[gnu::cold]] task send_memories(Endpoint self, int worker,
                                 std::vector<std::span<float>> memories) {
  std::uint64_t count = memories.size();
  co_await self.send(worker, bytes_of(count));
  for (const std::span<float> each : memories) {
    const auto values = host_view(self.queue(), each);
    std::uint64_t length = each.size();
    co_await self.send(worker, bytes_of(length));
    co_await self.send(worker, std::as_bytes(std::span(values)));
  }
}

/// Sends step, parameters and memories to one rank, and ends when it has taken them in.
template <class Endpoint>
[[gnu::cold]] task send_restored(Endpoint self, int rank, std::uint64_t steps,
                                 std::span<const tensor> forward,
                                 const memories_of_rank& memories) {
  co_await self.send(rank, bytes_of(steps));
  for (const auto& each : forward) {
    const auto values = host_view(self.queue(), each.parameter);
    co_await self.send(rank, std::as_bytes(std::span(values)));
  }
  for (const auto& each : memories) {
    co_await self.send(rank, std::as_bytes(std::span(each)));
  }
  co_await self.receive(rank, {});
}

/// Replaces `values` by their sum over all ranks, added in rank order.
template <class Endpoint>
[[gnu::cold]] task sum_on_hosts(Endpoint self, std::vector<float>& values) {
  const auto bytes = std::as_writable_bytes(std::span(values));
  if (self.rank() != 0) {
    co_await self.send(0, bytes);
    co_await receive_now(self, 0, bytes);
    co_return;
  }
  std::vector<float> theirs(values.size());
  for (int rank = 1; rank < self.size(); ++rank) {
    co_await receive_now(self, rank, std::as_writable_bytes(std::span(theirs)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] += theirs[i];
    }
  }
  for (int rank = 1; rank < self.size(); ++rank) {
    co_await self.send(rank, bytes);
  }
}

/// Receives floats from a peer's host memory into memory of the queue.
template <class Endpoint>
[[gnu::cold]] task receive_through_host(Endpoint self, int peer, std::span<float> memory) {
  const auto mail = co_await self.receive_loan(peer, memory.size_bytes());
  const auto bytes = mail.bytes();
  fill_from_host(self.queue(), memory, [bytes](std::span<float> values) {
    std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(values).begin());
  });
}

/// Receives what `send_restored` sends, into an engine: the parameters of `Owner::tensors()`, and
/// the architecture's memories `Owner::remembered()`, after a call of
/// `Owner::resume_architecture(steps)`.
template <class Endpoint, class Owner>
[[gnu::cold]] task receive_restored(Endpoint self, int worker, Owner& owner) {
  self.queue().synchronize();
  std::uint64_t steps = 0;
  co_await receive_now(self, worker, bytes_of(steps));
  for (const auto& each : owner.tensors()) {
    co_await receive_through_host(self, worker, each.parameter);
  }
  owner.resume_architecture(steps);
  for (const std::span<float> each : owner.remembered()) {
    co_await receive_through_host(self, worker, each);
  }
  co_await self.send(worker, {});
}

}  // namespace tutti
