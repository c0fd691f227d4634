#pragma once

#include <cstddef>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/elements.hpp"
#if defined(__CUDACC__)  // who compiles this for a host has brought a launcher
#include "tutti/kernels/cuda/launcher.cuh"
#endif

namespace tutti::kernels::device {

/// Calls `f(arrays[i]...)` for every i in [0, n), on registers that are loaded from the arrays and
/// stored where those may be written. Sixteen bytes at a time where all arrays allow it.
template <class F, class... Arrays>
void each(cuda::stream& queue, std::size_t n, const F& f, Arrays... arrays) {
  if (n == 0) {
    return;
  }
  constexpr int width = pack_width<Arrays...>();
  if (aligned_for<width>(arrays...)) {
    share_out<width>(queue, n, f, arrays...);
  } else {
    share_out<1>(queue, n, f, arrays...);
  }
}

/// Calls `f.pack<Width>(i)` for every pack of neighbours in [0, n), as wide as those allow whose
/// elements it loads together.
template <class F, class... Arrays>
void each_pack(cuda::stream& queue, std::size_t n, const F& f, Arrays... arrays) {
  if (n % 4 == 0 && aligned_for<4>(arrays...)) {
    for_each(queue, n / 4, in_packs<4, F>{f});
  } else {
    for_each(queue, n, in_packs<1, F>{f});
  }
}

}  // namespace tutti::kernels::device
