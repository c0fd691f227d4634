#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/post_box.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/claim.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/loop_round.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// The kinds of messages on the service channel that are not about a chunk.
enum class service : std::uint32_t {
  words = 8,  ///< words of a coordination's machine, about the order of launches
  finished,   ///< the sender sends no more questions
  ended,      ///< no rank will send any more questions
  change,     ///< other values for the optimizer
  undo,       ///< the last step has updated nothing: restore what was remembered before it
  collect,
  restore,
  replan,
  pushes,
};

/// The part of an engine that is independent of its strategy: its plan, its model's memory, its
/// failure, and the interface through which the loop, waiting, the control channel and services
/// call the engine. All of that is compiled once for each transport. Cost: a call through a pointer
/// where the strategy has to answer.
template <class Transport>
class engine_base {
 public:
  using message_type =
      message<decltype(std::declval<Transport&>().receive_any(channel::service).await_resume())>;

  // ---- the loop

  /// Makes one round of the loop (core/loop_round.hpp); for the loop's owner.
  loop_round go_round(Transport& world) { return verbs_->go_round(*this, world); }
  /// Returns whether some tensor has become ready that the loop has not taken in.
  bool has_posts() const {
    return is_started_.load(std::memory_order_acquire) && !posts_.empty() &&
           !unwritten_.load(std::memory_order_relaxed);
  }
  /// Returns whether this rank's part has ended by a failure, which ends every wait.
  bool failed() const { return failure_.happened(); }
  void rethrow_failure() const { failure_.rethrow(); }
  /// Messages of the control channel so far. They do not count as progress.
  std::size_t words() const { return words_; }
  void count_word() { ++words_; }
  /// Ends every rank's part because the loop, or something that it started, has thrown `why`, if
  /// that is not the transport's failure, of which every rank hears.
  void broken(std::exception_ptr why) {
    hear_of_failure();
    fail(std::move(why), audience::everybody);
  }

  // ---- waiting

  /// The chunk that this rank waits for, with its step.
  chunk_step stuck() { return verbs_->stuck(*this); }
  /// Ends this rank's part and every other's with the sentence, unless it is empty.
  [[gnu::cold]] void end_with(const std::string& sentence) {
    if (!sentence.empty()) {
      broken(std::make_exception_ptr(communication_error(sentence)));
    }
  }
  /// Ends this rank's part if the transport has failed, which is needed where no coroutine awaits
  /// an operation of it.
  void hear_of_failure() {
    if constexpr (requires { world_->failure(); }) {
      if (world_->failure()) {
        heard(world_->failure());
      }
    }
  }
  const std::vector<tensor>& tensors() const { return model_.forward(); }

  // ---- the control channel

  /// Fills in this rank's answer to what the chunk is doing here.
  void describe(const chunk_step& about, control_message& answer) {
    return verbs_->describe(*this, about, answer);
  }
  /// Ends this rank's part by a failure of which every other rank learns by itself, such as the
  /// transport's.
  void heard(std::exception_ptr why) { fail(std::move(why), audience::nobody); }
  /// What a rank has not done for which this one waits in a call that all workers make.
  std::string owed_call() const {
    const std::string_view name = called();
    return name.empty() || name == "average()"
               ? "never called average()"
               : sentence({"has not called ", name, ", or has not come as far in it"});
  }
  /// The call of all workers that this rank is in; empty if it is in none.
  std::string_view called() const {
    const char* const name = due_call_.load(std::memory_order_relaxed);
    return name == nullptr ? std::string_view() : name;
  }
  /// While it lives, errors name this call, unless it is part of another.
  class collective_call {
   public:
    collective_call(engine_base& its, const char* name)
        : due_(&its.due_call_), before_(due_->load(std::memory_order_relaxed)) {
      due_->store(before_ == nullptr ? name : before_, std::memory_order_relaxed);
    }
    collective_call(const collective_call&) = delete;
    collective_call& operator=(const collective_call&) = delete;
    ~collective_call() {
      if (before_ == nullptr) {
        due_->store(nullptr, std::memory_order_relaxed);
      }
    }

   private:
    std::atomic<const char*>* due_;
    const char* before_;
  };

  // ---- services

