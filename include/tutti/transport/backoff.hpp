#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <unistd.h>

#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::transport::detail {

/// How a rank waits for the others of its host. While each rank has a core to itself it spins.
/// Where there are more ranks than cores it yields, since the rank that it waits for may need this
/// core. After a longer wait it naps.
class backoff {
 public:
  explicit backoff(int ranks_on_this_host)
      : crowded_(ranks_on_this_host > ::sysconf(_SC_NPROCESSORS_ONLN)) {}

  bool crowded() const { return crowded_; }

  /// Looks for a moment for something that is usually a cache miss away. Returns true if it came.
  template <class Predicate>
  bool glance(Predicate came) const {
    for (int look = 0; look < (crowded_ ? 4 : 64); ++look) {
      if (came()) {
        return true;
      }
      if (crowded_) {
        std::this_thread::yield();
      } else {
        pause();
      }
    }
    return false;
  }

  /// Waits a moment after `idle_polls` polls in a row that brought nothing, or returns for how many
  /// seconds to nap, as a transport's `idle` promises. Naps double, so that each is a small share
  /// of the wait so far, until polls cost little: after every 64 naps, from 50 us to 3.2 ms, or,
  /// while no one on this rank waits (urgency::unhurried), after every 16, from 200 us to 6.4 ms.
  seconds idle(std::size_t idle_polls, urgency who) const {
    if (idle_polls >= naps_from) {
      const std::size_t nap = idle_polls - naps_from;
      const std::size_t doubled = who == urgency::unhurried ? std::min<std::size_t>(7, 2 + nap / 16)
                                                            : std::min<std::size_t>(6, nap / 64);
      return 50e-6 * static_cast<double>(1U << doubled);
    }
    if (!crowded_ && idle_polls < 1000) {
      pause();
    } else {
      std::this_thread::yield();
    }
    return 0;
  }

 private:
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  bool crowded_;
};

}  // namespace tutti::transport::detail
