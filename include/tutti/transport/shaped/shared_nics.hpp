#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "tutti/base/error.hpp"
#include "tutti/base/units.hpp"

namespace tutti::transport::detail {

/// When one direction of a NIC is free again. Processes that share the NIC may ask concurrently: no
/// one waits, and each gets a turn.
class nic_direction {
 public:
  /// Takes the next turn, `duration` long and not before `earliest`. Returns when it begins.
  seconds take(seconds earliest, seconds duration) {
    seconds free = free_.load(std::memory_order_relaxed);
    seconds begin = 0;
    do {
      begin = std::max(earliest, free);
    } while (!free_.compare_exchange_weak(free, begin + duration, std::memory_order_relaxed));
    return begin;
  }

 private:
  // Other processes would not see the lock of an atomic that needs one.
  static_assert(std::atomic<seconds>::is_always_lock_free);
  std::atomic<seconds> free_{0};
};

/// One NIC, in a cache line of its own.
struct alignas(64) shared_nic {
  static constexpr seconds never = std::numeric_limits<seconds>::infinity();

  nic_direction egress{};
  nic_direction ingress{};
  /// Since when the rank's process is idle; kept in the NIC that the rank has inside its host.
  std::atomic<seconds> idle_since{never};
};

/// The NICs of a job, in memory that the processes of this host share. The memory has a name until
/// all have found it, and lives until the last process releases it.
class shared_nics {
 public:
  using name = std::array<char, 48>;

  shared_nics() = default;
  /// Makes `count` NICs under a new name.
  static shared_nics make(std::size_t count) {
    static std::atomic<unsigned> made{0};
    name fresh{};
    const std::string words =
        "/tutti-nics-" + std::to_string(::getpid()) + "-" + std::to_string(made.fetch_add(1));
    words.copy(fresh.data(), fresh.size() - 1);
    shared_nics all(fresh, count, O_RDWR | O_CREAT | O_EXCL);
    std::uninitialized_default_construct_n(all.nics_, count);
    return all;
  }
  /// Finds the NICs that rank 0 has made.
  static shared_nics find(const name& known, std::size_t count) {
    return shared_nics(known, count, O_RDWR);
  }

  shared_nics(shared_nics&& other) noexcept
      : name_(other.name_), count_(other.count_), nics_(std::exchange(other.nics_, nullptr)) {}
  shared_nics& operator=(shared_nics&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(count_, other.count_);
    std::swap(nics_, other.nics_);
    return *this;
  }
  ~shared_nics() {
    if (nics_ != nullptr) {
      ::munmap(nics_, bytes());
    }
  }

  const name& known_as() const { return name_; }
  /// Removes the name, so that no process can find the NICs any more.
  void hide() const { ::shm_unlink(name_.data()); }
  shared_nic& operator[](std::size_t index) { return nics_[index]; }

 private:
  shared_nics(const name& known, std::size_t count, int how) : name_(known), count_(count) {
    const int file = ::shm_open(name_.data(), how, 0600);
    if (file < 0) {
      throw usage_error("this process cannot open the memory that the ranks share: " + reason() +
                        ". Fix: run all ranks on one host that has /dev/shm");
    }
    const bool sized = (how & O_CREAT) == 0 || ::ftruncate(file, static_cast<off_t>(bytes())) == 0;
    void* page =
        sized ? ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    ::close(file);
    if (page == MAP_FAILED) {
      throw usage_error("processes cannot share memory: " + reason() +
                        ". Fix: make /dev/shm larger");
    }
    nics_ = static_cast<shared_nic*>(page);
  }

  static std::string reason() { return std::strerror(errno); }
  std::size_t bytes() const { return count_ * sizeof(shared_nic); }

  name name_{};
  std::size_t count_ = 0;
  shared_nic* nics_ = nullptr;
};

}  // namespace tutti::transport::detail
