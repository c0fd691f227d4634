#pragma once

#include <cstddef>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/transport/in_process.hpp"

namespace bench {

inline constexpr tutti::compression::none uncompressed{};
using add_floats = tutti::architecture::payload_fold<tutti::compression::none>;

template <class Collective, class Transport>
tutti::task repeat(tutti::endpoint<Transport> self, tutti::reduction<add_floats> data,
                   std::size_t calls, Collective how = {}) {
  for (std::size_t call = 0; call < calls; ++call) {
    co_await how.all_reduce(self, data);
  }
}

/// Drives one coroutine to its end, as the engine's loop does for a chunk.
template <class Transport>
void drive(Transport& world, tutti::task work) {
  work.start(world.ready_coroutines());
  std::size_t idle = 0;
  while (!work.done()) {
    const bool moved = world.poll();
    if (world.ready_coroutines().drain() != 0 || moved) {
      idle = 0;
    } else {
      tutti::rest(world, idle++);
    }
  }
  work.result();
}

}  // namespace bench