  /// Returns whether that rank answers questions of all others.
  bool listens_to_all(int rank) { return verbs_->listens_to_all(*this, rank); }
  /// Passes on what another rank's coordination machine has said.
  void hear(int peer, std::span<const std::byte> words) { return verbs_->hear(*this, peer, words); }
  /// Has the architecture answer a message about a chunk.
  task serve_chunk(message_type&& asked) { return verbs_->serve_chunk(*this, std::move(asked)); }
  /// Takes in other values for the optimizer.
  void take_values(std::span<const std::byte> bytes) { return verbs_->take_values(*this, bytes); }
  /// Restores what the architecture remembered before the last step, which has updated nothing.
  void undo_step() { return verbs_->undo_step(*this); }
  /// What the architecture remembers.
  std::vector<std::span<float>> remembered() { return verbs_->remembered(*this); }
  /// Has the architecture continue from step `steps`.
  void resume_architecture(std::uint64_t steps) {
    return verbs_->resume_architecture(*this, steps);
  }
  /// Answers a worker's question; on a rank that serves or counts pushes.
  task converse(int worker, service what) { return verbs_->converse(*this, worker, what); }
  /// Notes that a worker will not ask this rank, a server, any more.
  task worker_left(int worker) { return verbs_->worker_left(*this, worker); }
  /// The push counts of this rank.
  push_counts counted_pushes() { return verbs_->counted_pushes(*this); }

  // ---- beginning and end

  /// Called once the ranks agree on what they declare and set, and all have rank 0's parameters.
  void begun() { return verbs_->begun(*this); }
  /// Ends when every launch has ended; no more gradients follow.
  task finish_gradients() { return verbs_->finish_gradients(*this); }
  /// Ends when every task that the architecture began has ended.
  task finish_architecture() { return verbs_->finish_architecture(*this); }
  /// Ends when no other worker waits for the sums of this one's monitor any more.
  task finish_sums() { return verbs_->finish_sums(*this); }
  /// Ends the listening on the control channel.
  task stop_answering() { return verbs_->stop_answering(*this); }

 protected:
  using audience = typename failure<Transport>::audience;

  /// `Engine` is the class that derives from this one and declares all verbs.
  template <class Engine>
  engine_base(std::type_identity<Engine>, Transport& world, std::vector<tensor>&& tensors,
              plan&& made, buffers wanted, std::size_t most_lent)
      : engine_base(of<Engine>(), world, std::move(tensors), std::move(made), wanted, most_lent) {}
  [[gnu::cold]] ~engine_base() = default;

  /// Ends this rank's part, unless it has ended already.
  [[gnu::cold]] void fail(std::exception_ptr why, audience who) {
    if (failure_.end(named(std::move(why)), who)) {
      verbs_->release_waiters(*this);
    }
  }

  /// Returns whether `Engine` itself declares a verb. If it does not, `&Engine::verb` is this
  /// class's function, which would call itself for ever.
  template <class Engine, class Owner, class Verb>
  static constexpr bool is_own(Verb Owner::*) {
    return std::is_same_v<Owner, Engine>;
  }
  template <class Engine>
  static constexpr bool has_all() {
    return is_own<Engine>(&Engine::release_waiters) && is_own<Engine>(&Engine::stuck) &&
           is_own<Engine>(&Engine::describe) && is_own<Engine>(&Engine::listens_to_all) &&
           is_own<Engine>(&Engine::hear) && is_own<Engine>(&Engine::serve_chunk) &&
           is_own<Engine>(&Engine::take_values) && is_own<Engine>(&Engine::undo_step) &&
           is_own<Engine>(&Engine::remembered) && is_own<Engine>(&Engine::resume_architecture) &&
           is_own<Engine>(&Engine::converse) && is_own<Engine>(&Engine::worker_left) &&
           is_own<Engine>(&Engine::counted_pushes) && is_own<Engine>(&Engine::begun) &&
           is_own<Engine>(&Engine::finish_gradients) &&
           is_own<Engine>(&Engine::finish_architecture) && is_own<Engine>(&Engine::finish_sums) &&
           is_own<Engine>(&Engine::stop_answering);
  }

  Transport* world_;
  failure<Transport> failure_;
  claim claim_;
  plan plan_;
  model_memory<typename Transport::queue_type> model_;
  std::atomic<const char*> due_call_{nullptr};
  post_box posts_;  ///< tensors that became ready
  std::atomic<bool> is_started_{false};
  /// Whether a device was still writing the gradient of the oldest post at the last look.
  std::atomic<bool> unwritten_{false};

