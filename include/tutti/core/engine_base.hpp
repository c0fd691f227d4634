#pragma once

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

/// What ranks ask of each other beside chunks.
enum class service : std::uint32_t {
  words = 8,  ///< of another rank's machine, which decides in which order launches start
  finished,   ///< the sender asks nobody any more
  ended,      ///< nor does anybody
  change,     ///< other values for the optimizer
  undo,       ///< the last step has updated nothing
  collect,
  restore,
  replan,
  pushes,
};

/// An engine without its strategy: its plan, its model's memory, how it fails, and all that the
/// loop, waiting, the control channel and services ask of it. They are compiled once a transport.
/// Cost: a call through a pointer where a strategy has to answer.
template <class Transport>
class engine_base {
 public:
  using message_type =
      message<decltype(std::declval<Transport&>().receive_any(channel::service).await_resume())>;

  // ---- the loop

  /// One round of it, by its owner (core/loop_round.hpp).
  loop_round go_round(Transport& world) { return verbs_->go_round(*this, world); }
  /// Something that became ready has not been taken in.
  bool has_posts() const {
    return is_started_.load(std::memory_order_acquire) && !posts_.empty() &&
           !unwritten_.load(std::memory_order_relaxed);
  }
  /// Ends every wait.
  bool failed() const { return failure_.happened(); }
  void rethrow_failure() const { failure_.rethrow(); }
  /// Messages about waiting so far, which are no progress.
  std::size_t words() const { return words_; }
  void count_word() { ++words_; }
  /// Something has thrown in the loop, or in what it started.
  void broken(std::exception_ptr why) { fail(std::move(why), audience::everybody); }

  // ---- waiting

  /// What this rank waits for.
  chunk_step stuck() { return verbs_->stuck(*this); }
  /// Ends this rank's part, and every other's, unless the sentence is empty.
  [[gnu::cold]] void end_with(const std::string& sentence) {
    if (!sentence.empty()) {
      broken(std::make_exception_ptr(communication_error(sentence)));
    }
  }
  /// The transport's failure is this engine's, also where no coroutine awaits anything of it.
  void hear_of_failure() {
    if constexpr (requires { world_->failure(); }) {
      if (world_->failure()) {
        heard(world_->failure());
      }
    }
  }
  const std::vector<tensor>& tensors() const { return model_.forward(); }

  // ---- the control channel

  /// Answers for this rank, what the chunk is doing here.
  void describe(const chunk_step& about, control_message& answer) {
    return verbs_->describe(*this, about, answer);
  }
  /// The transport's failure, as a coroutine has met it.
  void heard(std::exception_ptr why) { fail(std::move(why), audience::nobody); }
  /// What a rank that all others wait for has not called.
  std::string_view due_call() const { return due_call_.load(std::memory_order_relaxed); }

  // ---- services

  /// The ranks for which this is true answer whoever asks.
  bool listens_to_all(int rank) { return verbs_->listens_to_all(*this, rank); }
  /// What another rank's machine said.
  void hear(int peer, std::span<const std::byte> words) { return verbs_->hear(*this, peer, words); }
  /// A message about a chunk, for the architecture.
  task serve_chunk(message_type&& asked) { return verbs_->serve_chunk(*this, std::move(asked)); }
  /// Other values for the optimizer.
  void take_values(std::span<const std::byte> bytes) { return verbs_->take_values(*this, bytes); }
  /// The last step has updated nothing.
  void undo_step() { return verbs_->undo_step(*this); }
  /// What its architecture remembers.
  std::vector<std::span<float>> remembered() { return verbs_->remembered(*this); }
  /// Its architecture goes on from step `steps`.
  void resume_architecture(std::uint64_t steps) {
    return verbs_->resume_architecture(*this, steps);
  }
  /// A worker's question to a rank that serves.
  task converse(int worker, service what) { return verbs_->converse(*this, worker, what); }
  /// A worker asks a rank that serves nothing any more.
  task worker_left(int worker) { return verbs_->worker_left(*this, worker); }
  /// What a rank that serves has counted.
  push_counts counted_pushes() { return verbs_->counted_pushes(*this); }

