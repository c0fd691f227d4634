#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "models/backend.hpp"

namespace models {

/// Layers as oneDNN primitives, created once and run on one thread.
class onednn {
 public:
  onednn(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors);
  onednn(onednn&&) noexcept;
  onednn& operator=(onednn&&) noexcept;
  onednn(const onednn&) = delete;
  onednn& operator=(const onednn&) = delete;
  ~onednn();

  std::span<float> input();
  std::span<const float> logits();
  std::span<float> logits_gradient();
  void forward(std::size_t layer);
  void backward(std::size_t layer);

 private:
  struct program;  // keeps the foreign header out of every user's translation unit
  std::unique_ptr<program> program_;
};
static_assert(backend<onednn>);

}  // namespace models
