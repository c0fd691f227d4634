#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/line_vector.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"

namespace tutti::adapter {

/// Says where tensors must lie for a `Queue` to work on them, and on which queue torch itself works
/// for the calling thread. Here both are the host's, where work is done when its call returns.
/// adapter/torch_cuda.hpp specializes it for a device.
template <class Queue>
class torch_memory {
  static_assert(std::is_same_v<Queue, inline_queue>);  // else include tutti/adapter/torch_cuda.hpp

 public:
  explicit torch_memory(Queue&) {}

  /// Throws usage_error unless the tensor lies where the queue works.
  void expect(const at::Tensor& value, const std::string& name) const {
    if (!is_on_host(value)) {
      throw usage_error(sentence({name, " is on ", value.device().str(),
                                  ", but this adapter trains on the host. Fix: model.cpu()"}));
    }
  }
  bool is_on_host(const at::Tensor& value) const { return value.is_cpu(); }
  /// The queue on which torch executes this thread's next operation.
  Queue& current() { return current_; }

 private:
  [[no_unique_address]] Queue current_{};
};

namespace detail {

/// Returns the lengths of the dimensions in memory order, the slowest first: of a channels-last
/// weight, the channels are the last.
inline tensor_shape shape_of(const at::Tensor& value) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(value.dim()));
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<std::int64_t>(i);
  }
  std::ranges::stable_sort(
      order, [&](std::int64_t a, std::int64_t b) { return value.stride(a) > value.stride(b); });
  std::vector<std::size_t> lengths;
  for (const std::int64_t dimension : order) {
    lengths.push_back(static_cast<std::size_t>(value.size(dimension)));
  }
  return tensor_shape(lengths);
}

/// Returns zeros for a `Queue` to work on. On the host they lie in a line_vector, where kernels are
/// fastest.
template <class Queue>
at::Tensor zeros(std::int64_t elements, const at::TensorOptions& like) {
  if constexpr (has_own_memory<Queue>) {
    return at::zeros({elements}, like);
  } else {
    const std::size_t bytes = static_cast<std::size_t>(elements) * like.dtype().itemsize();
    auto memory = std::make_shared<line_vector<std::byte>>(bytes);
    void* const begin = memory->data();
    return at::from_blob(
        begin, {elements}, [memory = std::move(memory)](void*) {}, like);
  }
}

/// Returns the floats at `memory` as a tensor on the device of `value`, with its sizes and strides.
inline at::Tensor floats_as(const at::Tensor& value, float* memory) {
  return at::from_blob(memory, value.sizes(), value.strides(), value.options().dtype(at::kFloat));
}

}  // namespace detail

}  // namespace tutti::adapter
