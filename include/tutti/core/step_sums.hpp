#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/gate.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/startup.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Adds up the `sums` of the workers' monitors, one step after the other, beside the launches. Rank
/// 0 adds in rank order and sends the totals to the others. Once a worker has ended, no totals of
/// later steps come.
/// Wire: in each step, from each worker to rank 0, the count of its numbers and, if there are any,
/// the numbers; and back the totals behind a number that says whether they are those of all.
/// Cost: no launch waits for these messages.
template <class Monitor, class Transport>
class step_sums {
 public:
  /// `mutex` protects the monitor.
  step_sums(Transport& world, Monitor& monitor, std::mutex& mutex)
      : world_(&world), monitor_(&monitor), mutex_(&mutex), news_(world.ready_coroutines()) {}
  step_sums(const step_sums&) = delete;
  step_sums& operator=(const step_sums&) = delete;

  /// Begins, for a model of so many tensors. `failed(context, why)` receives the exception that
  /// ends the sums, if there is one.
  void begin(tag where, int workers, std::size_t tensors, void (*failed)(void*, std::exception_ptr),
             void* context) {
    arrived_.assign(tensors, 0);
    left_ = tensors;
    adding_ = run(endpoint<Transport>(*world_, where), workers, failed, context);
    adding_.start(world_->ready_coroutines());
  }

  /// Notes that a tensor has arrived. The caller must hold the monitor's mutex.
  void arrived(std::uint32_t tensor) {
    if (arrived_[tensor]++ != ended_ || --left_ != 0) {
      return;
    }
    ++ended_;
    left_ = static_cast<std::size_t>(std::count(arrived_.begin(), arrived_.end(), ended_));
    const std::span<double> mine = monitor_->sums();
    if (mine.empty()) {
      return;
    }
    if (!over_) {
      pending_.insert(pending_.end(), mine.begin(), mine.end());
      widths_.push_back(mine.size());
      ++steps_;
    }
    std::fill(mine.begin(), mine.end(), 0.0);
    news_.open();
  }

  /// Returns whether every total that can come of the steps that have ended here has come. For any
  /// thread.
  bool are_there() const {
    const std::scoped_lock lock(*mutex_);
    return over_ || steps_ == summed_;
  }
  /// What has been sent for the sums.
  traffic counted() const { return counted_.read(); }

  bool at_rest() const { return adding_.done(); }
  /// Says that no step follows: tells the others so, once the totals of the last step have come.
  void end() {
    closing_ = true;
    news_.open();
  }
  /// Ends when no other worker waits for this one's sums any more.
  task finish() { co_await adding_; }
  /// Stops: no more totals come, not even those under way.
  void stop() {
    stopped_ = true;
    news_.open();
  }

 private:
  task run(endpoint<Transport> self, int workers, void (*failed)(void*, std::exception_ptr),
           void* context) {
    gate& news = news_;
    std::vector<double> values;
    try {
      for (bool goes_on = true; goes_on && !stopped_;) {
        if (!take(values) && !closing_) {
          co_await news;
          continue;
        }
        if (self.rank() == 0) {
          co_await add_all(self, workers, values);
        } else {
          co_await ask(self, values);
        }
        const std::scoped_lock lock(*mutex_);
        goes_on = !values.empty();
        if (goes_on) {
          ++summed_;
          monitor_->summed(std::span<const double>(values));
        } else {
          over_ = true;
        }
      }
    } catch (...) {
      failed(context, std::current_exception());
    }
  }

  /// Replaces values by their totals. A worker that has ended has no values, whereupon every
  /// worker's are cleared.
  task ask(endpoint<Transport> self, std::vector<double>& values) {
    std::uint64_t width = values.size();
    co_await send(self, 0, bytes_of(width));
    if (width != 0) {
      co_await send(self, 0, std::as_bytes(std::span(values)));
    }
    answer_.resize(1 + width);
    co_await receive_now(self, 0, std::as_writable_bytes(std::span(answer_)));
    values.assign(answer_.begin() + 1, answer_[0] != 0 ? answer_.end() : answer_.begin() + 1);
  }
  /// Rank 0's part of the same.
  task add_all(endpoint<Transport> self, int workers, std::vector<double>& values) {
    their_widths_.assign(static_cast<std::size_t>(workers), 0);
    for (int rank = 1; rank < workers; ++rank) {
      std::uint64_t& width = their_widths_[static_cast<std::size_t>(rank)];
      co_await receive_now(self, rank, bytes_of(width));
      theirs_.resize(width);
      if (width != 0) {
        co_await receive_now(self, rank, std::as_writable_bytes(std::span(theirs_)));
      }
      add(values, rank, theirs_);
    }
    for (int rank = 1; rank < workers; ++rank) {
      answer_.assign(1 + their_widths_[static_cast<std::size_t>(rank)], 0);
      if (!values.empty()) {
        answer_[0] = 1;
        std::ranges::copy(values, answer_.begin() + 1);
      }
      co_await send(self, rank, std::as_bytes(std::span(answer_)));
    }
  }
  /// Adds what a rank sums in this step. Clears `values` if one of both has ended.
  static void add(std::vector<double>& values, int rank, std::span<const double> theirs) {
    if (values.empty() || theirs.empty()) {
      values.clear();
      return;
    }
    if (theirs.size() != values.size()) {
      throw communication_error(
          sentence({"rank 0's monitor sums ", values.size(), " numbers in a step and rank ", rank,
                    "'s ", theirs.size(), ". Fix: make it with the same values on every rank"}));
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] += theirs[i];
    }
  }
  auto send(endpoint<Transport>& self, int peer, std::span<const std::byte> bytes) {
    counted_.add(bytes.size());
    return self.send(peer, bytes);
  }

  /// Takes the sums of the oldest step, if there are any.
  bool take(std::vector<double>& values) {
    const std::scoped_lock lock(*mutex_);
    if (taken_ == steps_) {
      values.clear();
      return false;
    }
    ++taken_;
    const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(widths_.front());
    values.assign(pending_.begin(), end);
    pending_.erase(pending_.begin(), end);
    widths_.erase(widths_.begin());
    return true;
  }

  Transport* world_;
  Monitor* monitor_;
  std::mutex* mutex_;
  gate news_;
  std::vector<std::uint64_t> arrived_{};  ///< steps that each tensor has ended
  std::uint64_t ended_ = 0;               ///< steps that every tensor has ended
  std::size_t left_ = 0;                  ///< tensors that have not ended the next step
  std::vector<double> pending_{};         ///< sums of steps that have ended, one after the other
  std::vector<std::size_t> widths_{};     ///< how many of these belong to each step
  std::uint64_t steps_ = 0;               ///< steps that have ended with something to add
  std::uint64_t taken_ = 0;
  std::uint64_t summed_ = 0;
  std::vector<double> theirs_{};               ///< what one rank sums, on rank 0
  std::vector<std::uint64_t> their_widths_{};  ///< how many numbers each rank sums, on rank 0
  std::vector<double> answer_{};               ///< of rank 0
  traffic_counter counted_{};
  bool over_ = false;  ///< no more totals come, because a worker has ended
  bool closing_ = false;
  bool stopped_ = false;
  task adding_{};
};

/// Takes the place of step_sums for a monitor that adds up nothing.
struct no_sums {
  no_sums(auto&, auto&, std::mutex&) {}
};

}  // namespace tutti
