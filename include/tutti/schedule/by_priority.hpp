#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/role/schedule.hpp"

namespace tutti::schedule {

/// When credit allows a chunk to start.
enum class credit_rule {
  positive,  ///< ByteScheduler: any credit left will do, and it may go below zero
  fits,      ///< BytePS: the chunk must fit in what is left
};

constexpr auto names(credit_rule) { return std::to_array<std::string_view>({"positive", "fits"}); }

/// The chunk that the next forward pass needs first goes first, within a window of credit.
/// Plan: among ready chunks, by forward index, then by place. Cost: a logarithm a chunk; a chunk
/// started waits for nobody, so preemption is as fine as the partition.
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

  class state {
    struct later {
      const plan* made;
      bool operator()(std::uint32_t a, std::uint32_t b) const {
        const auto& one = made->chunks[a];
        const auto& other = made->chunks[b];
        return one.priority != other.priority ? one.priority > other.priority : a > b;
      }
    };

   public:
    state(const plan& made, const options& set)
        : plan_(&made),
          set_(set),
          credit_(static_cast<std::ptrdiff_t>(std::min<std::size_t>(set.credit, PTRDIFF_MAX))) {
      waiting_.reserve(made.chunks.size());
      for (const auto& each : made.chunks) {
        if (set_.rule == credit_rule::fits && set_.credit != 0 && bytes(each) > credit_) {
          throw usage_error(
              sentence({"a chunk of ", bytes(each), " bytes never fits in a credit of ",
                        set_.credit, ". Fix: raise schedule.credit or cut with partition::into"}));
        }
      }
    }

    void ready(std::uint32_t bucket) {
      const auto& full = plan_->buckets[bucket];
      for (std::uint32_t i = 0; i < full.chunks; ++i) {
        waiting_.push_back(full.first_chunk + i);
        std::push_heap(waiting_.begin(), waiting_.end(), later{plan_});
      }
    }
    void released(std::uint32_t chunk) { credit_ += bytes(plan_->chunks[chunk]); }
    std::optional<std::uint32_t> next() {
      if (waiting_.empty() || !admits(waiting_.front())) {
        return std::nullopt;
      }
      std::pop_heap(waiting_.begin(), waiting_.end(), later{plan_});
      const std::uint32_t chunk = waiting_.back();
      waiting_.pop_back();
      take(chunk);
      return chunk;
    }
    bool admits(std::uint32_t chunk) const {
      if (set_.credit == 0) {
        return true;
      }
      return set_.rule == credit_rule::positive ? credit_ > 0
                                                : bytes(plan_->chunks[chunk]) <= credit_;
    }
    void take(std::uint32_t chunk) { credit_ -= bytes(plan_->chunks[chunk]); }

   private:
    static std::ptrdiff_t bytes(const tutti::chunk& piece) {
      return static_cast<std::ptrdiff_t>(piece.elements * sizeof(float));
    }
    const plan* plan_;
    options set_;
    std::ptrdiff_t credit_;
    std::vector<std::uint32_t> waiting_;
  };
};
static_assert(schedule_policy<by_priority>);

}  // namespace tutti::schedule
