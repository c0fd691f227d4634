#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>

#include "tutti/base/queue.hpp"

namespace tutti::transport {

/// A library that moves messages between ranks in the order of a queue, and never blocks the host.
///
/// * What is between `begin_group` and `end_group` moves together, and what the queue does next
///   begins when all of it has moved. The messages of two ranks match in the order enqueued.
/// * `send` and `receive` throw nothing: what they refuse, `end_group` throws.
/// * `all_reduce`: sums, in place, in an order that is the library's business.
/// * `failure()`: what it found out by itself about its peers, or nothing.
/// * `abort()`: what is enqueued ends, and what is enqueued from now on does nothing.
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
