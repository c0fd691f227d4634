#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/coordination/decided.hpp"
#include "tutti/coordination/decider.hpp"
#include "tutti/coordination/response_cache.hpp"
#include "tutti/coordination/words.hpp"
#include "tutti/role/coordination.hpp"

namespace tutti::coordination {

/// As what is ready is told to rank 0.
enum class identity {
  number,  ///< its place in the plan
  name,    ///< its name, and a bit once it has been launched and is remembered
};

constexpr auto names(identity) { return std::to_array<std::string_view>({"number", "name"}); }

/// Every rank tells rank 0 what became ready on it; rank 0 decides from what is ready on all.
/// Plan: none. Wire: from each of the others a word a bucket, or as `by` says; from rank 0 as
/// `leader`. A bucket's name is that of its first tensor; it identifies nothing and is sent to cost
/// what Horovod's costs. Cost: two latencies before anything starts; no rank ever waits inside a
/// launch for a late one.
/// Ranks may have unequal numbers of batches: see `engine.join`. Who leaves without, and lets
/// others wait, is named at once with the tensors that they wait for; so rank 0 ends when all have.
/// After: Sergeev and Del Balso, "Horovod", 2018, and its response cache. There ranks combine bits
/// and each works out the launches; rank 0 alone starts them as early and sends a quarter.
struct negotiated {
  using role = tutti::role::coordination;
  static constexpr bool one_order = true;
  static constexpr bool joins = true;

  struct options {
    identity by{identity::number};
    std::size_t cache{1024};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("by", self.by, "what is ready is told by its number or name");
      visit("cache", self.cache, "buckets whose name has become a bit; 0: always the name");
    }
  };

  template <class Choice>
  class state {
   public:
    [[gnu::cold]] state(const plan& made, std::span<const tensor> forward, ranks all,
                        const options& set, Choice choice)
        : plan_(&made),
          forward_(forward),
          all_(all),
          by_(set.by),
          choice_(std::move(choice)),
          launches_(made),
          cache_(by_ == identity::name ? made.buckets.size() : 0, set.cache) {
      if (all.rank == 0) {
        decider_.emplace(made, all.size, choice_, launches_);
        missing_.assign(made.buckets.size(), all.size);
        entered_.resize(made.buckets.size());
        reported_.resize(made.buckets.size() * static_cast<std::size_t>(all.size));
        left_.resize(static_cast<std::size_t>(all.size));
        changes_.resize(by_ == identity::name ? made.buckets.size() : 0);
      } else {
        news_.reserve(made.buckets.size() + 1);
        said_.reserve(longest_report());
      }
    }
    state(const state&) = delete;
    state& operator=(const state&) = delete;

    void ready(std::uint32_t bucket, seconds now) {
      if (decider_) {
        count(0, bucket);
        settle(now);
      } else {
        news_.push_back(bucket);
      }
    }
    /// This rank has no more batches; what it hands in from now on is zero, until
    /// `all_have_joined`. Everything that it has handed in before has arrived.
    void join(seconds now) {
      if (decider_) {
        ++joined_;
        settle(now);
      } else {
        news_.push_back(words::joined);
      }
    }
    /// True once: every rank has joined, and what each has handed in last will not be launched.
    bool all_have_joined() { return launches_.all_have_joined(); }
    /// This rank hands in nothing any more. Throws communication_error, as does hearing it, if
    /// others wait for that.
    void leave() {
      if (decider_) {
        take_leave_of(0);
      } else {
        news_.push_back(words::left);
      }
    }
    void hear(int peer, std::span<const std::uint32_t> said, seconds now) {
      if (decider_) {
        take_in(peer, said);
        settle(now);
      } else {
        launches_.hear(said);
        remember();
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
        if (by_ == identity::name) {
          say_names();
          say(std::span<const std::uint32_t>(said_));
        } else {
          say(std::span<const std::uint32_t>(news_));
        }
        news_.clear();
      }
    }
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady is_ready, std::size_t left) {
      return launches_.next(is_ready, left);
    }
    std::uint32_t after(std::uint32_t chunk) const { return launches_.after(chunk); }
    /// On rank 0: what some have reported and others have not.
    template <class IsReady>
    std::optional<std::uint32_t> stuck(IsReady is_ready) const {
      for (std::size_t bucket = 0; bucket < missing_.size(); ++bucket) {
        if (missing_[bucket] != all_.size) {
          return plan_->buckets[bucket].first_chunk;
        }
      }
      return launches_.stuck(is_ready);
    }
    /// Rank 0 stays to the last, for it names who leaves others waiting.
    bool expects_words() const {
      if (decider_) {
        return left_[0] && gone_ < all_.size;
      }
      return !news_.empty() && news_.back() == words::left;
    }

