#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace tutti::transport::detail {

/// Memory for messages that cannot be received where they belong, by size: powers of two from 64
/// bytes. What was given back is taken again, the last one first for it is warm, and freed at the
/// end; after the first step nothing is allocated.
class staging {
 public:
  staging() = default;
  staging(const staging&) = delete;
  staging& operator=(const staging&) = delete;
  ~staging() {
    for (std::byte* each : all_) {
      ::operator delete(each, alignment);
    }
  }

  std::byte* take(std::size_t bytes) {
    const std::size_t size_class = class_of(bytes);
    block*& free = free_[size_class];
    if (free != nullptr) {
      return reinterpret_cast<std::byte*>(std::exchange(free, free->next));
    }
    auto* fresh =
        static_cast<std::byte*>(::operator new (std::size_t{64} << size_class, alignment));
    all_.push_back(fresh);
    return fresh;
  }

  /// `bytes` as it was asked for.
  void give(std::byte* taken, std::size_t bytes) {
    block*& free = free_[class_of(bytes)];
    free = ::new (static_cast<void*>(taken)) block{free};
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct block {
    block* next;
  };

  static std::size_t class_of(std::size_t bytes) {
    return bytes <= 64 ? 0 : static_cast<std::size_t>(std::bit_width((bytes - 1) >> 6));
  }

  std::array<block*, 64> free_{};
  std::vector<std::byte*> all_;
};

}  // namespace tutti::transport::detail
