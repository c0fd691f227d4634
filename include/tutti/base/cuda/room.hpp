#pragma once

#include <cstddef>
#include <cuda_runtime_api.h>

#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/error.hpp"

namespace tutti::cuda {

/// Memory that the kernels of one stream share, each in its turn, and what they refuse.
///
/// A kernel cannot throw: it writes the element that it refuses, and the stream throws at its next
/// `synchronize`. Cost: 64 KiB of a device a stream, and more where its kernels want more.
class stream_room {
 public:
  static constexpr std::size_t at_first = 64 << 10;
  static constexpr unsigned long long nothing_refused = ~0ULL;

  explicit stream_room(cudaStream_t stream) : memory_(at_first), refused_(1), seen_(1) {
    check(cudaMemsetAsync(refused_.data(), 0xFF, sizeof nothing_refused, stream));
    seen_.data()[0] = nothing_refused;
  }

  /// So many bytes to scribble on, undefined whenever a kernel begins. Where they are more than
  /// ever before, what there was is given back first, and that waits for the device: it is to be
  /// done before the first step (kernels/workspace.hpp).
  std::byte* at_least(std::size_t bytes) {
    if (bytes > memory_.size()) {
      memory_ = buffer<std::byte>();
      memory_ = buffer<std::byte>(bytes);
    }
    return memory_.data();
  }
  /// The least element that was refused: kernels lower it.
  unsigned long long* refused() const { return refused_.data(); }

  /// Enqueues a look at what was refused; `judge` after the stream has come so far.
  void look(cudaStream_t stream) const {
    check(cudaMemcpyAsync(seen_.data(), refused_.data(), sizeof nothing_refused,
                          cudaMemcpyDeviceToHost, stream));
  }
  void judge() const {
    const unsigned long long element = *static_cast<volatile unsigned long long*>(seen_.data());
    if (element != nothing_refused) {
      refuse_nan(element);
    }
  }

 private:
  buffer<std::byte> memory_;
  buffer<unsigned long long> refused_;
  pinned_buffer<unsigned long long> seen_;
};

}  // namespace tutti::cuda
