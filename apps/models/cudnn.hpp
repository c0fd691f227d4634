#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "models/backend.hpp"
#include "tutti/base/cuda/stream.hpp"

namespace models {

/// Layers on a GPU, channels last, in fp32 without shortcuts (no TF32) or in bf16, whose parameters
/// and gradients stay fp32 and are rounded as layers read and make them: convolutions and softmax
/// by cuDNN, matrix products by cuBLAS, the rest by kernels of ours (`channels_last`).
/// Algorithms are chosen once, deterministic ones alone. Batches go up and logits come down through
/// pinned memory. Runs on the stream's device; never waits for it. Throws tutti::error with the
/// library's own words. Cost: 32 MiB of workspace, or what the algorithms ask for; for each
/// activation its gradient, and for each convolution's weights and their gradient a copy.
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

  struct program;  // keeps the foreign headers out of every user's translation unit

 private:
  std::unique_ptr<program> program_;
};
static_assert(backend<cudnn>);

template <>
struct on_queue<tutti::cuda::stream> {
  using backend = cudnn;
};

}  // namespace models
