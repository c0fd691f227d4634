#pragma once

#include <cstddef>

#include "tutti/compression/none.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/transport/in_process.hpp"

namespace bench {

/// What an all-reduce of uncompressed gradients folds with.
struct add_floats {
  static constexpr std::size_t unit = sizeof(float);

  template <class Queue>
  void operator()(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
    tutti::compression::none{}.fold(queue, tutti::wire{into, bytes},
                                    tutti::const_wire(from, bytes));
  }
};

template <class Collective, class Transport>
tutti::task repeat(tutti::endpoint<Transport> self, tutti::reduction<add_floats> data,
                   std::size_t calls) {
  for (std::size_t call = 0; call < calls; ++call) {
    co_await Collective{}.all_reduce(self, data);
  }
}

/// The engine's loop, with one chunk.
template <class Transport>
void drive(Transport& world, tutti::task work) {
  work.start(world.ready_coroutines());
  std::size_t idle = 0;
  while (!work.done()) {
    const bool moved = world.poll();
    if (world.ready_coroutines().drain() != 0 || moved) {
      idle = 0;
    } else {
      world.idle(idle++);
    }
  }
  work.result();
}

}  // namespace bench
