#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <list>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordination/toy_world.hpp"
#include "tutti/coordination/negotiated.hpp"

// Negotiation written plainly with sets and maps. It is given when each tensor became ready, and
// the ticks.
namespace tutti::test {

/// A deliberate mistake of the oracle's, to see that the comparison would find it.
enum class slip { none, look_ahead_stops_at_the_limit, a_launch_does_not_renew };

/// The time that a report takes to rank 0, and rank 0's decision to each of the others.
struct delays {
  seconds (*to_rank_0)(int rank);
  seconds (*from_rank_0)(int rank);
};

struct setting {
  int size;
  std::size_t threshold;
  coordination::identity by;
  std::size_t cache;
  unsigned seed;
  delays way{toy_world::to_rank_0, toy_world::from_rank_0};
};

/// A rank's report: slots of names that its cache has, and all other names.
struct report {
  std::set<std::uint32_t> slots{};
  std::vector<std::string> names{};
  friend bool operator==(const report&, const report&) = default;
};

/// A cache that evicts what was launched longest ago.
class plain_cache {
 public:
  plain_cache(std::size_t most, slip planted) : most_(most), planted_(planted) {}

  void launch(std::uint32_t bucket) {
    if (slots.count(bucket) != 0) {
      if (planted_ != slip::a_launch_does_not_renew) {
        recent_.remove(bucket);
        recent_.push_front(bucket);
      }
      return;
    }
    if (most_ == 0) {
      return;
    }
    std::uint32_t slot = static_cast<std::uint32_t>(slots.size());
    if (slots.size() == most_) {
      slot = slots[recent_.back()];
      slots.erase(recent_.back());
      recent_.pop_back();
    }
    slots[bucket] = slot;
    recent_.push_front(bucket);
  }

  std::map<std::uint32_t, std::uint32_t> slots{};

 private:
  std::size_t most_;
  slip planted_;
  std::list<std::uint32_t> recent_{};
};

/// Rank 0's part, for a plan in which each bucket is one chunk.
class coordinator {
 public:
  std::vector<chunk_numbers> launches{};
  std::vector<std::vector<report>> reports;

  coordinator(const plan& made, const std::vector<tensor>& forward, const setting& set,
              const toy_log& log, slip planted)
      : reports(static_cast<std::size_t>(set.size)),
        plan_(&made),
        forward_(&forward),
        set_(set),
        planted_(planted),
        caches_(reports.size(), plain_cache(set.cache, planted)),
        gathering_(reports.size()),
        under_way_(reports.size()) {
    for (const auto& each : log.readied) {
      happens(each.when, [this, each] { ready(each.rank, each.bucket, each.when); });
    }
    for (const seconds tick : log.ticks) {
      happens(tick, [this, tick] { decide(tick); });
    }
    while (!events_.empty()) {
      const auto next = events_.begin();
      const auto act = next->second;
      events_.erase(next);
      act();
    }
  }

 private:
  void happens(seconds when, std::function<void()> act) { events_.emplace(when, std::move(act)); }

  void ready(int rank, std::uint32_t bucket, seconds when) {
    if (rank == 0) {
      report_of(0, bucket);
      return;
    }
    gathering_[static_cast<std::size_t>(rank)].push_back(bucket);
    if (under_way_[static_cast<std::size_t>(rank)].empty()) {
      send(rank, when);
    }
  }
  void send(int rank, seconds when) {
    const auto at = static_cast<std::size_t>(rank);
    under_way_[at].swap(gathering_[at]);
    auto& said = reports[at].emplace_back();
    std::map<std::uint32_t, std::uint32_t> known;
    std::vector<std::uint32_t> unknown;
    for (const std::uint32_t bucket : under_way_[at]) {
      if (const auto slot = caches_[at].slots.find(bucket); slot != caches_[at].slots.end()) {
        said.slots.insert(slot->second);
        known[slot->second] = bucket;
      } else {
        said.names.push_back(
            (*forward_)[index(plan_->at(plan_->buckets[bucket].first_tensor))].name);
        unknown.push_back(bucket);
      }
    }
    if (set_.by == coordination::identity::name) {  // because rank 0 reads bits first
      under_way_[at].clear();
      for (const auto& [slot, bucket] : known) {
        under_way_[at].push_back(bucket);
      }
      under_way_[at].insert(under_way_[at].end(), unknown.begin(), unknown.end());
    }
    happens(when + set_.way.to_rank_0(rank), [this, at, rank, when] {
      for (const std::uint32_t bucket : under_way_[at]) {
        report_of(rank, bucket);
      }
      under_way_[at].clear();
      if (!gathering_[at].empty()) {
        send(rank, when + set_.way.to_rank_0(rank));
      }
    });
  }

