#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <unistd.h>

#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::transport::detail {

/// How a rank waits for the others of its host: while each has a core it spins, and where they are
/// more it yields, for the one it waits for may want the same core. Later it naps.
class backoff {
 public:
  explicit backoff(int ranks_on_this_host)
      : crowded_(ranks_on_this_host > ::sysconf(_SC_NPROCESSORS_ONLN)) {}

  bool crowded() const { return crowded_; }

  /// Looks for something that is usually a cache miss away; says whether it came.
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

  /// A moment of waiting after `idle_polls` polls in a row that brought nothing, as a transport's
  /// `idle` promises it. Naps double up to 3.2 ms, so that each is a small share of the wait so
  /// far, from which on it costs little: 64 from 50 us on at a time, or, while nobody waits here,
  /// 16 from 200 us on.
  seconds idle(std::size_t idle_polls, urgency who) const {
    if (idle_polls >= naps_from) {
      const std::size_t nap = idle_polls - naps_from;
      const std::size_t doubled = who == urgency::unhurried ? 2 + nap / 16 : nap / 64;
      return 50e-6 * static_cast<double>(1U << std::min<std::size_t>(6, doubled));
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
