#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tutti/base/units.hpp"
#include "tutti/kernels/widest.hpp"

namespace bench {

/// A bound that no all-reduce in shared memory can beat by much: every thread adds its part of all
/// inputs in one pass and writes it to all outputs, with a barrier before and after. Written by
/// hand, for floats.
class one_pass {
 public:
  explicit one_pass(std::span<float* const> buffers, std::size_t elements)
      : buffers_(buffers.begin(), buffers.end()),
        elements_(elements),
        crowded_(buffers.size() > std::thread::hardware_concurrency()),
        flags_(std::make_unique<flag[]>(buffers.size())) {}

  void operator()(int rank, std::size_t calls) {
    const auto mine = static_cast<std::size_t>(rank);
    const std::size_t begin = tutti::part_begin(elements_, buffers_.size(), mine);
    const std::size_t end = tutti::part_begin(elements_, buffers_.size(), mine + 1);
    for (std::size_t call = 0; call < calls; ++call) {
      barrier(mine);
      add(begin, end);
      barrier(mine);
    }
  }

 private:
  struct alignas(128) flag {
    std::atomic<std::uint64_t> arrived{0};
  };

  void barrier(std::size_t mine) {
    const std::uint64_t now = flags_[mine].arrived.load(std::memory_order_relaxed) + 1;
    flags_[mine].arrived.store(now, std::memory_order_release);
    for (std::size_t peer = 0; peer < buffers_.size(); ++peer) {
      while (flags_[peer].arrived.load(std::memory_order_acquire) < now) {
        if (crowded_) {
          std::this_thread::yield();
        }
      }
    }
  }

  void add(std::size_t begin, std::size_t end) const {
    switch (buffers_.size()) {
      case 2: {
        const std::size_t aligned = std::min(end, begin + to_line_begin(buffers_[0] + begin));
        add_two(buffers_[0] + begin, buffers_[1] + begin, aligned - begin);
        return add_two(buffers_[0] + aligned, buffers_[1] + aligned, end - aligned);
      }
      case 3:
        return add_as_many<3>(begin, end);
      case 4:
        return add_as_many<4>(begin, end);
      default:
        throw std::logic_error("the bound is written for 2, 3 and 4 ranks");
    }
  }

  /// Returns the elements before the next cache line. Vectors that span two cache lines cost a
  /// quarter of the speed.
  static std::size_t to_line_begin(const float* from) {
    return (16 - reinterpret_cast<std::uintptr_t>(from) / sizeof(float) % 16) % 16;
  }

  static void add_two(float* __restrict one, float* __restrict other, std::size_t n) {
    tutti::kernels::widest([=] {
      for (std::size_t i = 0; i < n; ++i) {
        const float sum = one[i] + other[i];
        one[i] = sum;
        other[i] = sum;
      }
    });
  }

  template <std::size_t Ranks>
  void add_as_many(std::size_t begin, std::size_t end) const {
    std::array<float*, Ranks> all;
    for (std::size_t rank = 0; rank < Ranks; ++rank) {
      all[rank] = buffers_[rank] + begin;
    }
    tutti::kernels::widest([all, n = end - begin] {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
      for (std::size_t i = 0; i < n; ++i) {
        float sum = all[0][i];
        for (std::size_t rank = 1; rank < Ranks; ++rank) {
          sum += all[rank][i];
        }
        for (std::size_t rank = 0; rank < Ranks; ++rank) {
          all[rank][i] = sum;
        }
      }
    });
  }

  std::vector<float*> buffers_;
  std::size_t elements_;
  bool crowded_;
  std::unique_ptr<flag[]> flags_;
};

}  // namespace bench
