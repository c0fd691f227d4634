#pragma once

#include <cstdint>
#include <ostream>

#include "tutti/base/push_counts.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Prints as "staleness 0: 12, 1: 7, 3: 1 pushes; 0 dropped, 2 held back".
inline std::ostream& operator<<(std::ostream& out, const push_counts& its) {
  out << "staleness";
  const char* before = " ";
  for (std::size_t i = 0; i < its.staleness.size(); ++i) {
    if (its.staleness[i] > 0) {
      out << before << i << (i + 1 == its.staleness.size() ? " and more: " : ": ")
          << its.staleness[i];
      before = ", ";
    }
  }
  return out << " pushes; " << its.dropped << " dropped, " << its.held << " held back";
}

/// What a rank's engine has done so far.
struct report {
  int rank{};
  int workers{};
  int servers{};
  std::uint64_t steps{};
  std::size_t elements{};
  std::size_t buckets{};
  std::size_t chunks{};
  std::uint64_t plan_hash{};
  tutti::traffic traffic{};
  seconds exposed{};  ///< time that `wait` took: communication that computing did not hide
  std::size_t optimizer_bytes{};     ///< of state that the optimizer keeps on this rank
  std::size_t gradient_bytes{};      ///< of gradients, the most at any time, with buckets' buffers
  std::size_t own_gradient_bytes{};  ///< of these, the part that lies in the model's own memory
  push_counts pushes{};              ///< that this rank has counted
  tutti::traffic observing{};        ///< sent for the monitor's sums, and not part of `traffic`
  seconds observing_seconds{};  ///< that the monitor has spent on reading gradients and parameters
  /// Whether buckets that are ready in a cycle start only on the caller's next call after its end,
  /// because no thread makes progress.
  bool cycles_end_on_calls{};
  /// Elements that have come back as infinity or NaN where the compressor may have made them so.
  std::uint64_t overflowed{};

  friend std::ostream& operator<<(std::ostream& out, const report& r) {
    const double taken = r.steps == 0 ? 1 : static_cast<double>(r.steps);
    out << "rank " << r.rank << " of " << r.workers << " workers and " << r.servers
        << " servers: " << r.steps << " steps of " << r.elements << " elements in " << r.buckets
        << " buckets, " << r.chunks << " chunks; per step "
        << static_cast<double>(r.traffic.bytes_sent) / taken << " bytes sent in "
        << static_cast<double>(r.traffic.messages_sent) / taken << " messages, "
        << 1e3 * r.exposed / taken << " ms exposed; " << r.optimizer_bytes
        << " bytes of optimizer state; " << r.gradient_bytes << " bytes of gradients, "
        << r.own_gradient_bytes << " of them the model's own\n";
    if (r.pushes.taken() + r.pushes.dropped > 0) {
      out << "  " << r.pushes << "\n";
    }
    if (r.observing.messages_sent > 0 || r.observing_seconds > 0) {
      out << "  its monitor, per step: " << static_cast<double>(r.observing.bytes_sent) / taken
          << " bytes sent in " << static_cast<double>(r.observing.messages_sent) / taken
          << " messages, " << 1e3 * r.observing_seconds / taken << " ms of reading\n";
    }
    if (r.cycles_end_on_calls) {
      out << "  tensors that became ready in a cycle were sent only at the caller's next call. "
             "Fix: set run.progress = progress::by_thread\n";
    }
    if (r.overflowed != 0) {
      out << "  " << r.overflowed
          << " elements came back as infinity or NaN, because fp16 ends at 65504. Fix: use "
             "architecture::replicated<mean::before>, a smaller loss scale, or compression::bf16\n";
    }
    return out;
  }
};

}  // namespace tutti
