#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "models/backend.hpp"
#include "tutti/base/cuda/stream.hpp"

namespace models {

/// Layers on a GPU, in fp32 without shortcuts (no TF32): convolutions, pooling and softmax by
/// cuDNN, matrix products by cuBLAS. Algorithms are chosen once, deterministic ones alone. Batches
/// go up and logits come down through pinned memory. Runs on the stream's device; never waits for
/// it. Throws tutti::error with the library's own words. Cost: 32 MiB of workspace, or what the
/// algorithms ask for.
class cudnn {
 public:
  using queue_type = tutti::cuda::stream;
  static constexpr std::size_t alignment = 4;  // 16 bytes: kernels read four floats at once

  cudnn(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
        queue_type& queue);
  cudnn(cudnn&&) noexcept;
  cudnn& operator=(cudnn&&) noexcept;
  cudnn(const cudnn&) = delete;
  cudnn& operator=(const cudnn&) = delete;
  ~cudnn();

  std::span<float> input();
  std::span<const float> logits();
  void forward(std::size_t layer);
  void compare(std::span<const std::uint8_t> labels);
  void backward(std::size_t layer);

 private:
  struct program;  // keeps the foreign headers out of every user's translation unit
  std::unique_ptr<program> program_;
};
static_assert(backend<cudnn>);

template <>
struct on_queue<tutti::cuda::stream> {
  using backend = cudnn;
};

}  // namespace models
