#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tutti/base/loops.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/units.hpp"
#include "tutti/coordination/decided.hpp"
#include "tutti/coordination/words.hpp"

namespace tutti::coordination {

/// What keeps rank 0 from deciding further ahead of the other ranks than they have room for.
enum class bounded_by {
  acknowledgements,  ///< it asks them from time to time how far they are
  reports,           ///< no rank reports a bucket again before its last launch has begun there
};

/// Rank 0's half of a coordination. It takes in buckets that are ready, decides launches by the
/// choice of schedule and fusion, runs the fusion's timer, and writes the words that tell the other
/// ranks. While rank 0 decides, only its own credit holds launches back.
///
/// A cycle of the timer begins only when there is something new to decide. It ends a whole number
/// of cycles after the last one ended, and the first one lasts one cycle. A timer that ran without
/// news would keep a virtual clock from ever finding that nothing moves.
template <class Choice, bounded_by Bound>
class decider {
  using launches = decided<Choice::gathers>;
  /// Whether a bucket is held back while credit of its chunks' last launch is out. That launch's
  /// order of chunks is read when its credit comes back, and must not change before.
  static constexpr bool holds_back = Choice::gathers && Choice::limits_in_flight;

 public:
  [[gnu::cold]] decider(const plan& made, int size, Choice& chosen, launches& mine)
      : plan_(&made),
        choice_(&chosen),
        launches_(&mine),
        room_(launches::room(made)),
        carried_out_(static_cast<std::size_t>(size - 1)),
        away_(holds_back ? made.chunks.size() : 0),
        held_back_(holds_back ? made.buckets.size() : 0) {
    said_.reserve(room_);
  }

  // ---- events; `settle` is called after one or several of them

  void enter(std::uint32_t bucket) {
    const auto& full = plan_->buckets[bucket];
    if constexpr (holds_back) {
      held_back_[bucket] = std::any_of(away_.begin() + full.first_chunk,
                                       away_.begin() + full.first_chunk + full.chunks,
                                       [](char away) { return away != 0; });
      if (held_back_[bucket]) {
        return;
      }
    }
    choice_->ready(bucket);
    waiting_ += full.chunks;
    news_ = true;
  }

  void released(std::uint32_t launch) {
    if constexpr (Choice::limits_in_flight) {
      for (std::uint32_t chunk = launch; chunk != no_chunk; chunk = launches_->after(chunk)) {
        choice_->released(chunk);
        if constexpr (holds_back) {
          away_[chunk] = 0;
          if (held_back_[plan_->chunks[chunk].bucket]) {
            enter(plan_->chunks[chunk].bucket);
          }
        }
      }
      news_ = news_ || waiting_ > 0;
    }
  }

  /// Records that another rank has carried out so many words, modulo 2^30.
  void acknowledged(int peer, std::uint32_t word) {
    auto& its = carried_out_[static_cast<std::size_t>(peer - 1)];
    its += (word - static_cast<std::uint32_t>(its)) & words::value;
    overdue_ = is_full_;
  }

  /// Tells all ranks that none has a batch left. By then every launch has ended everywhere.
  void say_all_joined() {
    const std::uint32_t word = words::all_joined;
    ++end_;
    launches_->push(std::span(&word, 1));
    if (!carried_out_.empty()) {
      said_.push_back(word);
    }
  }

  void settle(seconds now) {
    if (overdue_ || (news_ && !is_full_ && !waits_for_tick(now))) {
      decide();
    }
  }

  std::optional<seconds> due() const { return due_; }
  void tick(seconds now) {
    if (due_ && now >= *due_) {
      last_tick_ = due_;
      due_.reset();
      decide();
    }
  }

  // ---- what the events lead to

  template <class Say>
  void speak(Say say) {
    if (!said_.empty()) {
      say(std::span<const std::uint32_t>(said_));
      said_.clear();
    }
  }
  /// Returns how many chunks have been launched so far.
  std::size_t launched() const { return launched_; }
  bool expects_words() const {
    return loops::any_of(carried_out_, [this](std::size_t each) { return each < asked_at_; });
  }

 private:
  bool waits_for_tick([[maybe_unused]] seconds now) {
    if constexpr (Choice::has_cycle) {
      const seconds cycle = choice_->cycle();
      if (cycle > 0 && !due_) {
        last_tick_ = last_tick_.value_or(now);
        const double cycles = (now - *last_tick_) / cycle;
        // A builtin, because <cmath> takes longer to compile than all of coordination.
        due_ = *last_tick_ + cycle * std::max(1.0, __builtin_ceil(cycles));
      }
      return cycle > 0;
    } else {
      return false;
    }
  }

  void decide() {
    news_ = false;
    overdue_ = false;
    is_full_ = false;
    if constexpr (Choice::gathers) {
      if (!has_room(2 * waiting_)) {
        is_full_ = true;
        return;
      }
      choice_->stage();
      for (auto chunks = choice_->next_launch(); !chunks.empty(); chunks = choice_->next_launch()) {
        launch(chunks);
      }
    } else {
      while (has_room(1)) {
        const auto chunk = choice_->next();
        if (!chunk) {
          return;
        }
        launch(std::span(&*chunk, 1));
      }
      is_full_ = true;
    }
  }

  /// Whether every rank has room for so many words and one more, which asks it how far it is.
  bool has_room(std::size_t words) const {
    if constexpr (Bound == bounded_by::acknowledgements) {
      return carried_out_.empty() ||
             end_ + words + 1 - *std::min_element(carried_out_.begin(), carried_out_.end()) <=
                 room_;
    } else {
      return true;
    }
  }

  void launch(std::span<const std::uint32_t> chunks) {
    launched_ += chunks.size();
    waiting_ -= chunks.size();
    const std::uint32_t digest = digest_.add(chunks) << 16;
    const std::size_t length = chunks.size() == 1 ? 1 : 1 + chunks.size();
    end_ += length;
    const bool asks = Bound == bounded_by::acknowledgements && !carried_out_.empty() &&
                      end_ - asked_at_ >= room_ / 4;
    const std::size_t begin = said_.size();
    said_.resize(begin + length + (asks ? 1 : 0));
    const std::span<std::uint32_t> record = std::span(said_).subspan(begin);
    if (chunks.size() == 1) {
      record[0] = digest | chunks.front();
    } else {
      record[0] = digest | words::several | static_cast<std::uint32_t>(chunks.size());
      std::copy(chunks.begin(), chunks.end(), record.begin() + 1);
    }
    if constexpr (holds_back) {
      for (const std::uint32_t each : chunks) {
        away_[each] = 1;
      }
    }
    if (asks) {
      record.back() = words::acknowledge;
      asked_at_ = ++end_;
    }
    launches_->push(record);
    if (carried_out_.empty()) {
      said_.clear();  // there is no other rank to tell
    }
  }

  const plan* plan_;
  Choice* choice_;
  launches* launches_;
  std::size_t room_;
  std::vector<std::size_t> carried_out_;  ///< words, by each other rank, as far as known here
  std::vector<char> away_;       ///< whether each chunk is launched and its credit not back
  std::vector<char> held_back_;  ///< whether each bucket waits for such credit
  std::vector<std::uint32_t> said_;
  launch_digest digest_{};
  std::size_t end_ = 0;  ///< words ever decided
  std::size_t asked_at_ = 0;
  std::size_t waiting_ = 0;  ///< chunks let in and not launched
  std::size_t launched_ = 0;
  std::optional<seconds> last_tick_{};
  std::optional<seconds> due_{};
  bool news_ = false;
  bool is_full_ = false;
  bool overdue_ = false;
};

}  // namespace tutti::coordination
