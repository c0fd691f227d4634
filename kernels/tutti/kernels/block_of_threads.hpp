#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "tutti/base/host_device.hpp"

/// What a kernel may ask of a block of threads. A `Block` calls a function for each of its threads
/// (`each`) or warps (`each_warp`), and lets none of them go on before all are done; a warp does
/// the same with its lanes. So a host can stand in for a block, and the same code is tested without
/// a device.
namespace tutti::kernels::steps {

inline constexpr std::uint32_t lanes = 32;
inline constexpr std::uint32_t warps = 16;
inline constexpr std::uint32_t threads = warps * lanes;

/// Adds `count` to *to, and returns what was there before.
TUTTI_HD inline std::uint32_t add_atomically(std::uint32_t* to, std::uint32_t count) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(to, count);
#else
  const std::uint32_t before = *to;
  *to += count;
  return before;
#endif
}

TUTTI_HD inline std::uint32_t count_bits(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__popc(word));
#else
  return static_cast<std::uint32_t>(std::popcount(word));
#endif
}

/// Calls `f(number of the bit)` for every bit that is set, the lowest first.
template <class F>
TUTTI_HD void for_each_bit(std::uint32_t word, const F& f) {
  for (; word != 0; word &= word - 1) {
#if defined(__CUDA_ARCH__)
    f(static_cast<std::uint32_t>(__ffs(static_cast<int>(word)) - 1));
#else
    f(static_cast<std::uint32_t>(std::countr_zero(word)));
#endif
  }
}

/// A host that stands in for a block, and runs one thread after another.
struct host_block {
  struct warp {
    /// What each lane keeps from one call to the next.
    template <class T>
    using of_lanes = std::array<T, lanes>;

    template <class F>
    void each(const F& f) const {
      for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        f(lane);
      }
    }
  };
  std::uint32_t number;
  std::uint32_t count;

  template <class F>
  void each(const F& f) const {
    for (std::uint32_t thread = 0; thread < threads; ++thread) {
      f(thread);
    }
  }
  template <class F>
  void each_warp(const F& f) const {
    for (std::uint32_t number_of_warp = 0; number_of_warp < warps; ++number_of_warp) {
      f(warp{}, number_of_warp);
    }
  }
};

}  // namespace tutti::kernels::steps
