#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/role/coordination.hpp"

namespace tutti::coordination {

/// Rank 0 leads for one step, and every rank records the order of launches. From then on each rank
/// launches in the recorded order, without messages. A window of credit also takes chunks in that
/// order. Where a fusion changes its groups in the first steps, rank 0 leads until they stay the
/// same, and the first step in which they do is recorded. A checkpoint holds the order, so that a
/// resumed run launches by it, if its plan and the options of its fusion and schedule are the same.
/// Plan: none.
/// Wire: as `leader`, in the steps that are led; nothing afterwards.
/// Cost: a launch that is ready early waits for those before it in the order.
/// After: Mai et al., "KungFu", OSDI 2020: its order for NCCL.
struct learned {
  using role = tutti::role::coordination;
  static constexpr bool one_order = true;
  static constexpr bool keeps_time = false;

  template <class Choice>
  class state : leader::state<Choice> {
    using led = leader::state<Choice>;

   public:
    [[gnu::cold]] state(const plan& made, std::span<const tensor> forward, ranks all,
                        const no_options& set, Choice&& choice)
        : led(made, forward, all, set, std::move(choice)),
          leads_(all.rank == 0),
          chunks_(made.chunks.size()),
          unsettled_(this->choice_.unsettled_steps()),
          before_recording_(unsettled_ * chunks_),
          let_in_(made.buckets.size()) {
      order_.reserve(2 * chunks_);
    }

    void ready(std::uint32_t bucket, seconds now) {
      if (let_in_[bucket] <= unsettled_) {
        ++let_in_[bucket];
        led::ready(bucket, now);
      }
    }
    using led::after;
    using led::due;
    using led::expects_words;
    using led::hear;
    using led::speak;
    using led::tick;
    void released(std::uint32_t launch, seconds now) {
      if (leads_ && !is_complete()) {
        led::released(launch, now);
      } else if constexpr (Choice::limits_in_flight) {
        for (std::uint32_t chunk = launch; chunk != no_chunk; chunk = after(chunk)) {
          this->choice_.released(chunk);
        }
      }
    }
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady is_ready, std::size_t left) {
      if (is_complete()) {
        return next_in_order(is_ready);
      }
      const auto launch = led::next(is_ready, left);
      if (launch) {
        record(*launch);
      }
      return launch;
    }
    template <class IsReady>
    std::optional<std::uint32_t> stuck(IsReady is_ready) const {
      if (!is_complete()) {
        return led::stuck(is_ready);
      }
      const auto chunks = next_launch();
      const auto late = loops::find_if(chunks, [&](std::uint32_t each) { return !is_ready(each); });
      return late == chunks.end() ? std::nullopt : std::optional(*late);
    }

    /// Returns how many steps are led before the order is recorded.
    std::size_t unsettled_steps() const { return unsettled_; }
    /// Returns the launches of a step, each as its length and then its chunks; nothing before
    /// the order has been recorded.
    std::span<const std::uint32_t> learned_order() const {
      return is_complete() ? std::span<const std::uint32_t>(order_)
                           : std::span<const std::uint32_t>();
    }
    /// Launches by an order that an earlier run has recorded for the same plan. Every rank must
    /// call it, before anything is ready. Throws usage_error if the order is not of this plan.
    void resume(std::span<const std::uint32_t> order) {
      order_.assign(order.begin(), order.end());
      std::vector<char> found(chunks_);
      recorded_ = 0;
      for (std::size_t place = 0; place < order_.size(); place += 1 + order_[place]) {
        const std::size_t length = order_[place];
        bool fits =
            length > 0 && length < order_.size() - place && (Choice::gathers || length == 1);
        for (std::size_t i = 1; fits && i <= length; ++i) {
          const std::uint32_t chunk = order_[place + i];
          fits = chunk < chunks_ && !std::exchange(found[chunk], char{1});
          if (fits) {
            this->launches_.link(chunk, i < length ? order_[place + i + 1] : no_chunk);
          }
        }
        if (!fits) {
          recorded_ = 0;
          break;
        }
        recorded_ += length;
      }
      if (!is_complete()) {
        order_.clear();
        throw usage_error(
            "the learned order was not written for this plan. Fix: resume with the options that "
            "it was saved with, or learn it again");
      }
      std::fill(let_in_.begin(), let_in_.end(), unsettled_ + 1);
      before_recording_ = 0;
    }

   private:
    bool is_complete() const { return recorded_ == chunks_; }

    [[gnu::cold, gnu::noinline]] void record(std::uint32_t launch) {
      const bool records = before_recording_ == 0;
      const std::size_t length = order_.size();
      if (records) {
        order_.push_back(0);
      }
      for (std::uint32_t chunk = launch; chunk != no_chunk; chunk = after(chunk)) {
        if (records) {
          order_.push_back(chunk);
        } else {
          --before_recording_;
        }
        if constexpr (Choice::limits_in_flight) {
          if (!leads_) {  // rank 0's credit lets it go, but it leaves from here, too
            this->choice_.take(chunk);
          }
        }
      }
      if (records) {
        order_[length] = static_cast<std::uint32_t>(order_.size() - length - 1);
        recorded_ += order_[length];
      }
    }

    std::span<const std::uint32_t> next_launch() const {
      return std::span(order_).subspan(place_ + 1, order_[place_]);
    }

    template <class IsReady>
    std::optional<std::uint32_t> next_in_order(IsReady is_ready) {
      if (order_.empty()) {
        return std::nullopt;
      }
      const auto chunks = next_launch();
      while (found_ready_ < chunks.size() && is_ready(chunks[found_ready_])) {
        ++found_ready_;
      }
      if (found_ready_ < chunks.size()) {
        return std::nullopt;
      }
      if constexpr (Choice::limits_in_flight) {
        while (taken_ < chunks.size() && this->choice_.admits(chunks[taken_])) {
          this->choice_.take(chunks[taken_++]);
        }
        if (taken_ < chunks.size()) {
          return std::nullopt;
        }
      }
      found_ready_ = 0;
      taken_ = 0;
      place_ += 1 + chunks.size();
      if (place_ == order_.size()) {
        place_ = 0;
      }
      return chunks.front();
    }

    bool leads_;
    std::size_t chunks_;
    std::size_t unsettled_;
    std::size_t before_recording_;     ///< chunks still to be launched before recording begins
    std::vector<std::size_t> let_in_;  ///< how often each bucket was let into led steps
    std::vector<std::uint32_t> order_{};
    std::size_t recorded_ = 0;  ///< chunks in the order
    std::size_t place_ = 0;
    std::size_t found_ready_ = 0;
    std::size_t taken_ = 0;
  };
};
static_assert(coordination_policy<learned>);

}  // namespace tutti::coordination
