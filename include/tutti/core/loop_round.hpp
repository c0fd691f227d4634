#pragma once

#include <cstddef>

#include "tutti/role/transport.hpp"

namespace tutti {

/// What a round of a rank's loop came to.
enum class loop_round {
  nothing,
  talk,   ///< about waiting alone, which is no progress
  moves,  ///< something else happened
  more,   ///< and there is more to do at once
};

/// One round of a rank's loop, by whoever owns it. `Owner::open_posts()` takes in what became ready
/// and `Owner::carry_out()` starts what `Owner::has_decided()`, now that others have been told:
/// true where anything moved. `Owner::words()` counts messages about waiting.
template <class Transport, class Owner>
loop_round go_round(Transport& world, Owner& owner) {
  bool moves = owner.open_posts();
  bool talks = false;
  if (in_real_time(world)) {
    const std::size_t words = owner.words();
    const bool polled = world.poll();
    std::size_t resumed = 0;
    auto& coroutines = world.ready_coroutines();
    if (!coroutines.draining()) {
      resumed = coroutines.drain();
      if (owner.carry_out()) {
        moves = true;
        if (owner.has_decided()) {
          return loop_round::more;
        }
      }
    }
    const std::size_t talked = owner.words() - words;
    moves |= resumed > talked || (polled && talked == 0);
    talks = polled || resumed > 0;
  }
  return moves ? loop_round::moves : talks ? loop_round::talk : loop_round::nothing;
}

}  // namespace tutti
