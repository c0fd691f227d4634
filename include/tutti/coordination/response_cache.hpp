#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::coordination {

/// A cache of the buckets that were launched last. Each has a slot, by whose number ranks report
/// it; a new bucket takes the slot of the one launched longest ago. Ranks that see the same
/// launches have the same cache. Entries do not become invalid: a slot of Horovod's does when a
/// tensor comes back with another shape, type or operation, but here ranks agree on those when an
/// engine starts, and a new plan begins with an empty cache.
class response_cache {
 public:
  static constexpr std::uint32_t none = 0xffffffff;

  response_cache(std::size_t buckets, std::size_t entries)
      : slots_(std::min(entries, buckets)), slot_of_(buckets, none) {}

  std::optional<std::uint32_t> slot_of(std::uint32_t bucket) const {
    return slot_of_[bucket] == none ? std::nullopt : std::optional(slot_of_[bucket]);
  }
  std::uint32_t at(std::uint32_t slot) const { return slots_[slot].bucket; }
  /// Returns how many slots are taken, which are always the first ones.
  std::size_t size() const { return size_; }

  struct change {
    std::uint32_t slot{none};
    std::uint32_t evicted{none};  ///< the bucket that was there before
  };
  /// Records that a bucket is launched, and returns what that changes.
  change touch(std::uint32_t bucket) {
    if (slots_.empty()) {
      return {};
    }
    change made{slot_of_[bucket]};
    if (made.slot != none) {
      unlink(made.slot);
    } else if (size_ < slots_.size()) {
      made.slot = static_cast<std::uint32_t>(size_++);
    } else {
      made = {oldest_, slots_[oldest_].bucket};
      slot_of_[made.evicted] = none;
      unlink(made.slot);
    }
    slots_[made.slot].bucket = bucket;
    slot_of_[bucket] = made.slot;
    link(made.slot);
    return made;
  }

 private:
  struct entry {
    std::uint32_t bucket{none};
    std::uint32_t older{none};
    std::uint32_t newer{none};
  };

  void unlink(std::uint32_t slot) {
    const entry& gone = slots_[slot];
    (gone.older == none ? oldest_ : slots_[gone.older].newer) = gone.newer;
    (gone.newer == none ? newest_ : slots_[gone.newer].older) = gone.older;
  }
  void link(std::uint32_t slot) {
    slots_[slot].older = newest_;
    slots_[slot].newer = none;
    (newest_ == none ? oldest_ : slots_[newest_].newer) = slot;
    newest_ = slot;
  }

  std::vector<entry> slots_;
  std::vector<std::uint32_t> slot_of_;
  std::uint32_t oldest_ = none;
  std::uint32_t newest_ = none;
  std::size_t size_ = 0;
};

}  // namespace tutti::coordination
