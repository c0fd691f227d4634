#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::monitor {

/// What a monitor that looks at every so many steps notes of those that have not ended: where steps
/// overlap, a tensor is in the next one while others have not arrived in this one.
/// Cost: a counter a tensor, and a `Step` for each step that is open.
template <class Step>
class open_steps {
 public:
  /// `interval` steps from one look to the next, the first included; 0: never.
  open_steps(std::size_t tensors, unsigned interval) : arrived_(tensors), interval_(interval) {}

  /// What is noted of the step that tensor `which` is in, until it is said to have arrived; null
  /// where that step is not looked at.
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

  /// The first open step has ended: what was noted of it, if it was looked at.
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

  std::vector<std::uint64_t> arrived_;  ///< how often each tensor has
  unsigned interval_;
  std::uint64_t ended_ = 0;
  std::vector<Step> open_{};
};

}  // namespace tutti::monitor
