#pragma once

#include <cuda_runtime_api.h>
#include <string>

#include "tutti/base/error.hpp"
#include "tutti/base/source_place.hpp"

namespace tutti {

/// CUDA refused a call, or work that was enqueued before it has failed.
class cuda_error : public error {
 public:
  cuda_error(cudaError_t code, source_place where)
      : error(std::string(cudaGetErrorString(code)) + " (" + cudaGetErrorName(code) + " " +
              std::to_string(static_cast<int>(code)) + " at " + where.file + ":" +
              std::to_string(where.line) + ")" + fix(code)),
        code_(code) {}

  cudaError_t code() const { return code_; }

  /// What helps, where that is known; otherwise nothing.
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

/// Throws cuda_error if `code` is one, with the place of this call. CUDA's own memory of it is
/// cleared, so that it is not reported again where nothing is wrong.
inline void check(cudaError_t code, source_place where = source_place::current()) {
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw cuda_error(code, where);
  }
}

/// For destructors, which cannot throw: whoever synchronised last knows of every failure that
/// matters, and memory and handles die with the process.
inline void ignore(cudaError_t code) noexcept {
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
}

/// Devices that this process may use: none where there is no driver either.
inline int devices() noexcept {
  int count = 0;
  const cudaError_t answer = cudaGetDeviceCount(&count);
  ignore(answer);
  return answer == cudaSuccess ? count : 0;
}

/// Makes a device the calling thread's, and at its end the one that was before.
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
