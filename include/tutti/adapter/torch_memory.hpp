#pragma once

#include <ATen/ATen.h>
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

/// Where tensors lie that a `Queue` works on, and the queue on which torch works on them itself,
/// for whoever calls. Here both are the host's, where work is done when its call returns;
/// adapter/torch_cuda.hpp has a device's.
template <class Queue>
class torch_memory {
  static_assert(std::is_same_v<Queue, inline_queue>);  // else include tutti/adapter/torch_cuda.hpp

 public:
  explicit torch_memory(Queue&) {}

  /// Throws usage_error unless the tensor lies here.
  void expect(const at::Tensor& value, const std::string& name) const {
    if (!is_on_host(value)) {
      throw usage_error(sentence({name, " lies on ", value.device().str(),
                                  ", and this adapter trains on the host. Fix: model.cpu()"}));
    }
  }
  bool is_on_host(const at::Tensor& value) const { return value.is_cpu(); }
  /// The queue behind which torch's next operation of this thread comes.
  Queue& current() { return current_; }

 private:
  [[no_unique_address]] Queue current_{};
};

namespace detail {

/// Lengths as they lie in memory: of a channels-last weight, the channels are the fastest.
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

/// So many zeros for a `Queue` to work on, the host's where kernels are fastest.
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

/// Floats at `memory`, beside `value` and in its order.
inline at::Tensor floats_as(const at::Tensor& value, float* memory) {
  return at::from_blob(memory, value.sizes(), value.strides(), value.options().dtype(at::kFloat));
}

}  // namespace detail

}  // namespace tutti::adapter
