#pragma once

#include <cstddef>

#include "tutti/role/transport.hpp"

namespace tutti {

/// What a round of a rank's loop came to.
struct loop_round {
  bool any = false;      ///< something happened
  bool moves = false;    ///< more than talk about waiting
  bool goes_on = false;  ///< there is more to do at once
};

/// One round of a rank's loop, by whoever owns it. `Owner::open_posts()` takes in what became ready
/// and `Owner::carry_out()` starts what `Owner::has_decided()`, now that others have been told:
/// true where anything moved. `Owner::words()` counts messages about waiting, which are no
/// progress.
template <class Transport, class Owner>
loop_round go_round(Transport& world, Owner& owner) {
  loop_round now;
  now.moves = owner.open_posts();
  now.any = now.moves;
  if constexpr (!Transport::virtual_time) {
    const std::size_t words = owner.words();
    const bool polled = world.poll();
    std::size_t resumed = 0;
    auto& coroutines = world.ready_coroutines();
    if (!coroutines.draining()) {
      resumed = coroutines.drain();
      if (owner.carry_out()) {
        now.moves = true;
        now.goes_on = owner.has_decided();
      }
    }
    now.any = now.moves || polled || resumed > 0;
    const std::size_t talked = owner.words() - words;
    now.moves |= resumed > talked || (polled && talked == 0);
  }
  return now;
}

}  // namespace tutti