  void report_of(int rank, std::uint32_t bucket) {
    reported_[bucket].insert(rank);
    if (reported_[bucket].size() == static_cast<std::size_t>(set_.size)) {
      reported_.erase(bucket);
      responses_.push_back(bucket);
    }
  }

  std::size_t bytes(std::uint32_t chunk) const { return 4 * plan_->chunks[chunk].elements; }

  void decide(seconds when) {
    chunk_numbers launched;
    while (!responses_.empty()) {
      chunk_numbers fused{responses_.front()};
      std::size_t size = bytes(responses_.front());
      const auto kind = plan_->chunks[responses_.front()].kind;
      responses_.pop_front();
      std::deque<std::uint32_t> skipped;
      std::size_t skipped_size = 0;
      while (!responses_.empty()) {
        const std::uint32_t next = responses_.front();
        const bool matches = plan_->chunks[next].kind == kind;
        if (matches && size + bytes(next) <= set_.threshold) {
          size += bytes(next);
          fused.push_back(next);
        } else {
          skipped_size += bytes(next);
          const std::size_t all = size + skipped_size;
          if (!matches && planted_ == slip::look_ahead_stops_at_the_limit ? all >= set_.threshold
                                                                          : all > set_.threshold) {
            break;
          }
          skipped.push_back(next);
        }
        responses_.pop_front();
      }
      responses_.insert(responses_.begin(), skipped.begin(), skipped.end());
      std::sort(fused.begin(), fused.end());
      launched.insert(launched.end(), fused.begin(), fused.end());
      launches.push_back(fused);
    }
    for (int rank = 1; rank < set_.size; ++rank) {
      happens(when + set_.way.from_rank_0(rank), [this, rank, launched] {
        for (const std::uint32_t each : launched) {
          caches_[static_cast<std::size_t>(rank)].launch(each);
        }
      });
    }
  }

  const plan* plan_;
  const std::vector<tensor>* forward_;
  setting set_;
  slip planted_;
  std::vector<plain_cache> caches_;
  std::vector<std::vector<std::uint32_t>> gathering_;
  std::vector<std::vector<std::uint32_t>> under_way_;
  std::map<std::uint32_t, std::set<int>> reported_{};
  std::deque<std::uint32_t> responses_{};
  std::multimap<seconds, std::function<void()>> events_{};
};

/// Parses a report's words by their documented format.
inline report read(const chunk_numbers& words) {
  report found;
  for (std::size_t i = 0; i < words.size();) {
    const std::uint32_t value = words[i] & 0x3fffffff;
    const std::uint32_t kind = words[i] >> 30;
    if (kind == 1) {
      for (std::uint32_t bit = 0; bit < 32 * value; ++bit) {
        if ((words[i + 2 + bit / 32] >> (bit % 32)) & 1) {
          found.slots.insert(bit);
        }
      }
      i += 2 + value;
    } else if (kind == 3) {
      std::string name;
      for (std::uint32_t letter = 0; letter < words[i + 1]; ++letter) {
        name += static_cast<char>((words[i + 2 + letter / 4] >> (8 * (letter % 4))) & 0xff);
      }
      found.names.push_back(name);
      i += 2 + (words[i + 1] + 3) / 4;
    } else {
      ADD_FAILURE() << "a word of kind " << kind;
      return found;
    }
  }
  return found;
}

struct job {
  std::vector<tensor> forward = toy_tensors(9);
  plan made = toy_plan(forward);
  explicit job(unsigned seed) {
    std::mt19937 random(seed);
    for (auto& each : made.chunks) {
      each.kind = static_cast<std::uint32_t>(random() % 3);
    }
  }
};

/// Returns what differs from a coordinator with that mistake, or nothing.
inline std::string difference(const job& of, const setting& set, const toy_log& log,
                              slip planted = slip::none) {
  const coordinator plain(of.made, of.forward, set, log, planted);
  for (std::size_t rank = 0; rank < log.launches.size(); ++rank) {
    if (log.launches[rank] != plain.launches) {
      return "launches of rank " + std::to_string(rank);
    }
    if (rank == 0) {
      continue;
    }
    if (log.said[rank].size() != plain.reports[rank].size()) {
      return "reports of rank " + std::to_string(rank);
    }
    for (std::size_t i = 0; i < log.said[rank].size(); ++i) {
      if (set.by == coordination::identity::name
              ? read(log.said[rank][i]) != plain.reports[rank][i]
              : log.said[rank][i].size() !=
                    plain.reports[rank][i].names.size() + plain.reports[rank][i].slots.size()) {
        return "report " + std::to_string(i) + " of rank " + std::to_string(rank);
      }
    }
  }
  return "";
}

}  // namespace tutti::test
