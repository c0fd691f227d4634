#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <utility>

#include "tutti/base/task.hpp"

namespace tutti::collective {

/// Runs two tasks beside each other and ends when both have, also when one fails: nothing of theirs
/// is in flight afterwards.
template <class Endpoint>
task beside(Endpoint self, task one, task other) {
  self.start(one);
  std::exception_ptr failure;
  try {
    co_await other;
  } catch (...) {
    failure = std::current_exception();
  }
  co_await one;
  if (failure) {
    std::rethrow_exception(failure);
  }
}

/// Sends `bytes_for(peer)` to every other rank at once, the next higher rank first. One frame a
/// peer holds the operations: they may not move, and there is no array for p of them.
template <class Endpoint, class BytesFor>
task fan_out(Endpoint self, BytesFor bytes_for, int distance = 1) {
  if (distance == self.size()) {
    co_return;
  }
  const int peer = (self.rank() + distance) % self.size();
  auto mine = self.send(peer, bytes_for(peer));
  std::exception_ptr failure;
  try {
    co_await fan_out(self, bytes_for, distance + 1);
  } catch (...) {
    failure = std::current_exception();
  }
  co_await mine;
  if (failure) {
    std::rethrow_exception(failure);
  }
}

template <class Endpoint>
task send_to_all(Endpoint self, std::span<const std::byte> bytes) {
  co_await fan_out(self, [bytes](int) { return bytes; });
}

}  // namespace tutti::collective
