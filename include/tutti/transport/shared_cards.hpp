#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <new>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "tutti/base/error.hpp"
#include "tutti/base/units.hpp"

namespace tutti::transport::detail {

/// When one direction of a network card is free again. Processes that share the card may ask at
/// once: nobody waits, and each has its turn.
class turns {
 public:
  /// Takes the next turn, `duration` long and not before `earliest`. Answers when it begins.
  seconds take(seconds earliest, seconds duration) {
    seconds free = free_.load(std::memory_order_relaxed);
    seconds begin = 0;
    do {
      begin = std::max(earliest, free);
    } while (!free_.compare_exchange_weak(free, begin + duration, std::memory_order_relaxed));
    return begin;
  }

 private:
  // A lock would not reach other processes.
  static_assert(std::atomic<seconds>::is_always_lock_free);
  std::atomic<seconds> free_{0};
};

/// A network card; it has a cache line to itself.
struct alignas(64) shared_card {
  turns egress{};
  turns ingress{};
};

/// The network cards of a job in memory that the processes of this host share. It has a name until
/// all have found it, and lives until the last lets it go.
class shared_cards {
 public:
  using name = std::array<char, 48>;

  shared_cards() = default;
  /// Makes them under a new name.
  static shared_cards make(std::size_t count) {
    static std::atomic<unsigned> made{0};
    name fresh{};
    const std::string words =
        "/tutti-cards-" + std::to_string(::getpid()) + "-" + std::to_string(made.fetch_add(1));
    words.copy(fresh.data(), fresh.size() - 1);
    shared_cards all(fresh, count, O_RDWR | O_CREAT | O_EXCL);
    std::uninitialized_default_construct_n(all.cards_, count);
    return all;
  }
  /// Finds what another process of this host has made.
  static shared_cards find(const name& known, std::size_t count) {
    return shared_cards(known, count, O_RDWR);
  }

  shared_cards(shared_cards&& other) noexcept
      : name_(other.name_), count_(other.count_), cards_(std::exchange(other.cards_, nullptr)) {}
  shared_cards& operator=(shared_cards&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(count_, other.count_);
    std::swap(cards_, other.cards_);
    return *this;
  }
  ~shared_cards() {
    if (cards_ != nullptr) {
      ::munmap(cards_, bytes());
    }
  }

  const name& known_as() const { return name_; }
  /// Nobody else can find them from now on.
  void hide() const { ::shm_unlink(name_.data()); }
  shared_card& operator[](std::size_t index) { return cards_[index]; }

 private:
  shared_cards(const name& known, std::size_t count, int how) : name_(known), count_(count) {
    const int file = ::shm_open(name_.data(), how, 0600);
    if (file < 0) {
      throw usage_error("this process finds no memory to share with the other ranks: " + reason() +
                        ". Fix: run all ranks on one host that has /dev/shm");
    }
    const bool sized = (how & O_CREAT) == 0 || ::ftruncate(file, static_cast<off_t>(bytes())) == 0;
    void* page =
        sized ? ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    ::close(file);
    if (page == MAP_FAILED) {
      throw usage_error("no memory to share between processes: " + reason() +
                        ". Fix: make /dev/shm larger");
    }
    cards_ = static_cast<shared_card*>(page);
  }

  static std::string reason() { return std::strerror(errno); }
  std::size_t bytes() const { return count_ * sizeof(shared_card); }

  name name_{};
  std::size_t count_ = 0;
  shared_card* cards_ = nullptr;
};

}  // namespace tutti::transport::detail
