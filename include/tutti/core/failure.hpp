#pragma once

#include <atomic>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/base/error.hpp"
#include "tutti/base/predicate.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/claim.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Whether and why a rank's part has ended. Only the loop's owner ends it, once; any thread may
/// ask.
template <class Transport>
class failure {
 public:
  enum class audience { nobody, everybody };

  explicit failure(Transport& world) : world_(&world) {}
  failure(const failure&) = delete;
  failure& operator=(const failure&) = delete;

  bool happened() const { return happened_.load(std::memory_order_acquire); }
  void rethrow() const {
    if (happened()) {
      note_told();
      tutti::detail::rethrow(why_);
    }
  }
  /// Notes that the user knows of the failure.
  void note_told() const { is_told_.store(true, std::memory_order_relaxed); }
  /// Returns what this rank itself has ended with, if the user has not been told; null if it has
  /// not ended, or has heard of a failure of which every rank hears.
  std::exception_ptr untold() const {
    return happened() && is_own_ && !is_told_.load(std::memory_order_relaxed) ? why_ : nullptr;
  }
  std::string words() const { return why_ ? what(why_) : "a peer does not answer"; }

  /// Ends this rank's part in the transport, and that of every other rank if `who` is everybody.
  /// Returns false if it had ended already.
  [[gnu::cold]] bool end(std::exception_ptr why, audience who) {
    if (happened()) {
      return false;
    }
    why_ = why;
    is_own_ = who == audience::everybody;
    happened_.store(true, std::memory_order_release);
    try {
      if (who == audience::everybody) {
        world_->abort(verdict_of(world_->rank(), why));
      }
      world_->fail(std::move(why));
    } catch (...) {
    }  // its device has failed, too
    return true;
  }

  /// Returns whether an exception that was thrown after this object was made is unwinding the
  /// stack.
  bool unwinds() const { return std::uncaught_exceptions() > exceptions_at_birth_; }

  /// Returns the sentence that other ranks must hear when this rank ends now, because they wait for
  /// it; empty if none does. `outstanding` says whether some gradient of this rank is in flight,
  /// `answers` whether others may ask this rank until all have ended.
  [[gnu::cold]] std::string last_words(predicate outstanding, predicate answers) {
    if (happened()) {
      return {};
    }
    const bool unwinds = this->unwinds();
    const auto left = [this](std::string_view how) {
      return sentence({"rank ", world_->rank(), " left ", how});
    };
    if (outstanding() || (unwinds && !stream_has_come())) {
      return left(unwinds ? "by an exception while its gradients were still on their way"
                          : "while its gradients were still on their way");
    }
    if (!unwinds) {
      return {};
    }
    if constexpr (requires { world_->ends_by_exception(); }) {
      if (!answers() && world_->ends_by_exception()) {
        return {};  // whoever catches the exception ends the ranks with its words
      }
    }
    return left("by an exception");
  }

 private:
  /// Returns whether the stream has done what this rank has enqueued. False if its device has
  /// failed.
  bool stream_has_come() {
    if constexpr (is_stream_ordered<Transport>) {
      try {
        auto& queue = world_->queue();
        return queue.passed(queue.record());
      } catch (...) {
        return false;
      }
    } else {
      return true;
    }
  }

  Transport* world_;
  int exceptions_at_birth_ = std::uncaught_exceptions();
  std::atomic<bool> happened_{false};
  std::exception_ptr why_{};
  bool is_own_ = false;
  mutable std::atomic<bool> is_told_{false};
};

namespace detail {

/// Handles an exception that has ended the making of an engine: tells every rank of it through the
/// transport, which this rank then leaves. If every rank has thrown the same `disagreement`, or the
/// job has one rank only, or another engine has claimed this rank, tells nobody and does not leave.
template <class Transport>
[[gnu::cold, gnu::noinline]] void tell_of_failed_start(Transport& world) {
  try {
    throw;
  } catch (const disagreement&) {  // every rank has thrown it
    return;
  } catch (const communication_error&) {  // every rank has thrown it
  } catch (...) {
    if (world.size() == 1 || claim::is_made(world.ready_coroutines(), world.rank())) {
      return;  // the engine that holds the claim goes on training
    }
    world.abort(verdict_of(world.rank(), std::current_exception()));
  }
  leave(world);
}

}  // namespace detail

}  // namespace tutti
