#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "tutti/base/queue.hpp"

namespace tutti::kernels {

/// So many bytes from here to there; with 0 bytes the pointers may be null.
struct copy_order {
  void* to{};
  const void* from{};
  std::size_t bytes{};
};

/// Does all of `orders`, which must not overlap, as one operation of the queue: packing many
/// tensors in a bucket costs one launch. The list must live until the queue has run this.
template <class Queue>
void copy_all(Queue& queue, std::span<const copy_order> orders) {
  if constexpr (host_queue<Queue>) {
    queue.run([orders] {
      for (const copy_order& each : orders) {
        if (each.bytes != 0) {
          std::memcpy(each.to, each.from, each.bytes);
        }
      }
    });
  } else {
    for (const copy_order& each : orders) {
      queue.copy(each.to, each.from, each.bytes);
    }
  }
}

}  // namespace tutti::kernels
