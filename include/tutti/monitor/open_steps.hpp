#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::monitor {

/// What a monitor records of the steps that have not ended, if it measures only every `interval`-th
/// step. Several steps can be open: where steps overlap, a tensor is in the next step while others
/// have not arrived in this one. Cost: a counter per tensor, and a `Step` for each open step.
template <class Step>
class open_steps {
 public:
  /// Measures the first step and every `interval`-th step after it, or none if `interval` is 0.
  open_steps(std::size_t tensors, unsigned interval) : arrived_(tensors), interval_(interval) {}

  /// Returns the record of the step that tensor `which` is in, or null if that step is not
  /// measured. After `arrived` the tensor is in the next step.
  Step* of(std::uint32_t which) {
    if (!is_due(arrived_[which])) {
      return nullptr;
    }
    const auto later = static_cast<std::size_t>(arrived_[which] - ended_);
    if (later >= open_.size()) {
      open_.resize(later + 1);
    }
    return &open_[later];
  }
  void arrived(std::uint32_t which) { ++arrived_[which]; }

  /// Ends the first open step and returns its record, if it was measured.
  std::optional<Step> end() {
    const bool due = is_due(ended_++);
    Step noted{};
    if (!open_.empty()) {
      noted = std::move(open_.front());
      open_.erase(open_.begin());
    }
    return due ? std::optional<Step>(std::move(noted)) : std::nullopt;
  }

 private:
  bool is_due(std::uint64_t step) const { return interval_ != 0 && step % interval_ == 0; }

  std::vector<std::uint64_t> arrived_;  ///< how often each tensor has arrived
  unsigned interval_;
  std::uint64_t ended_ = 0;
  std::vector<Step> open_{};
};

}  // namespace tutti::monitor
