#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// The control channel: ranks ask each other what holds up a chunk, and tell each other why nobody
/// can go on. `Owner::describe(chunk, step, message)` answers for this rank;
/// `Owner::heard(sentence)` ends it.
template <class Transport, class Owner>
class watch {
 public:
  watch(Transport& world, Owner& owner)
      : world_(&world),
        owner_(&owner),
        answers_(static_cast<std::size_t>(world.size())),
        answering_(answers_.size()) {}
  watch(const watch&) = delete;
  watch& operator=(const watch&) = delete;

  void start() {
    listening_ = listen();
    listening_.start(world_->ready_coroutines());
  }
  /// Ends the listening of a rank that needs nobody any more.
  task stop() {
    last_.what = control_message::kind::stop;
    co_await say(world_->rank(), last_);
    co_await listening_;
  }
  bool at_rest() const {
    return listening_.done() &&
           std::ranges::all_of(answering_, [](const reply& each) { return each.running.done(); }) &&
           std::ranges::all_of(saying_, [](const task& each) { return each.done(); });
  }

  /// Asks every other rank about a chunk.
  void ask(std::uint32_t chunk, std::uint64_t step) {
    std::ranges::fill(answers_, std::nullopt);
    answered_.store(0, std::memory_order_relaxed);
    question_.what = control_message::kind::question;
    question_.chunk = chunk;
    question_.step = step;
    say_to_all(question_);
  }
  bool everybody_answered() const {
    return answered_.load(std::memory_order_acquire) == world_->size() - 1;
  }
  /// What the answers come to.
  [[gnu::cold]] std::string verdict(std::uint32_t chunk, std::span<const tensor> forward) const {
    for (int peer = 0; peer < world_->size(); ++peer) {
      if (peer != world_->rank() && !answers_[static_cast<std::size_t>(peer)]) {
        return sentence({"rank ", peer, " does not answer"});
      }
    }
    for (int peer = 0; peer < world_->size(); ++peer) {
      const auto& answer = answers_[static_cast<std::size_t>(peer)];
      if (answer && answer->tensor != no_tensor) {
        return sentence({"rank ", peer, " never submitted ", forward[answer->tensor].name});
      }
    }
    return chunk < most_chunks
               ? sentence({"every rank submitted chunk ", chunk, " and nothing moves"})
               : "every rank answers and none goes on: they wait for different things";
  }

  /// Tells every other rank why nobody can go on.
  void proclaim(const std::string& sentence) {
    last_.what = control_message::kind::verdict;
    last_.say(sentence);
    say_to_all(last_);
  }

 private:
  task listen() {
    try {
      for (;;) {
        control_message heard;
        int peer = 0;
        {
          const auto mail = co_await world_->receive_any(channel::control);
          std::memcpy(&heard, mail.bytes().data(), sizeof heard);
          peer = mail.peer();
        }
        if (heard.what == control_message::kind::stop) {
          co_return;
        }
        handle(peer, heard);
      }
    } catch (...) {
    }  // the transport has failed, and whoever waits learns why from it
  }

  void handle(int peer, const control_message& heard) {
    switch (heard.what) {
      case control_message::kind::question:
        answer(answering_[static_cast<std::size_t>(peer)], peer, heard);
        break;
      case control_message::kind::answer:
        if (!std::exchange(answers_[static_cast<std::size_t>(peer)], heard)) {
          answered_.fetch_add(1, std::memory_order_release);
        }
        break;
      case control_message::kind::verdict:
        owner_->heard(std::string(heard.said()));
        break;
      case control_message::kind::stop:
        break;
    }
  }

  struct reply {
    control_message words{};
    task running{};
  };

  /// To each who asks, and again if it asks again; not twice at once.
  void answer(reply& mine, int peer, const control_message& question) {
    if (mine.running.done()) {
      mine.words.what = control_message::kind::answer;
      mine.words.chunk = question.chunk;
      owner_->describe(question.chunk, question.step, mine.words);
      mine.running = say(peer, mine.words);
      mine.running.start(world_->ready_coroutines());
    }
  }

  void say_to_all(const control_message& message) {
    for (int peer = 0; peer < world_->size(); ++peer) {
      if (peer != world_->rank()) {
        saying_.push_back(say(peer, message));
        saying_.back().start(world_->ready_coroutines());
      }
    }
  }

  task say(int peer, const control_message& message) {
    try {
      co_await world_->send(peer, tag{channel::control, 0, 0},
                            std::as_bytes(std::span(&message, 1)));
    } catch (...) {
    }  // a peer that cannot hear has its own error
  }

  Transport* world_;
  Owner* owner_;
  control_message question_{};
  control_message last_{};
  std::vector<std::optional<control_message>> answers_;
  std::atomic<int> answered_{0};
  task listening_{};
  std::vector<reply> answering_;
  std::vector<task> saying_{};
};

}  // namespace tutti
