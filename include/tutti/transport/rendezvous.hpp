#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "tutti/base/assert.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/transport/operation.hpp"

/// A rendezvous: ranks that reach one memory (threads, or processes of a host) show each other a
/// few bytes.
namespace tutti::transport::detail {

/// The bytes that one rank shows, in a cache line of its own.
struct alignas(64) rendezvous_line {
  std::atomic<std::uint64_t> generation{0};
  std::array<std::byte, 56> bytes{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The lines through which ranks show each other bytes, round after round. Each rank has two lines,
/// used in turns: the next round may begin while slow ranks still read this one, and the round
/// after that begins only when all ranks have left this one.
class rendezvous {
 public:
  /// How many lines one rendezvous takes.
  static std::size_t lines(int ranks) { return 2 * static_cast<std::size_t>(ranks); }

  rendezvous(rendezvous_line* first, int ranks) : first_(first), ranks_(ranks) {}

  rendezvous_line& line(std::uint64_t generation, int rank) const {
    return first_[(generation & 1) * static_cast<std::size_t>(ranks_) +
                  static_cast<std::size_t>(rank)];
  }
  /// Shows `bytes` as this rank's part of its next round. Returns the number of that round.
  std::uint64_t show(int rank, std::span<const std::byte> bytes) const {
    TUTTI_ASSERT(bytes.size() <= sizeof(rendezvous_line::bytes),
                 "a rendezvous shows at most 56 bytes");
    const std::uint64_t generation =
        1 + std::max(line(0, rank).generation.load(std::memory_order_relaxed),
                     line(1, rank).generation.load(std::memory_order_relaxed));
    rendezvous_line& mine = line(generation, rank);
    std::copy(bytes.begin(), bytes.end(), mine.bytes.begin());
    mine.generation.store(generation, std::memory_order_release);
    return generation;
  }
  bool complete(std::uint64_t generation) const {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (line(generation, rank).generation.load(std::memory_order_acquire) < generation) {
        return false;
      }
    }
    return true;
  }

 private:
  rendezvous_line* first_;
  int ranks_;
};

/// What every rank has shown in one round. While a view lives, no rank that fails frees what its
/// bytes point to; so do not keep a view over another await.
template <class Endpoint>
class rendezvous_view {
 public:
  rendezvous_view(Endpoint& self, rendezvous where, std::uint64_t generation)
      : self_(&self), where_(where), generation_(generation) {}
  rendezvous_view(rendezvous_view&& other) noexcept
      : self_(std::exchange(other.self_, nullptr)),
        where_(other.where_),
        generation_(other.generation_) {}
  rendezvous_view& operator=(rendezvous_view&&) = delete;
  ~rendezvous_view() {
    if (self_ != nullptr) {
      self_->look_away();
    }
  }

  /// Valid until this rank's second round from now on this tag.
  const std::byte* of(int rank) const { return where_.line(generation_, rank).bytes.data(); }
  template <class T>
  T shown(int rank) const {
    T value;
    std::memcpy(&value, of(rank), sizeof value);
    return value;
  }

 private:
  Endpoint* self_;
  rendezvous where_;
  std::uint64_t generation_;
};

/// Shows this rank's bytes, and completes with a view when every rank has shown its own.
template <class Endpoint>
class rendezvous_operation : public operation {
 public:
  rendezvous_operation(Endpoint& self, tag where, std::span<const std::byte> bytes)
      : operation(self.ready_coroutines(), 0),
        self_(&self),
        where_(self.rendezvous_on(where)),
        generation_(self.show(where_, bytes)) {}

  /// Looks for a moment before it suspends, if the calling thread has nothing better to do (the
  /// endpoint's `glance`): peers are usually a cache miss away.
  bool await_ready() {
    if (self_->failed()) {
      expect_half();
      self_->park(*this);
      return operation::await_ready();
    }
    const auto all_here = [this] { return complete(); };
    return (all_here() || self_->glance(all_here)) && self_->look();
  }
  void await_suspend(std::coroutine_handle<> waiter) {
    operation::await_suspend(waiter);
    if (!self_->failed()) {
      expect_half();
      self_->wait_for_all(*this);
    }
  }
  rendezvous_view<Endpoint> await_resume() const {
    operation::await_resume();
    return rendezvous_view<Endpoint>(*self_, where_, generation_);
  }

  bool complete() const { return where_.complete(generation_); }

  rendezvous_operation* next{};

 private:
  Endpoint* self_;
  rendezvous where_;
  std::uint64_t generation_;
};

}  // namespace tutti::transport::detail
