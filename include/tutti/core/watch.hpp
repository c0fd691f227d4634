#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/loops.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// The control channel, on which ranks ask each other what holds up a chunk.
///
/// A rank asks when nothing has moved for a deadline, and again after each further deadline. A rank
/// that owes something and has handed in any gradient between two questions is computing. If none
/// of those that owe something is, the first of them is named in an error, as is a rank that does
/// not answer. The first answers only serve for comparison. A worker that has ended does not
/// answer. Servers, which have heard of its end, excuse it.
template <class Transport>
class watch {
 public:
  watch(Transport& world, engine_base<Transport>& owner)
      : world_(&world), owner_(&owner), ranks_(static_cast<std::size_t>(world.size())) {}
  watch(const watch&) = delete;
  watch& operator=(const watch&) = delete;

  void start() {
    listening_ = listen();
    listening_.start(world_->ready_coroutines());
  }
  /// Ends the listening of a rank that needs no other any more.
  [[gnu::cold]] task stop() {
    co_await say(world_->rank(), stop_);
    co_await listening_;
  }
  bool at_rest() const {
    return listening_.done() && loops::all_of(ranks_, [](const line& each) {
             return each.asking.done() && each.answering.done();
           });
  }

  // ---- asking

  /// When others were last asked. That question also counts for a thread that began to wait before
  /// it.
  seconds asked_at() const { return asked_at_; }

  /// Asks every other rank about a chunk. Their answers are compared with those to the question
  /// before, if that was asked since `begin`.
  [[gnu::cold]] void ask(const chunk_step& about, seconds begin) {
    const bool measured = asked_at_ >= begin;
    moved_on_ = measured && about != about_;
    still_ = measured ? still_ : 0;
    about_ = about;
    asked_at_ = world_->now();
    int unanswered = 0;
    for (int rank = 0; rank < world_->size(); ++rank) {
      line& with = ranks_[static_cast<std::size_t>(rank)];
      with.before = measured && with.answer ? std::optional(with.answer->handed_in) : std::nullopt;
      if (rank == world_->rank()) {
        with.answer.emplace();
        with.answer->about = about;
        owner_->describe(about, *with.answer);
      } else if (with.asking.done() && !with.excused) {
        // A rank that has not read the last question yet is asked no other.
        with.answer.reset();
        with.question.what = control_message::kind::question;
        with.question.about = about;
        ++with.question.number;
        with.asking = say(rank, with.question);
        with.asking.start(world_->ready_coroutines());
      }
      unanswered += with.answer ? 0 : 1;
    }
    unanswered_.store(unanswered, std::memory_order_release);
  }
  bool everybody_answered() const { return unanswered_.load(std::memory_order_acquire) == 0; }

  /// Notes that a rank has ended in good order: it does not answer any more, and owes nothing.
  [[gnu::cold]] void excuse(int rank) {
    line& its = ranks_[static_cast<std::size_t>(rank)];
    if (!its.answer && asked_at_ >= 0) {
      unanswered_.fetch_sub(1, std::memory_order_release);
    }
    its.excused = true;
    its.answer.emplace();
    its.answer->tensor = no_tensor;
    its.answer->averages = ~std::uint64_t{0};
  }

  /// Names a rank that has not answered the last question; empty if all have. Servers come first,
  /// because a silent worker may have ended, of which a silent server has not told.
  [[gnu::cold]] std::string silent() const {
    for (std::size_t rank = ranks_.size(); rank-- > 0;) {
      if (!ranks_[rank].answer) {
        return sentence({"rank ", rank, " does not answer"});
      }
    }
    return {};
  }

  /// Returns whether a server holds the chunk back because of its staleness bound. How long that
  /// lasts depends on other workers, and has no limit.
  bool is_held() const {
    return loops::any_of(ranks_, [this](const line& each) {
      return each.answer && each.answer->about == about_ && each.answer->state == chunk_state::held;
    });
  }
  /// Says what the answers of all ranks amount to. Empty while the wait should go on.
  [[gnu::cold]] std::string verdict(std::span<const tensor> forward) {
    if (moved_on_) {
      return {};
    }
    const line* owes = nullptr;
    bool any_owing_moves = false;
    bool any_moves = false;
    for (const line& each : ranks_) {
      const bool moves = !each.before || *each.before != each.answer->handed_in;
      any_moves |= moves;
      if (is_owing(each)) {
        owes = owes == nullptr ? &each : owes;
        any_owing_moves |= moves;
      }
    }
    still_ = any_moves ? 0 : still_ + 1;
    if (owes != nullptr) {
      return any_owing_moves ? std::string() : owed(*owes, forward);
    }
    // A rank that waits for a chunk knows better who is to blame, so the others leave it time to
    // say so.
    if (about_.chunk == no_chunk ? still_ < 3 : any_moves) {
      return {};
    }
    return stalled();
  }

 private:
  /// What has been said to and by one rank. For this rank itself, only the answer.
  struct line {
    control_message question{};
    std::optional<control_message> answer{};  // to the last question
    std::optional<std::uint64_t> before{};    // what it had handed in by the question before
    std::optional<control_message> asked{};   // a question of that rank which is not answered yet
    control_message reply{};
    bool excused = false;
    task asking{};
    task answering{};
  };

