#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tutti/base/memory.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/norms.hpp"

namespace tutti::adapter::detail {

/// Returns whether every element is finite. On a device the host waits for the answer.
/// Cost on the host: one pass over floats, where at::isfinite would write and read flags, too.
template <class Queue>
bool is_finite(const at::Tensor& gradient) {
  if constexpr (!has_own_memory<Queue>) {
    if (gradient.scalar_type() == at::kFloat) {
      inline_queue here;
      float largest = 0;
      kernels::largest_magnitude(
          here, {gradient.template data_ptr<float>(), static_cast<std::size_t>(gradient.numel())},
          &largest);
      return std::isfinite(largest);
    }
  }
  return at::isfinite(gradient).all().template item<bool>();
}

/// Replaces gradients that are not finite by zeros and records that it has done so. Several threads
/// may use it at once, each with tensors of its own.
/// Cost on a device: a few kernels per gradient, for which nobody waits before `any`.
template <class Queue>
class hidden_infinities {
 public:
  /// Zeroes the gradient of tensor `which` among `tensors` if it is not finite.
  void hide(std::size_t which, at::Tensor& gradient) {
    if constexpr (has_own_memory<Queue>) {
      const at::Tensor found = at::isfinite(gradient).all().logical_not();
      gradient.masked_fill_(found, 0);
      of_tensor_.select(0, static_cast<std::int64_t>(which)).copy_(found);
    } else if (!is_finite<Queue>(gradient)) {
      some_ = true;
      gradient.zero_();
    }
  }

  /// Returns whether any gradient was zeroed since the last call.
  bool any() {
    if constexpr (has_own_memory<Queue>) {
      const at::Tensor found = of_tensor_.any();
      of_tensor_.zero_();
      return found.template item<bool>();
    } else {
      return some_.exchange(false);
    }
  }

  /// Makes room for the flags of so many tensors, which lie where `like` does.
  void expect_of(std::size_t tensors, const at::Tensor& like) {
    if constexpr (has_own_memory<Queue>) {
      of_tensor_ = at::zeros({static_cast<std::int64_t>(tensors)}, like.options().dtype(at::kBool));
    }
  }

 private:
  std::atomic<bool> some_{false};
  at::Tensor of_tensor_{};  ///< a flag per tensor, used on a device only
};

}  // namespace tutti::adapter::detail
