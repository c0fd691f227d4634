#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/coordination/decided.hpp"
#include "tutti/coordination/decider.hpp"
#include "tutti/coordination/report_words.hpp"
#include "tutti/coordination/roll_call.hpp"
#include "tutti/coordination/words.hpp"
#include "tutti/role/coordination.hpp"

namespace tutti::coordination {

/// Every rank reports to rank 0 which buckets have become ready on it, and rank 0 decides from what
/// is ready on all ranks.
///
/// Ranks may have unequal numbers of batches: see `engine.join`. If a rank leaves without joining
/// and lets others wait, it is named at once with the tensors that they wait for; therefore rank 0
/// does not end before all ranks have left.
/// Plan: none.
/// Wire: from each other rank a word a bucket, or as `by` says; from rank 0 as in `leader`.
/// Cost: two latencies before anything starts; no rank ever waits inside a launch for a late one.
/// After: Sergeev and Del Balso, "Horovod", 2018, and its response cache. There ranks combine bits,
/// and each works out the launches. Here rank 0 alone works them out, which starts them as early
/// and sends a quarter as much.
struct negotiated {
  using role = tutti::role::coordination;
  static constexpr bool one_order = true;
  static constexpr bool keeps_time = false;
  static constexpr bool joins = true;

  struct options {
    identity by{identity::number};
    std::size_t cache{1024};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("by", self.by, "whether ranks report what is ready by its number or by its name");
      visit("cache", self.cache,
            "buckets that are reported by a bit instead of their name; 0: always by name");
    }
  };

  template <class Choice>
  class state {
   public:
    [[gnu::cold]] state(const plan& made, std::span<const tensor> forward, ranks all,
                        const options& set, Choice choice)
        : plan_(&made),
          all_(all.size),
          choice_(std::move(choice)),
          launches_(made),
          report_(made, forward, set.by, set.cache) {
      if (all.rank == 0) {
        decider_.emplace(made, all.size, choice_, launches_);
        roll_call_.emplace(made, forward, all.size);
      } else {
        news_.reserve(made.buckets.size() + 1);
      }
    }
    state(const state&) = delete;
    state& operator=(const state&) = delete;

    void ready(std::uint32_t bucket, seconds now) { tell(bucket, now); }
    /// Reports that this rank has no more batches. What it hands in from now on is zero, until
    /// `all_have_joined`. Everything that it handed in before has arrived.
    void join(seconds now) { tell(words::joined, now); }
    /// Returns true once, when every rank has joined. What each rank handed in last will then not
    /// be launched.
    bool all_have_joined() { return launches_.all_have_joined(); }
    /// Reports that this rank hands in nothing any more. Throws communication_error if other ranks
    /// wait for it to report something. If this is not rank 0, rank 0's `hear` throws instead.
    void leave() {
      if (decider_) {
        take(0, words::left);
      } else {
        news_.push_back(words::left);
      }
    }
    void hear(int peer, std::span<const std::uint32_t> said, seconds now) {
      if (decider_) {
        report_.read(said, [this, peer](std::uint32_t what) { take(peer, what); });
        settle(now);
      } else {
        launches_.hear(said);
        report_.remember(launches_);
      }
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
      } else if (!news_.empty()) {
        say(report_.written(news_));
        news_.clear();
      }
    }
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady is_ready, std::size_t left) {
      return launches_.next(is_ready, left);
    }
    std::uint32_t after(std::uint32_t chunk) const { return launches_.after(chunk); }
    /// On rank 0, returns a chunk of the first bucket that some ranks have reported and others have
    /// not.
    template <class IsReady>
    std::optional<std::uint32_t> stuck(IsReady is_ready) const {
      if (const auto awaited = roll_call_ ? roll_call_->awaited() : std::nullopt) {
        return plan_->buckets[*awaited].first_chunk;
      }
      return launches_.stuck(is_ready);
    }
    /// Whether this rank must not end yet. Rank 0 stays until all ranks have left, because it names
    /// those who let others wait; another rank stays until it has reported that it leaves.
    bool expects_words() const {
      if (roll_call_) {
        return roll_call_->has_left(0) && !roll_call_->all_have_left();
      }
      return !news_.empty() && news_.back() == words::left;
    }

   private:
    void tell(std::uint32_t what, seconds now) {
      if (decider_) {
        take(0, what);
        settle(now);
      } else {
        news_.push_back(what);
      }
    }

    /// On rank 0, takes a rank's report of a bucket, or that it has joined or left.
    void take(int peer, std::uint32_t what) {
      if (what == words::joined) {
        ++joined_;
      } else if (what == words::left) {
        roll_call_->leave(peer);
      } else if (roll_call_->report(peer, what)) {
        enter(what);
      }
    }
    void enter(std::uint32_t bucket) {
      if (joined_ < all_) {
        roll_call_->begin_again(bucket);
        decider_->enter(bucket);
      } else if (++only_zeros_ == roll_call_->buckets()) {
        only_zeros_ = 0;
        joined_ = 0;
        for (std::uint32_t each = 0; each < roll_call_->buckets(); ++each) {
          roll_call_->begin_again(each);
        }
        decider_->say_all_joined();
      }
    }
    void settle(seconds now) {
      decider_->settle(now);
      report_.remember(launches_);
    }

    const plan* plan_;
    int all_;
    Choice choice_;
    decided<Choice::gathers> launches_;
    report_words report_;
    // on rank 0 alone
    std::optional<decider<Choice, bounded_by::reports>> decider_{};
    std::optional<roll_call> roll_call_{};
    int joined_ = 0;
    std::size_t only_zeros_ = 0;  ///< buckets that all ranks have reported after all had joined
    // on the other ranks
    std::vector<std::uint32_t> news_{};
  };
};
static_assert(coordination_policy<negotiated>);

}  // namespace tutti::coordination
