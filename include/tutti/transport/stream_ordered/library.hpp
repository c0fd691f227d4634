#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>

#include "tutti/base/queue.hpp"

namespace tutti::transport {

/// A library that moves messages between ranks in the order of a queue and never blocks the host.
///
/// * Messages between `begin_group` and `end_group` move together, and the queue's next work begins
///   when all of them have moved. The messages of two ranks match in the order in which both
///   enqueue them.
/// * `send` and `receive` throw nothing: `end_group` throws what they refuse.
/// * `all_reduce` adds up in place, in an order that the library chooses.
/// * `failure()` is what the library has found out by itself about its peers, or empty.
/// * `abort()` ends what is enqueued; what is enqueued afterwards does nothing.
template <class L>
concept stream_library = device_queue<typename L::queue_type> &&
    requires(L& library, std::span<const std::byte> out, std::span<std::byte> in,
             std::span<float> data, int peer) {
  { library.queue() } -> std::same_as<typename L::queue_type&>;
  library.begin_group();
  library.send(out, peer);
  library.receive(in, peer);
  library.end_group();
  library.all_reduce(data);
  { library.failure() } -> std::same_as<std::string>;
  library.abort();
};

}  // namespace tutti::transport