  /// Returns whether that rank has not submitted what this rank waits for. If this rank waits for
  /// no chunk: whether that rank has called fewer averages and re-plans than this one, and does not
  /// wait itself.
  bool is_owing(const line& one) const {
    const control_message& mine = *ranks_[static_cast<std::size_t>(world_->rank())].answer;
    if (one.answer->about != about_) {
      return false;  // it answers an earlier question
    }
    return about_.chunk != no_chunk
               ? one.answer->tensor != no_tensor
               : one.answer->averages < mine.averages && one.answer->waiting == 0;
  }
  std::string owed(const line& one, std::span<const tensor> forward) const {
    const auto rank = &one - ranks_.data();
    const std::string_view call = one.answer->call.data();
    const bool averages = about_.chunk == no_chunk;
    const std::string who = call.empty() || (averages && call == owner_->called())
                                ? sentence({"rank ", rank, " "})
                                : sentence({"rank ", rank, " called ", call, " and "});
    return who +
           (averages ? owner_->owed_call() : "never submitted " + forward[one.answer->tensor].name);
  }

  /// Says that no rank owes anything, and that none moves.
  std::string stalled() const {
    const auto ended = loops::find_if(ranks_, [](const line& each) { return each.excused; });
    const bool all_there = ended == ranks_.end();
    const auto rank = ended - ranks_.begin();
    if (about_.chunk == no_chunk && all_there) {
      return "every rank answers but none makes progress: they wait " + how_they_wait();
    }
    if (about_.chunk == no_chunk) {
      return sentence({"rank ", rank, " has ended and no other rank makes progress"});
    }
    if (all_there) {
      return sentence({"every rank submitted chunk ", about_.chunk, " and nothing moves"});
    }
    return sentence({"every other rank submitted chunk ", about_.chunk, ", rank ", rank,
                     " has ended and nothing moves"});
  }

  /// Continues "they wait" with the calls that ranks are in, if any is in one.
  std::string how_they_wait() const {
    std::string calls;
    bool any = false;
    for (const line& each : ranks_) {
      const std::string_view call = each.answer->call.data();
      any = any || !call.empty();
      add_to_list(calls,
                  sentence({"rank ", &each - ranks_.data(), " in ", call.empty() ? "none" : call}));
    }
    return any ? sentence({"in different calls (", calls,
                           "). Fix: make the same ones, in one order, on every rank"})
               : "for different things";
  }

  [[gnu::cold]] task listen() {
    try {
      for (;;) {
        control_message heard;
        int peer = 0;
        {
          const auto mail = co_await world_->receive_any(channel::control);
          std::memcpy(&heard, mail.bytes().data(), sizeof heard);
          peer = mail.peer();
        }
        owner_->count_word();
        if (heard.what == control_message::kind::stop) {
          co_return;
        }
        handle(ranks_[static_cast<std::size_t>(peer)], peer, heard);
      }
    } catch (...) {
      owner_->heard(std::current_exception());
    }
  }

  [[gnu::cold]] void handle(line& with, int peer, const control_message& heard) {
    switch (heard.what) {
      case control_message::kind::question:
        with.asked = heard;
        if (with.answering.done()) {
          with.answering = answer(with, peer);
          with.answering.start(world_->ready_coroutines());
        }
        break;
      case control_message::kind::answer:
        if (heard.number == with.question.number && !with.answer) {
          with.answer = heard;
          unanswered_.fetch_sub(1, std::memory_order_release);
        }
        break;
      case control_message::kind::excuse:
        excuse(static_cast<int>(heard.absent));
        break;
      case control_message::kind::stop:
        break;
    }
  }

  /// Answers a rank's last question. There is one answer at a time to each rank.
  [[gnu::cold]] task answer(line& with, int peer) {
    while (with.asked) {
      with.reply = *std::exchange(with.asked, std::nullopt);
      with.reply.what = control_message::kind::excuse;
      for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        if (ranks_[rank].excused) {
          with.reply.absent = rank;
          co_await say(peer, with.reply);
        }
      }
      with.reply.what = control_message::kind::answer;
      owner_->describe(with.reply.about, with.reply);
      co_await say(peer, with.reply);
      owner_->count_word();
    }
  }

  [[gnu::cold]] task say(int peer, const control_message& message) {
    try {
      co_await world_->send(peer, tag{channel::control, 0, 0},
                            std::as_bytes(std::span(&message, 1)));
    } catch (...) {
    }  // a peer that cannot hear has its own error
    owner_->count_word();
  }

  Transport* world_;
  engine_base<Transport>* owner_;
  std::vector<line> ranks_;
  control_message stop_{};
  chunk_step about_{no_chunk, 0};
  seconds asked_at_ = -1;
  bool moved_on_ = false;  // this rank waits for something else than at the last question
  int still_ = 0;          // rounds of answers in a row in which no rank had moved
  std::atomic<int> unanswered_{0};
  task listening_{};
};

}  // namespace tutti
