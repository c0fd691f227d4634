#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/base/median.hpp"
#include "tutti/monitor/open_steps.hpp"
#include "tutti/role/monitor.hpp"

namespace tutti::monitor {

/// What a rank spends time on. Computing lasts from the end of a step to the last gradient of the
/// next. Sending lasts from a chunk's start until its bytes have left, and receiving from then
/// until its result is there; both are added up over chunks.
enum class phase : std::uint8_t { computing, sending, receiving };

/// The names, in the order of the enumerators.
constexpr std::array<std::string_view, 3> names(phase) {
  return {"computing", "sending", "receiving"};
}

/// Finds which rank holds the others up, and in which phase. A rank is late in a phase by the time
/// that it takes longer than the median rank. Where ranks wait for one another, a rank that
/// computes long makes all others receive long, but not itself. Where sums go around a ring, a slow
/// NIC delays its neighbours as much as itself, so that they share the blame; between workers and
/// servers it is found. Wire: every step, three doubles for each worker, from each worker to rank 0
/// and back. Cost: one addition per event. After: the straggler detection of Ho et al., NeurIPS
/// 2013, which looks at clocks only.
class stragglers {
 public:
  using role = tutti::role::monitor;
  static constexpr bool observes = true;
  static constexpr std::size_t phases = 3;

  struct straggler {
    int rank{};
    monitor::phase phase{};
    seconds late{};  ///< beyond the median rank's time, over all steps
  };

  stragglers(std::size_t tensors, int rank, int workers)
      : rank_(static_cast<std::size_t>(rank)),
        steps_(tensors, 1),
        mine_(phases * static_cast<std::size_t>(workers)),
        all_(mine_.size()) {}

  void record(event what, std::uint32_t which, seconds when) {
    switch (what) {
      case event::ready:
        steps_.of(which)->last_ready = std::max(steps_.of(which)->last_ready, when);
        break;
      case event::started:
        at(begun_, which) = when;
        break;
      case event::released:
        time(phase::sending) += when - at(begun_, which);
        at(left_, which) = when;
        break;
      case event::finished:
        time(phase::receiving) += when - at(left_, which);
        break;
      case event::arrived:
        steps_.arrived(which);
        last_arrival_ = when;
        break;
      default:
        break;
    }
  }
  std::span<double> sums() {
    const seconds ready = steps_.end()->last_ready;
    if (began_) {
      time(phase::computing) += std::max(ready - *began_, 0.0);
    }
    began_ = last_arrival_;
    return mine_;
  }
  void summed(std::span<const double> totals) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      all_[i] += totals[i];
    }
  }

  /// The time that a rank has spent in a phase, over all steps so far.
  seconds taken(int rank, phase what) const {
    return all_[phases * static_cast<std::size_t>(rank) + static_cast<std::size_t>(what)];
  }
  /// Returns the rank and phase that are the latest of all.
  straggler worst() const {
    straggler found;
    for (std::size_t which = 0; which < phases; ++which) {
      const auto what = static_cast<phase>(which);
      std::vector<double> each;
      for (std::size_t i = which; i < all_.size(); i += phases) {
        each.push_back(all_[i]);
      }
      const double middle = median(each);
      for (int rank = 0; rank < static_cast<int>(all_.size() / phases); ++rank) {
        if (taken(rank, what) - middle > found.late) {
          found = {rank, what, taken(rank, what) - middle};
        }
      }
    }
    return found;
  }

 private:
  struct noted {
    seconds last_ready{};
  };

  double& time(phase what) { return mine_[phases * rank_ + static_cast<std::size_t>(what)]; }
  static seconds& at(std::vector<seconds>& of_chunks, std::uint32_t which) {
    if (which >= of_chunks.size()) {
      of_chunks.resize(which + std::size_t{1});
    }
    return of_chunks[which];
  }

  std::size_t rank_;
  open_steps<noted> steps_;
  std::vector<seconds> begun_{};    ///< when each chunk was started
  std::vector<seconds> left_{};     ///< when each chunk's bytes had left
  std::optional<seconds> began_{};  ///< when the step began; not known of the first step
  seconds last_arrival_ = 0;
  std::vector<double> mine_;  ///< phases of each rank; those of other ranks are 0
  std::vector<double> all_;
};
static_assert(monitor_policy<stragglers>);

}  // namespace tutti::monitor
