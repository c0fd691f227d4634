#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/role/schedule.hpp"

namespace tutti::schedule {

/// When credit allows a chunk to start.
enum class credit_rule {
  positive,  ///< ByteScheduler: any credit left suffices, and it may go below zero
  fits,      ///< BytePS: a chunk that does not fit in the credit left is passed over
};

constexpr auto names(credit_rule) { return std::to_array<std::string_view>({"positive", "fits"}); }

/// Launches first, within a window of credit, the chunk that the next forward pass needs first.
/// Plan: among ready chunks, by forward index, then by place in the plan. Under `fits`, smaller
/// chunks overtake one that is too large for the credit left.
/// Cost: time logarithmic in the number of chunks for each chunk, even where thousands are passed
/// over, and 40 bytes a chunk. A chunk that has started is not interrupted, so preemption is as
/// fine as the partition.
/// After: Peng et al., "ByteScheduler", SOSP 2019; Jiang et al., "BytePS", OSDI 2020.
struct by_priority {
  using role = tutti::role::schedule;
  static constexpr bool limits_in_flight = true;
  static constexpr bool static_order = false;
  static constexpr bool crosses_iterations = true;

  struct options {
    std::size_t credit{16'000'000};
    credit_rule rule{credit_rule::positive};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("credit", self.credit, "gradient bytes that may be on their way at once; 0: no limit");
      visit("rule", self.rule, "when a chunk may start: positive (credit left) or fits");
    }
  };

  /// A tournament tree over the chunks in the order of urgency. Each node holds the fewest bytes of
  /// a waiting chunk below it, so that the most urgent chunk which credit allows is found from the
  /// root.
  class state {
    static constexpr std::ptrdiff_t nothing = PTRDIFF_MAX;  ///< of a leaf: its chunk does not wait

   public:
    [[gnu::cold]] state(const plan& made, const options& set)
        : plan_(&made),
          set_(set),
          credit_(static_cast<std::ptrdiff_t>(std::min<std::size_t>(set.credit, nothing - 1))),
          by_urgency_(made.chunks.size()),
          place_(made.chunks.size()),
          leaves_(std::bit_ceil(made.chunks.size())),
          fewest_(2 * leaves_, nothing) {
      for (std::uint32_t chunk = 0; chunk < made.chunks.size(); ++chunk) {
        by_urgency_[chunk] = chunk;
        const std::ptrdiff_t size = bytes(made.chunks[chunk]);
        if (set_.rule == credit_rule::fits && set_.credit != 0 && size > credit_) {
          throw usage_error(
              sentence({"a chunk of ", size, " bytes never fits in a credit of ", set_.credit,
                        ". Fix: raise schedule.credit or cut with partition::into"}));
        }
      }
      std::sort(by_urgency_.begin(), by_urgency_.end(), [&made](std::uint32_t a, std::uint32_t b) {
        const std::uint32_t one = made.chunks[a].priority;
        const std::uint32_t other = made.chunks[b].priority;
        return one != other ? one < other : a < b;
      });
      for (std::uint32_t place = 0; place < by_urgency_.size(); ++place) {
        place_[by_urgency_[place]] = place;
      }
    }

    /// Makes a bucket's chunks wait for their turn. It is not called again for the bucket before
    /// these have begun.
    void ready(std::uint32_t bucket) {
      const auto& full = plan_->buckets[bucket];
      for (std::uint32_t i = full.first_chunk; i < full.first_chunk + full.chunks; ++i) {
        put(leaves_ + place_[i], bytes(plan_->chunks[i]));
      }
    }
    void released(std::uint32_t chunk) { credit_ += bytes(plan_->chunks[chunk]); }
    std::optional<std::uint32_t> next() {
      const std::ptrdiff_t most = largest_allowed();
      std::size_t node = 1;
      if (fewest_[node] > most) {
        return std::nullopt;
      }
      while (node < leaves_) {
        node = 2 * node + (fewest_[2 * node] > most ? 1 : 0);
      }
      put(node, nothing);
      const std::uint32_t chunk = by_urgency_[node - leaves_];
      take(chunk);
      return chunk;
    }
    bool admits(std::uint32_t chunk) const {
      return bytes(plan_->chunks[chunk]) <= largest_allowed();
    }
    void take(std::uint32_t chunk) { credit_ -= bytes(plan_->chunks[chunk]); }

   private:
    static std::ptrdiff_t bytes(const tutti::chunk& piece) {
      return static_cast<std::ptrdiff_t>(piece.elements * sizeof(float));
    }
    /// Returns the most bytes that a chunk may have to start now; below zero: no chunk may.
    std::ptrdiff_t largest_allowed() const {
      if (set_.credit != 0 && set_.rule == credit_rule::fits) {
        return credit_;
      }
      return set_.credit == 0 || credit_ > 0 ? nothing - 1 : -1;
    }
    void put(std::size_t node, std::ptrdiff_t its_bytes) {
      for (fewest_[node] = its_bytes; node > 1;) {
        node /= 2;
        fewest_[node] = std::min(fewest_[2 * node], fewest_[2 * node + 1]);
      }
    }

    const plan* plan_;
    options set_;
    std::ptrdiff_t credit_;
    std::vector<std::uint32_t> by_urgency_;  ///< chunks, the most urgent one first
    std::vector<std::uint32_t> place_;       ///< of each chunk in by_urgency_
    std::size_t leaves_;
    std::vector<std::ptrdiff_t> fewest_;  ///< bytes of a chunk under each node; 1 is the root
  };
};
static_assert(schedule_policy<by_priority>);

}  // namespace tutti::schedule
