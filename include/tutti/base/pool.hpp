#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "tutti/base/error.hpp"

namespace tutti {

/// A pool of objects that are expensive to make, such as CUDA events, for use by any thread. A
/// holder shares an object by copying its handle, and the last holder's handle returns it to the
/// pool.
///
/// After the first rounds no object is made, and neither taking nor returning one takes a lock. A
/// pool must outlive its handles. Cost: one atomic exchange to take an object, one to return it.
template <class Thing>
class pool {
  struct slot {
    Thing thing{};
    pool* home{};
    std::uint32_t number{};              // from 1 on
    std::atomic<std::uint32_t> next{0};  // in the list of free slots; 0 at its end
    std::atomic<std::uint32_t> holders{0};
  };

 public:
  /// Shared ownership of one object, or of none.
  class handle {
   public:
    handle() = default;
    handle(const handle& other) : held_(other.held_) {
      if (held_ != nullptr) {
        held_->holders.fetch_add(1, std::memory_order_relaxed);
      }
    }
    handle(handle&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
    handle& operator=(handle other) noexcept {
      std::swap(held_, other.held_);
      return *this;
    }
    ~handle() {
      if (held_ != nullptr && held_->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        held_->home->give(*held_);
      }
    }

    explicit operator bool() const { return held_ != nullptr; }
    const Thing& operator*() const { return held_->thing; }

   private:
    friend pool;
    explicit handle(slot& taken) : held_(&taken) { held_->holders.store(1); }

    slot* held_ = nullptr;
  };

  pool() = default;
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;
  ~pool() {
    for (auto& each : blocks_) {
      delete each.load();
    }
  }

  /// Takes a free object. If there is none, adds the one that `make()` returns.
  template <class Make>
  handle take(Make make) {
    std::uint64_t head = free_.load(std::memory_order_acquire);
    while (number_in(head) != 0) {
      slot& first = at(number_in(head));
      const std::uint32_t next = first.next.load(std::memory_order_relaxed);
      if (free_.compare_exchange_weak(head, replaced(head, next), std::memory_order_acquire)) {
        return handle(first);
      }
    }
    return add(make());
  }

  /// The number of objects made so far.
  std::size_t made() const { return made_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t block_size = 64;
  using block = std::array<slot, block_size>;

  // The head of the list of free slots: a slot's number in the low 32 bits and a count of changes
  // above it. Without the count, a thread whose head was taken and returned while it slept would
  // mistake the new head for the old one.
  static std::uint32_t number_in(std::uint64_t head) { return static_cast<std::uint32_t>(head); }
  static std::uint64_t replaced(std::uint64_t head, std::uint32_t number) {
    return ((head >> 32) + 1) << 32 | number;
  }
  slot& at(std::uint32_t number) {
    block* found = blocks_[(number - 1) / block_size].load(std::memory_order_acquire);
    return (*found)[(number - 1) % block_size];
  }

  void give(slot& unused) {
    std::uint64_t head = free_.load(std::memory_order_relaxed);
    do {
      unused.next.store(number_in(head), std::memory_order_relaxed);
    } while (!free_.compare_exchange_weak(head, replaced(head, unused.number),
                                          std::memory_order_release, std::memory_order_relaxed));
  }

  handle add(Thing fresh) {
    const std::scoped_lock lock(growing_);
    const std::size_t place = made_.load(std::memory_order_relaxed);
    if (place / block_size >= blocks_.size()) {
      throw error(
          "too many events of queues are held at once. Fix: release those that nobody waits for "
          "any more");
    }
    auto& room = blocks_[place / block_size];
    if (room.load(std::memory_order_relaxed) == nullptr) {
      room.store(new block, std::memory_order_release);
    }
    made_.store(place + 1, std::memory_order_relaxed);
    slot& added = at(static_cast<std::uint32_t>(place + 1));
    added.thing = std::move(fresh);
    added.home = this;
    added.number = static_cast<std::uint32_t>(place + 1);
    return handle(added);
  }

  std::atomic<std::uint64_t> free_{0};
  std::atomic<std::size_t> made_{0};
  std::mutex growing_;
  std::array<std::atomic<block*>, 4096> blocks_{};
};

}  // namespace tutti