  // ---- beginning and end

  /// All ranks declare and set the same, and parameters are rank 0's.
  void begun() { return verbs_->begun(*this); }
  /// No more gradients: ends when every launch has.
  task finish_gradients() { return verbs_->finish_gradients(*this); }
  /// Ends when nothing is left of what the architecture began.
  task finish_architecture() { return verbs_->finish_architecture(*this); }
  /// Ends the listening on the control channel.
  task stop_answering() { return verbs_->stop_answering(*this); }

 protected:
  using audience = typename failure<Transport>::audience;

  /// `Engine` is derived from this, and has all verbs.
  template <class Engine>
  engine_base(std::type_identity<Engine>, Transport& world, std::vector<tensor>&& tensors,
              plan&& made, buffers wanted, std::size_t most_lent)
      : engine_base(of<Engine>(), world, std::move(tensors), std::move(made), wanted, most_lent) {}
  [[gnu::cold]] ~engine_base() = default;

  /// Ends this rank's part, once.
  [[gnu::cold]] void fail(std::exception_ptr why, audience who) {
    if (failure_.end(std::move(why), who)) {
      verbs_->release_waiters(*this);
    }
  }

  /// Whether `Engine` itself declares a verb. If it does not, `&Engine::verb` is this class's,
  /// which calls the engine's: a recursion without end.
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
           is_own<Engine>(&Engine::finish_architecture) && is_own<Engine>(&Engine::stop_answering);
  }

  Transport* world_;
  failure<Transport> failure_;
  claim claim_;
  plan plan_;
  model_memory<typename Transport::queue_type> model_;
  std::atomic<const char*> due_call_{"average()"};
  post_box posts_;  ///< tensors that became ready
  std::atomic<bool> is_started_{false};
  std::atomic<bool> unwritten_{false};  ///< a device still wrote the oldest post's gradient

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
    task (*stop_answering)(engine_base&);
  };
  /// Not inlined: once for all strategies.
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

  template <class Engine>
  static const verbs& of() {
    static constexpr verbs all{
        [](engine_base& its, Transport& world) {
          return tutti::go_round(world, static_cast<Engine&>(its));
        },
        [](engine_base& its) { return static_cast<Engine&>(its).release_waiters(); },
        [](engine_base& its) { return static_cast<Engine&>(its).stuck(); },
        [](engine_base& its, const chunk_step& about, control_message& answer) {
          return static_cast<Engine&>(its).describe(about, answer);
        },
        [](engine_base& its, int rank) { return static_cast<Engine&>(its).listens_to_all(rank); },
        [](engine_base& its, int peer, std::span<const std::byte> words) {
          return static_cast<Engine&>(its).hear(peer, words);
        },
        [](engine_base& its, message_type&& asked) {
          return static_cast<Engine&>(its).serve_chunk(std::move(asked));
        },
        [](engine_base& its, std::span<const std::byte> bytes) {
          return static_cast<Engine&>(its).take_values(bytes);
        },
        [](engine_base& its) { return static_cast<Engine&>(its).undo_step(); },
        [](engine_base& its) { return static_cast<Engine&>(its).remembered(); },
        [](engine_base& its, std::uint64_t steps) {
          return static_cast<Engine&>(its).resume_architecture(steps);
        },
        [](engine_base& its, int worker, service what) {
          return static_cast<Engine&>(its).converse(worker, what);
        },
        [](engine_base& its, int worker) { return static_cast<Engine&>(its).worker_left(worker); },
        [](engine_base& its) { return static_cast<Engine&>(its).counted_pushes(); },
        [](engine_base& its) { return static_cast<Engine&>(its).begun(); },
        [](engine_base& its) { return static_cast<Engine&>(its).finish_gradients(); },
        [](engine_base& its) { return static_cast<Engine&>(its).finish_architecture(); },
        [](engine_base& its) { return static_cast<Engine&>(its).stop_answering(); },
    };
    return all;
  }

  const verbs* verbs_;
  std::size_t words_ = 0;  // the loop's owner counts them
};

}  // namespace tutti
