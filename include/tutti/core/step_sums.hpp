#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
/// later steps come, of which an empty message tells.
/// Cost: a message from each worker to rank 0 and back in each step, for which no launch waits.
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

  /// Replaces values by their totals. A worker that ends has no values, so that every worker's are
  /// cleared. It waits for an answer, too: it must not be in another engine while rank 0 receives
  /// from any rank.
  task ask(endpoint<Transport> self, std::vector<double>& values) {
    count(values);
    co_await self.send(0, std::as_bytes(std::span(values)));
    const auto mail = co_await self.receive_loan(0, values.size() * sizeof(double));
    values.resize(mail.bytes().size() / sizeof(double));
    std::ranges::copy(mail.bytes(), std::as_writable_bytes(std::span(values)).begin());
  }
  /// Rank 0's part of the same.
  task add_all(endpoint<Transport> self, int workers, std::vector<double>& values) {
    const std::size_t width = values.size();
    bool all = width != 0;
    for (int rank = 1; rank < workers && width != 0; ++rank) {
      const auto mail = co_await self.receive_loan(rank, width * sizeof(double));
      all &= add(values, rank, mail.bytes());
    }
    for (int left = width == 0 ? workers - 1 : 0; left != 0;) {
      const auto mail = co_await world_->receive_any(channel::host);  // of a length not known here
      left -= mail.where() == self.where() ? 1 : 0;
    }
    values.resize(all ? width : 0);
    for (int rank = 1; rank < workers; ++rank) {
      count(values);
      co_await self.send(rank, std::as_bytes(std::span(values)));
    }
  }
  /// Returns false if there is nothing to add.
  static bool add(std::span<double> values, int rank, std::span<const std::byte> theirs) {
    if (!theirs.empty() && theirs.size() != values.size_bytes()) {
      throw communication_error(sentence(
          {"rank 0's monitor sums ", values.size(), " numbers in a step and rank ", rank, "'s ",
           theirs.size() / sizeof(double), ". Fix: make it with the same values on every rank"}));
    }
    for (std::size_t i = 0; i * sizeof(double) < theirs.size(); ++i) {
      double each = 0;
      std::memcpy(&each, theirs.data() + i * sizeof each, sizeof each);
      values[i] += each;
    }
    return !theirs.empty();
  }
  void count(std::span<const double> values) { counted_.add(values.size_bytes()); }

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
