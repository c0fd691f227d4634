#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "models/backend.hpp"

namespace models {

/// Layers in plain Eigen: matrix products, and convolutions as matrix products of unrolled patches.
class eigen {
 public:
  using queue_type = tutti::inline_queue;
  static constexpr std::size_t alignment = 1;

  eigen(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
        std::span<float> statistics, queue_type&);
  eigen(eigen&&) noexcept;
  eigen& operator=(eigen&&) noexcept;
  eigen(const eigen&) = delete;
  eigen& operator=(const eigen&) = delete;
  ~eigen();

  std::span<float> input();
  std::span<const float> logits();
  void load() {}
  void forward(std::size_t layer, pass mode);
  void compare(std::span<const std::uint8_t> labels);
  void backward(std::size_t layer);

 private:
  struct program;  // keeps Eigen's headers out of every user's translation unit
  std::unique_ptr<program> program_;
};
static_assert(backend<eigen>);

}  // namespace models
