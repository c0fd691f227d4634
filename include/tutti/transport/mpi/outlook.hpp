#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "tutti/base/units.hpp"

namespace tutti::transport::detail {

/// What is on its way, and so for how long a rank may look away: MPI moves it on only when it is
/// called, but the kernel's buffers take a while of a wire, and whoever spins takes from the kernel
/// the core that it moves them with.
class outlook {
 public:
  enum class due {
    soon,    ///< of this host: a look comes too late at once
    behind,  ///< short, between hosts: it stands behind whatever is long on its connection
    late,    ///< a long piece between hosts
  };

  void begin(due when, seconds now) {
    if (when == due::late && so_many(due::late) == 0) {
      since_ = now;
    }
    ++due_[static_cast<std::size_t>(when)];
  }
  void end(due when) { --due_[static_cast<std::size_t>(when)]; }
  /// A piece that was due late has come. Pieces on their way together come together: what counts is
  /// their mean distance. What ends a long wait tells little.
  void came(seconds now) {
    apart_ += (std::min(now - since_, longest_believed) - apart_) / 4;
    since_ = now;
  }

  /// For how many seconds, if somebody waits; 0: not at all. So short beside a piece that it costs
  /// little where a piece is the last, and so short that buffers do not run dry.
  seconds nap() const {
    const seconds affordable = apart_ / 32;
    const bool all_come_late = so_many(due::soon) == 0 && so_many(due::late) > 0;
    return all_come_late && affordable >= shortest ? std::min(affordable, longest) : 0;
  }

 private:
  static constexpr seconds shortest = 20e-6;  // below it the kernel takes longer to wake somebody
  static constexpr seconds longest = 200e-6;
  static constexpr seconds longest_believed = 32e-3;

  std::size_t so_many(due when) const { return due_[static_cast<std::size_t>(when)]; }

  std::array<std::size_t, 3> due_{};
  seconds since_ = 0;  // the last piece that came, or nothing was on its way
  seconds apart_ = 0;  // pieces, lately
};

}  // namespace tutti::transport::detail