 private:
  struct verbs {
    loop_round (*go_round)(engine_base&, Transport&);
    void (*release_waiters)(engine_base&);
    chunk_step (*stuck)(engine_base&);
    void (*describe)(engine_base&, const chunk_step&, control_message&);
    bool (*listens_to_all)(engine_base&, int);
    void (*hear)(engine_base&, int, std::span<const std::byte>);
    task (*serve_chunk)(engine_base&, message_type&&);
    void (*take_values)(engine_base&, std::span<const std::byte>);
    void (*undo_step)(engine_base&);
    std::vector<std::span<float>> (*remembered)(engine_base&);
    void (*resume_architecture)(engine_base&, std::uint64_t);
    task (*converse)(engine_base&, int, service);
    task (*worker_left)(engine_base&, int);
    push_counts (*counted_pushes)(engine_base&);
    void (*begun)(engine_base&);
    task (*finish_gradients)(engine_base&);
    task (*finish_architecture)(engine_base&);
    task (*finish_sums)(engine_base&);
    task (*stop_answering)(engine_base&);
  };
  /// Not inlined, so that all strategies share it.
  [[gnu::cold, gnu::noinline]] engine_base(const verbs& all, Transport& world,
                                           std::vector<tensor>&& tensors, plan&& made,
                                           buffers wanted, std::size_t most_lent)
      : world_(&world),
        failure_(world),
        claim_(world.ready_coroutines(), world.rank()),
        plan_(std::move(made)),
        model_(world.queue(), std::move(tensors), plan_, wanted, most_lent),
        posts_(plan_.backward.size()),
        verbs_(&all) {}

  /// Calls a verb of the class that derives from this one.
  template <class Engine, auto Verb, class Result, class... Arguments>
  static Result call(engine_base& its, Arguments... arguments) {
    return (static_cast<Engine&>(its).*Verb)(std::forward<Arguments>(arguments)...);
  }
  template <class Engine>
  static loop_round round(engine_base& its, Transport& world) {
    return tutti::go_round(world, static_cast<Engine&>(its));
  }
  template <class Engine>
  static const verbs& of() {
    static constexpr verbs all{
        round<Engine>,
        call<Engine, &Engine::release_waiters>,
        call<Engine, &Engine::stuck>,
        call<Engine, &Engine::describe>,
        call<Engine, &Engine::listens_to_all>,
        call<Engine, &Engine::hear>,
        call<Engine, &Engine::serve_chunk>,
        call<Engine, &Engine::take_values>,
        call<Engine, &Engine::undo_step>,
        call<Engine, &Engine::remembered>,
        call<Engine, &Engine::resume_architecture>,
        call<Engine, &Engine::converse>,
        call<Engine, &Engine::worker_left>,
        call<Engine, &Engine::counted_pushes>,
        call<Engine, &Engine::begun>,
        call<Engine, &Engine::finish_gradients>,
        call<Engine, &Engine::finish_architecture>,
        call<Engine, &Engine::finish_sums>,
        call<Engine, &Engine::stop_answering>,
    };
    return all;
  }

  /// Returns the failure with the name of the tensor that holds a NaN. Elements of a launch that
  /// was gathered at run time count from (1 + its first chunk) times the model's elements
  /// (`fusion_buffers`). Only that chunk is known here, because on a stream the launch's buffer may
  /// have gone to another launch.
  [[gnu::cold]] std::exception_ptr named(std::exception_ptr why) const {
    if (!why) {
      return std::make_exception_ptr(
          usage_error("engine.fail was given no exception. Fix: call it in a catch block, with "
                      "std::current_exception()"));
    }
    try {
      std::rethrow_exception(why);
    } catch (const no_magnitude& found) {
      const auto said = [this](const std::string& what, std::size_t position) {
        return std::make_exception_ptr(usage_error(no_magnitude::said_of(
            what + tensors()[index(plan_.at(position))].name + "'s gradient")));
      };
      if (found.element < plan_.elements()) {
        const auto next = std::ranges::upper_bound(plan_.first_element, found.element) - 1;
        return said(sentence({"element ", found.element - *next, " of "}),
                    static_cast<std::size_t>(next - plan_.first_element.begin()));
      }
      const auto chunk = plan_.elements() == 0 ? 0 : found.element / plan_.elements() - 1;
      return chunk < plan_.chunks.size()
                 ? said("an element of the launch that begins with ",
                        plan_.buckets[plan_.chunks[chunk].bucket].first_tensor)
                 : why;
    } catch (...) {
      return why;
    }
  }

  const verbs* verbs_;
  std::size_t words_ = 0;  // counted by the loop's owner
};

}  // namespace tutti