   private:
    // ---- rank 0

    void count(int peer, std::uint32_t bucket) {
      reported_[place(peer, bucket)] ^= 1;
      if (--missing_[bucket] != 0) {
        if (gone_ != 0) {
          throw left_waiting();
        }
        return;
      }
      if (joined_ < all_.size) {
        take_out(bucket);
        decider_->enter(bucket);
      } else if (++only_zeros_ == missing_.size()) {
        only_zeros_ = 0;
        joined_ = 0;
        for (std::uint32_t each = 0; each < missing_.size(); ++each) {
          take_out(each);
        }
        decider_->say_all_joined();
      }
    }
    /// All have reported it; none has the next time.
    void take_out(std::uint32_t bucket) {
      missing_[bucket] = all_.size;
      entered_[bucket] ^= 1;
    }
    std::size_t place(int peer, std::uint32_t bucket) const {
      return static_cast<std::size_t>(peer) * missing_.size() + bucket;
    }
    void take_leave_of(int peer) {
      left_[static_cast<std::size_t>(peer)] = 1;
      ++gone_;
      if (loops::any_of(missing_, [this](int each) { return each != all_.size; })) {
        throw left_waiting();
      }
    }

    /// Somebody has left, and others have reported what will never be complete.
    [[gnu::cold]] communication_error left_waiting() const {
      std::string all = sentence(
          {"rank ", loops::find(left_, char{1}) - left_.begin(), " has left and others wait:"});
      std::size_t waited_for = 0;
      for (std::uint32_t bucket = 0; bucket < missing_.size(); ++bucket) {
        if (missing_[bucket] != all_.size && ++waited_for <= most_named) {
          all += sentence({waited_for == 1 ? " " : "; ", name_of(bucket), " lacks"});
          name_missing(bucket, all);
        }
      }
      if (waited_for > most_named) {
        all += sentence({"; and ", waited_for - most_named, " more"});
      }
      return communication_error(
          all + ". Fix: as many batches on every rank, or engine.join() where there are no more");
    }
    [[gnu::cold]] void name_missing(std::uint32_t bucket, std::string& all) const {
      std::size_t named = 0;
      for (int rank = 0; rank < all_.size; ++rank) {
        if (reported_[place(rank, bucket)] == entered_[bucket] && ++named <= most_named) {
          all += sentence({named == 1 ? " rank " : " and rank ", rank});
        }
      }
      if (named > most_named) {
        all += sentence({" and ", named - most_named, " more ranks"});
      }
    }
    static constexpr std::size_t most_named = 4;  ///< tensors, and ranks of each

    void take_in(int peer, std::span<const std::uint32_t> said) {
      for (std::size_t i = 0; i < said.size(); ++i) {
        const std::uint32_t value = said[i] & words::value;
        switch (said[i] & words::kind) {
          case words::name:
            count(peer, value);
            ++i;
            i += words_of(said[i]);
            break;
          case words::bits: {
            const std::uint32_t version = said[++i];
            for (std::uint32_t word = 0; word < value; ++word) {
              ++i;
              for (std::uint32_t bit = 0; bit < 32; ++bit) {
                if ((said[i] >> bit) & 1) {
                  count(peer, bucket_in(32 * word + bit, version));
                }
              }
            }
            break;
          }
          default:
            if (value == words::joined) {
              ++joined_;
            } else if (value == words::left) {
              take_leave_of(peer);
            } else {
              count(peer, value);
            }
        }
      }
    }

