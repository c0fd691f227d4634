#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/coordination/decided.hpp"
#include "tutti/coordination/decider.hpp"
#include "tutti/coordination/words.hpp"
#include "tutti/role/coordination.hpp"

namespace tutti::coordination {

/// Rank 0 decides what is launched, from what is ready on rank 0. The others start what they are
/// told, once it is ready on them.
///
/// It decides step by step: a bucket that is ready before all chunks of the step before have been
/// launched waits until they have. A rank may therefore wait, between its first and its last
/// gradient of a step, for tensors that it handed in during earlier steps. Every tensor must be
/// handed in, or said to be absent, once a step.
/// Plan: none.
/// Wire: a word a launch, and one a chunk where several travel together, from rank 0 to each other
/// rank.
/// Cost: a latency before the others start.
/// After: Peng et al., "ByteScheduler", SOSP 2019.
struct leader {
  using role = tutti::role::coordination;
  static constexpr bool one_order = true;
  static constexpr bool keeps_time = false;

  template <class Choice>
  class state {
   public:
    [[gnu::cold]] state(const plan& made, std::span<const tensor>, ranks all, const no_options&,
                        Choice&& choice)
        : choice_(std::move(choice)), launches_(made), plan_(&made) {
      if (all.rank == 0) {
        decider_.emplace(made, all.size, choice_, launches_);
        in_step_ = std::vector<std::size_t>(made.buckets.size());
        early_.reserve(made.buckets.size());
      }
    }
    state(const state&) = delete;
    state& operator=(const state&) = delete;

    void ready(std::uint32_t bucket, seconds now) {
      if (!decider_) {
        return;
      }
      if (in_step_[bucket] == step_) {
        early_.push_back(bucket);
      } else {
        enter(bucket);
      }
      settle(now);
    }
    void hear(int peer, std::span<const std::uint32_t> said, seconds now) {
      if (!decider_) {
        launches_.hear(said);
        return;
      }
      for (const std::uint32_t word : said) {
        decider_->acknowledged(peer, word & words::value);
      }
      settle(now);
    }
    void released(std::uint32_t launch, seconds now) {
      if (decider_) {
        decider_->released(launch);
        settle(now);
      }
    }
    std::optional<seconds> due() const { return decider_ ? decider_->due() : std::nullopt; }
    void tick(seconds now) {
      if (decider_) {
        decider_->tick(now);
        settle(now);
      }
    }
    template <class Say>
    void speak(Say say) {
      if (decider_) {
        decider_->speak(say);
      } else if (launches_.asked()) {
        const std::uint32_t word =
            words::carried_out |
            (static_cast<std::uint32_t>(launches_.carried_out()) & words::value);
        say(std::span(&word, 1));
      }
    }
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady is_ready, std::size_t left) {
      return launches_.next(is_ready, left);
    }
    std::uint32_t after(std::uint32_t chunk) const { return launches_.after(chunk); }
    template <class IsReady>
    std::optional<std::uint32_t> stuck(IsReady is_ready) const {
      return launches_.stuck(is_ready);
    }
    bool expects_words() const {
      return decider_ ? decider_->expects_words() : launches_.is_asked();
    }

   protected:
    Choice choice_;
    decided<Choice::gathers> launches_;

   private:
    void enter(std::uint32_t bucket) {
      in_step_[bucket] = step_;
      decider_->enter(bucket);
    }
    void settle(seconds now) {
      while (true) {
        decider_->settle(now);
        if (early_.empty() || decider_->launched() != step_ * plan_->chunks.size()) {
          return;
        }
        ++step_;
        for (const std::uint32_t bucket : early_) {
          enter(bucket);
        }
        early_.clear();
      }
    }

    const plan* plan_;
    std::optional<decider<Choice, bounded_by::acknowledgements>> decider_{};
    std::vector<std::size_t> in_step_{};  ///< the last step that each bucket was let in for
    std::vector<std::uint32_t> early_{};
    std::size_t step_ = 1;
  };
};
static_assert(coordination_policy<leader>);

}  // namespace tutti::coordination
