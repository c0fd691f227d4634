#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <span>
#include <vector>

#include "tutti/base/gate.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/startup.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Adds up the `sums` of the workers' monitors, one step after the other, beside the launches. Rank
/// 0 adds in rank order and sends the totals to the others.
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
    adding_ = add(endpoint<Transport>(*world_, where), workers, failed, context);
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
    pending_.insert(pending_.end(), mine.begin(), mine.end());
    widths_.push_back(mine.size());
    ++steps_;
    std::fill(mine.begin(), mine.end(), 0.0);
    news_.open();
  }

  /// Returns whether the totals of every step that has ended here have come. For any thread.
  bool are_there() const {
    const std::scoped_lock lock(*mutex_);
    return steps_ == summed_;
  }
  /// What has been sent for the sums.
  traffic counted() const { return counted_.read(); }

  bool at_rest() const { return adding_.done(); }
  /// Ends when the totals of the last step have come.
  task finish() {
    closing_ = true;
    news_.open();
    co_await adding_;
  }
  /// Stops: no more totals come, not even those under way.
  void stop() {
    stopped_ = true;
    news_.open();
  }

 private:
  task add(endpoint<Transport> self, int workers, void (*failed)(void*, std::exception_ptr),
           void* context) {
    gate& news = news_;
    std::vector<double> values;
    try {
      while (!stopped_) {
        if (!take(values)) {
          if (closing_) {
            break;
          }
          co_await news;
          continue;
        }
        if (self.rank() == 0) {
          co_await add_all(self, workers, values);
        } else {
          count(values);
          co_await self.send(0, std::as_bytes(std::span(values)));
          co_await receive_now(self, 0, std::as_writable_bytes(std::span(values)));
        }
        const std::scoped_lock lock(*mutex_);
        ++summed_;
        monitor_->summed(std::span<const double>(values));
      }
    } catch (...) {
      failed(context, std::current_exception());
    }
  }

  task add_all(endpoint<Transport> self, int workers, std::span<double> values) {
    for (int rank = 1; rank < workers; ++rank) {
      const auto mail = co_await self.receive_loan(rank, values.size_bytes());
      for (std::size_t i = 0; i < values.size(); ++i) {
        double theirs = 0;
        std::memcpy(&theirs, mail.bytes().data() + i * sizeof theirs, sizeof theirs);
        values[i] += theirs;
      }
    }
    for (int rank = 1; rank < workers; ++rank) {
      count(values);
      co_await self.send(rank, std::as_bytes(values));
    }
  }
  void count(std::span<const double> values) { counted_.add(values.size_bytes()); }

  /// Takes the sums of the oldest step, if there are any.
  bool take(std::vector<double>& values) {
    const std::scoped_lock lock(*mutex_);
    if (taken_ == steps_) {
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
  bool closing_ = false;
  bool stopped_ = false;
  task adding_{};
};

/// Takes the place of step_sums for a monitor that adds up nothing.
struct no_sums {
  no_sums(auto&, auto&, std::mutex&) {}
};

}  // namespace tutti
