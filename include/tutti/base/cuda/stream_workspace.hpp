#pragma once

#include <cstddef>
#include <cuda_runtime_api.h>

#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/error.hpp"

namespace tutti::cuda {

/// The workspace that a stream's kernels use one after the other, and the record of what they
/// refuse.
///
/// A kernel cannot throw. It writes the index of the element that it refuses, and the stream throws
/// at its next `synchronize`. Cost: 64 KiB of device memory per stream, and more where its kernels
/// need more.
class stream_workspace {
 public:
  static constexpr std::size_t at_first = 64 << 10;
  static constexpr unsigned long long nothing_refused = ~0ULL;

  explicit stream_workspace(cudaStream_t stream) : memory_(at_first), refused_(1), seen_(1) {
    check(cudaMemsetAsync(refused_.data(), 0xFF, sizeof nothing_refused, stream));
    seen_.data()[0] = nothing_refused;
  }

  /// Returns at least `bytes` bytes of workspace, whose contents are undefined when a kernel
  /// begins. If the workspace has to grow, the old one is freed first, which waits for the device.
  /// It should therefore grow before the first step (kernels/workspace.hpp).
  std::byte* at_least(std::size_t bytes) {
    if (bytes > memory_.size()) {
      memory_ = buffer<std::byte>();
      memory_ = buffer<std::byte>(bytes);
    }
    return memory_.data();
  }
  /// The device address of the least index that was refused, which kernels lower.
  unsigned long long* refused() const { return refused_.data(); }

  /// Enqueues a copy of the refused index to the host. Call `judge` once the stream has executed
  /// it.
  void look(cudaStream_t stream) const {
    check(cudaMemcpyAsync(seen_.data(), refused_.data(), sizeof nothing_refused,
                          cudaMemcpyDeviceToHost, stream));
  }
  /// Throws usage_error if the index copied by `look` is of a refused element.
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
