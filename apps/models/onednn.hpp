#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "models/backend.hpp"

namespace models {

/// Layers as oneDNN primitives, created once and run on one thread.
class onednn {
 public:
  using queue_type = tutti::inline_queue;
  static constexpr std::size_t alignment = 1;

  onednn(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
         std::span<float> statistics, queue_type&);
  onednn(onednn&&) noexcept;
  onednn& operator=(onednn&&) noexcept;
  onednn(const onednn&) = delete;
  onednn& operator=(const onednn&) = delete;
  ~onednn();

  std::span<float> input();
  std::span<const float> logits();
  void load() {}
  void forward(std::size_t layer, pass mode);
  void compare(std::span<const std::uint8_t> labels);
  void backward(std::size_t layer);

 private:
  struct program;  // keeps oneDNN's headers out of every user's translation unit
  std::unique_ptr<program> program_;
};
static_assert(backend<onednn>);

}  // namespace models
