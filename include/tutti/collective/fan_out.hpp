#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/all_of.hpp"
#include "tutti/base/task.hpp"

namespace tutti::collective {

/// Calls `begin(peer)` for every other rank and returns the operations. Begins with the next higher
/// rank, so that not all ranks send to the same one first.
template <class Endpoint, class Begin>
auto begin_with_others(const Endpoint& self, Begin begin) {
  return operations(static_cast<std::size_t>(self.size() - 1), [&](std::size_t index) {
    return begin((self.rank() + 1 + static_cast<int>(index)) % self.size());
  });
}

template <class Endpoint>
task send_to_all(Endpoint self, std::span<const std::byte> bytes) {
  auto sends = begin_with_others(self, [&](int peer) { return self.send(peer, bytes); });
  co_await all_of(sends);
}

}  // namespace tutti::collective
