#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <map>
#include <mutex>
#include <string>

#include "tutti/adapter/torch_memory.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"

namespace tutti::adapter {

/// Handles tensors of the device on which a transport was made. If this header is included,
/// data_parallel trains models there, over transport::nccl or another transport whose queue is a
/// CUDA stream.
/// Cost: a workspace (base/cuda/stream_workspace.hpp) for each stream of torch's that is ever
/// current.
template <>
class torch_memory<cuda::stream> {
 public:
  explicit torch_memory(cuda::stream& of_transport) : device_(of_transport.device()) {}

  void expect(const at::Tensor& value, const std::string& name) const {
    if (!value.is_cuda() || value.get_device() != device_) {
      throw usage_error(sentence(
          {name, " is on ", value.device().str(), ", but this rank trains on cuda:", device_,
           ", where its transport was made. Fix: model.to(\"cuda:", device_,
           "\"), or make the model's device current before making the transport"}));
    }
  }
  bool is_on_host(const at::Tensor& value) const { return value.is_cpu(); }

  cuda::stream& current() {
    const cudaStream_t handle =
        c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_)).stream();
    const std::scoped_lock lock(mutex_);
    auto found = streams_.find(handle);
    if (found == streams_.end()) {
      const cuda::on_device here(device_);
      found = streams_.emplace(handle, cuda::stream::from_native_handle(handle)).first;
    }
    return found->second;
  }

 private:
  int device_;
  std::mutex mutex_;
  std::map<cudaStream_t, cuda::stream> streams_{};
};

}  // namespace tutti::adapter
