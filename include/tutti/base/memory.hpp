#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/line_vector.hpp"

namespace tutti {

// A queue provides the memory that its work uses: the engine's own buffers must lie where the
// queue's work can reach them. A queue whose memory is the host's defines no `allocate`, and its
// buffers are line_vectors. Any other queue has `allocate<T>(elements)`, which returns a movable
// buffer with `data()` and `size()`.

template <class Queue>
concept has_own_memory = requires(Queue& queue) {
  queue.template allocate<std::byte>(std::size_t{});
};

/// Returns memory for a queue's work. Its contents are undefined unless it is the host's.
template <class T, class Queue>
auto allocate(Queue& queue, std::size_t elements) {
  if constexpr (has_own_memory<Queue>) {
    return queue.template allocate<T>(elements);
  } else {
    return line_vector<T>(elements);
  }
}

/// Allocates elements that are zero for all work that is enqueued from now on.
template <class T, class Queue>
auto allocate_zeros(Queue& queue, std::size_t elements) {
  auto fresh = allocate<T>(queue, elements);
  if constexpr (has_own_memory<Queue>) {
    queue.clear(fresh.data(), elements * sizeof(T));
  }
  return fresh;
}

template <class T, class Queue>
using memory_of = decltype(allocate<T>(std::declval<Queue&>(), 0));

/// Returns memory that both the host and the queue's work can reach: pinned memory where the queue
/// offers it, otherwise the host's. Its contents are undefined.
template <class T, class Queue>
auto allocate_shared(Queue& queue, std::size_t elements) {
  if constexpr (requires { queue.template allocate_pinned<T>(elements); }) {
    return queue.template allocate_pinned<T>(elements);
  } else {
    return line_vector<T>(elements);
  }
}

template <class T, class Queue>
using shared_memory_of = decltype(allocate_shared<T>(std::declval<Queue&>(), 0));

template <class Memory>
auto span_of(Memory& memory) {
  return std::span(memory.data(), memory.size());
}

/// Returns `memory` as the host may read it once the work enqueued so far is done: the memory
/// itself where it is the host's, otherwise a copy. Blocks the host, so it is for use between
/// steps.
template <class T, class Queue>
auto host_view(Queue& queue, std::span<T> memory) {
  queue.synchronize();
  if constexpr (has_own_memory<Queue>) {
    std::vector<std::remove_const_t<T>> copy(memory.size());
    queue.copy(copy.data(), memory.data(), memory.size_bytes());
    queue.synchronize();
    return copy;
  } else {
    return memory;
  }
}

/// Calls `fill(span)` on the host to write the new contents of `memory`. Blocks the host, so it is
/// for use between steps.
template <class T, class Queue, class Fill>
void fill_from_host(Queue& queue, std::span<T> memory, Fill fill) {
  queue.synchronize();
  if constexpr (has_own_memory<Queue>) {
    std::vector<T> values(memory.size());
    fill(std::span<T>(values));
    queue.copy(memory.data(), values.data(), memory.size_bytes());
    queue.synchronize();
  } else {
    fill(memory);
  }
}

}  // namespace tutti
