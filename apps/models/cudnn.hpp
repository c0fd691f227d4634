#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "models/backend.hpp"
#include "tutti/base/cuda/stream.hpp"

namespace models {

/// Layers on a GPU, channels last, in fp32 or in bf16. In fp32 no reduced precision is used (no
/// TF32). In bf16 parameters and gradients stay fp32 and are rounded where layers read and write
/// them. cuDNN computes convolutions and softmax, cuBLAS matrix products, and kernels of this
/// project (`channels_last`) the rest. Algorithms are chosen once, in the constructor, and only
/// deterministic ones. Batches and logits are copied through pinned memory. Everything runs on the
/// stream's device, and only `compare` waits for it, until the labels of the step before have been
/// copied. Throws tutti::error with the library's message. Cost: 32 MiB of workspace, or more if an
/// algorithm asks for it, a gradient for each activation, and a copy of each convolution's weights
/// and of their gradient.
class cudnn {
 public:
  using queue_type = tutti::cuda::stream;
  static constexpr std::size_t alignment = 4;  // 16 bytes: kernels read four floats at once

  cudnn(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
        std::span<float> statistics, queue_type& queue);
  cudnn(cudnn&&) noexcept;
  cudnn& operator=(cudnn&&) noexcept;
  cudnn(const cudnn&) = delete;
  cudnn& operator=(const cudnn&) = delete;
  ~cudnn();

  std::span<float> input();
  std::span<const float> logits();
  void load();
  void forward(std::size_t layer, pass mode);
  void compare(std::span<const std::uint8_t> labels);
  void backward(std::size_t layer);

  struct program;  // keeps the libraries' headers out of every user's translation unit

 private:
  std::unique_ptr<program> program_;
};
static_assert(backend<cudnn>);

template <>
struct on_queue<tutti::cuda::stream> {
  using backend = cudnn;
};

}  // namespace models
