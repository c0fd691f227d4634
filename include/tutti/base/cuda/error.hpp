#pragma once

#include <cuda_runtime_api.h>
#include <string>

#include "tutti/base/error.hpp"
#include "tutti/base/source_place.hpp"

namespace tutti {

/// CUDA has refused a call, or work that was enqueued before the call has failed.
class cuda_error : public error {
 public:
  cuda_error(cudaError_t code, source_place where)
      : error(std::string(cudaGetErrorString(code)) + " (" + cudaGetErrorName(code) + " " +
              std::to_string(static_cast<int>(code)) + " at " + where.file + ":" +
              std::to_string(where.line) + ")" + fix(code)),
        code_(code) {}

  cudaError_t code() const { return code_; }

  /// Returns what helps, as the end of a message, or nothing where that is not known.
  static std::string fix(cudaError_t code) {
    switch (code) {
      case cudaErrorNoDevice:
      case cudaErrorInsufficientDriver:
        return ". Fix: run on a machine with a GPU and a driver at least as new as this CUDA, or "
               "use transport::in_process";
      case cudaErrorMemoryAllocation:
        return ". Fix: use smaller buckets (fusion.bytes) or fewer ranks on this GPU, or free "
               "memory";
      case cudaErrorNoKernelImageForDevice:
        return ". Fix: build with CMAKE_CUDA_ARCHITECTURES set for this GPU, or with the preset "
               "cuda-all";
      default:
        return "";
    }
  }

 private:
  cudaError_t code_;
};

namespace cuda {

/// Throws cuda_error, with the place of the call, if `code` is an error. Clears CUDA's last error,
/// so that a later call does not report it again.
inline void check(cudaError_t code, source_place where = source_place::current()) {
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw cuda_error(code, where);
  }
}

/// Ignores an error, for destructors, which cannot throw. The last synchronize has reported every
/// failure that matters, and memory and handles are freed when the process ends.
inline void ignore(cudaError_t code) noexcept {
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
}

/// Returns how many devices this process may use, 0 also if there is no driver.
inline int devices() noexcept {
  int count = 0;
  const cudaError_t answer = cudaGetDeviceCount(&count);
  ignore(answer);
  return answer == cudaSuccess ? count : 0;
}

/// Makes a device the calling thread's current one, and restores the previous one when destroyed.
class on_device {
 public:
  explicit on_device(int device) {
    check(cudaGetDevice(&before_));
    if (before_ != device) {
      check(cudaSetDevice(device));
      changed_ = true;
    }
  }
  on_device(const on_device&) = delete;
  on_device& operator=(const on_device&) = delete;
  ~on_device() {
    if (changed_) {
      ignore(cudaSetDevice(before_));
    }
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace cuda

}  // namespace tutti