    /// What lay in a slot after `version` launches of buckets. A rank that reports has heard of all
    /// but the last launch of each bucket at most.
    std::uint32_t bucket_in(std::uint32_t slot, std::uint32_t version) const {
      for (std::uint32_t each = version; each != version_; ++each) {
        const auto& change = changes_[each % changes_.size()];
        if (change.slot == slot && change.evicted != response_cache::none) {
          return change.evicted;
        }
      }
      return cache_.at(slot);
    }

    void settle(seconds now) {
      decider_->settle(now);
      remember();
    }

    // ---- the others

    static std::size_t words_of(std::size_t letters) {
      return (letters + sizeof(std::uint32_t) - 1) / sizeof(std::uint32_t);
    }
    const std::string& name_of(std::uint32_t bucket) const {
      return forward_[index(plan_->at(plan_->buckets[bucket].first_tensor))].name;
    }
    std::size_t longest_report() const {
      if (by_ == identity::number) {
        return 0;
      }
      std::size_t all = 3 + plan_->buckets.size() / 32 + 1;
      for (std::uint32_t bucket = 0; bucket < plan_->buckets.size(); ++bucket) {
        all += 2 + words_of(name_of(bucket).size());
      }
      return all;
    }

    /// Whether it has joined or left; one bit a bucket that is remembered, by its slot; then the
    /// names of the rest.
    void say_names() {
      said_.clear();
      std::span<const std::uint32_t> buckets(news_);
      if (buckets.front() >= words::left) {
        said_.push_back(buckets.front());
        buckets = buckets.subspan(1);
      }
      const std::size_t bits = said_.size();
      for (const std::uint32_t bucket : buckets) {
        if (const auto slot = cache_.slot_of(bucket)) {
          if (said_.size() == bits) {
            const std::size_t length = (cache_.size() + 31) / 32;
            said_.resize(bits + 2 + length);
            said_[bits] = words::bits | static_cast<std::uint32_t>(length);
            said_[bits + 1] = version_;
          }
          said_[bits + 2 + *slot / 32] |= std::uint32_t{1} << (*slot % 32);
        }
      }
      for (const std::uint32_t bucket : buckets) {
        if (!cache_.slot_of(bucket)) {
          const std::string& name = name_of(bucket);
          const std::size_t begin = said_.size();
          said_.resize(begin + 2 + words_of(name.size()));
          said_[begin] = words::name | bucket;
          said_[begin + 1] = static_cast<std::uint32_t>(name.size());
          std::memcpy(said_.data() + begin + 2, name.data(), name.size());
        }
      }
    }

    // ---- all

    /// A bucket counts as launched with its first chunk.
    void remember() {
      if (by_ == identity::number) {
        return;
      }
      launches_.look([this](std::uint32_t chunk) {
        const std::uint32_t bucket = plan_->chunks[chunk].bucket;
        if (plan_->buckets[bucket].first_chunk == chunk) {
          const auto change = cache_.touch(bucket);
          if (!changes_.empty()) {
            changes_[version_ % changes_.size()] = change;
          }
          ++version_;
        }
      });
    }

    const plan* plan_;
    std::span<const tensor> forward_;
    ranks all_;
    identity by_;
    Choice choice_;
    decided<Choice::gathers> launches_;
    response_cache cache_;
    std::uint32_t version_ = 0;  ///< buckets launched so far, modulo 2^32
    // rank 0's
    std::optional<decider<Choice, bounded_by::reports>> decider_{};
    std::vector<int> missing_{};    ///< ranks that have not reported each bucket
    std::vector<char> reported_{};  ///< by each rank, of each bucket: how often, modulo 2
    std::vector<char> entered_{};   ///< each bucket, as often as all have reported it, modulo 2
    std::vector<char> left_{};      ///< each rank
    int gone_ = 0;                  ///< ranks that have left
    int joined_ = 0;
    std::size_t only_zeros_ = 0;  ///< buckets that all have reported, and all have joined
    std::vector<response_cache::change> changes_{};
    // the others'
    std::vector<std::uint32_t> news_{};
    std::vector<std::uint32_t> said_{};
  };
};
static_assert(coordination_policy<negotiated>);

}  // namespace tutti::coordination
