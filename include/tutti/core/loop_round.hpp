#pragma once

#include <cstddef>

#include "tutti/role/transport.hpp"

namespace tutti {

/// The outcome of a round of a rank's loop.
enum class loop_round {
  nothing,
  talk,   ///< only messages of the control channel, which are no progress
  moves,  ///< other progress
  more,   ///< progress, and the next round has work already
};

/// Makes one round of a rank's loop; for its owner only. `Owner::open_posts()` takes in tensors
/// that became ready. `Owner::carry_out()` starts launches that this rank has decided, once the
/// others have been told. These two return whether anything moved. `Owner::has_decided()` says
/// whether such launches are left, and `Owner::words()` counts messages of the control channel.
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
