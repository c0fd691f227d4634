#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "tutti/base/units.hpp"

namespace tutti::transport::detail {

/// Counts what is on its way, to decide for how long a rank may nap. MPI moves messages only when
/// it is called, but the kernel's buffers hold a while of a wire's traffic, and a rank that spins
/// takes from the kernel the core on which it moves them.
class transfer_counts {
 public:
  enum class due {
    soon,    ///< from this host: after any nap a look comes too late
    behind,  ///< short, between hosts: queues behind what is long on its connection
    late,    ///< a long piece between hosts
  };

  void begin(due when, seconds now) {
    if (when == due::late && so_many(due::late) == 0) {
      since_ = now;
    }
    ++due_[static_cast<std::size_t>(when)];
  }
  void end(due when) { --due_[static_cast<std::size_t>(when)]; }
  /// Records that a piece that was due late has come. Pieces that travel together come together, so
  /// their mean distance is what counts. A long wait tells little about it and is cut to
  /// `longest_believed`.
  void came(seconds now) {
    apart_ += (std::min(now - since_, longest_believed) - apart_) / 4;
    since_ = now;
  }

  /// For how many seconds a rank that waits may nap; 0: not at all. A nap is so short beside a
  /// piece that it costs little if the piece is the last one, and so short that the kernel's
  /// buffers do not run dry.
  seconds nap() const {
    const seconds affordable = apart_ / 32;
    const bool all_come_late = so_many(due::soon) == 0 && so_many(due::late) > 0;
    return all_come_late && affordable >= shortest ? std::min(affordable, longest) : 0;
  }

 private:
  static constexpr seconds shortest = 20e-6;  // the kernel takes about that long to wake a thread
  static constexpr seconds longest = 200e-6;
  static constexpr seconds longest_believed = 32e-3;

  std::size_t so_many(due when) const { return due_[static_cast<std::size_t>(when)]; }

  std::array<std::size_t, 3> due_{};
  seconds since_ = 0;  // when the last late piece came, or the first began
  seconds apart_ = 0;  // mean time between late pieces, lately
};

}  // namespace tutti::transport::detail
