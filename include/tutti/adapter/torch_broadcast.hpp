#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tutti/adapter/torch_memory.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"

namespace tutti::adapter::detail {

/// Returns a copy of all values' bytes, one value behind the other, on the host or device where
/// they lie.
inline at::Tensor packed(const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> bytes;
  for (const at::Tensor& each : values) {
    bytes.push_back(each.contiguous().reshape({-1}).view(at::kByte));
  }
  return at::cat(bytes);
}
/// Copies the bytes that `packed` has returned to the values of `into`.
inline void unpack(const at::Tensor& bytes, const std::vector<at::Tensor>& into) {
  std::int64_t from = 0;
  for (const at::Tensor& each : into) {
    const auto length = static_cast<std::int64_t>(each.nbytes());
    // A clone, because its memory is aligned for elements of any type.
    const at::Tensor mine = bytes.narrow(0, std::exchange(from, from + length), length).clone();
    each.copy_(mine.view(each.scalar_type()).view(each.sizes()));
  }
}

/// Returns whether the value is the same on all ranks. Cost: two messages a rank.
template <class Trainer>
bool is_same_on_all(Trainer& world, std::uint64_t value) {
  // Of each byte the largest of any rank's, and the complement of the smallest.
  std::array<std::uint64_t, 2> extremes{value, ~value};
  world.largest(std::as_writable_bytes(std::span(extremes)));
  return extremes[0] == ~extremes[1];
}

/// Throws usage_error on every rank unless all ranks have values of the same types and sizes, in
/// the same order.
template <class Trainer>
void expect_alike(Trainer& world, const std::vector<at::Tensor>& values) {
  running_hash hash;
  for (const at::Tensor& each : values) {
    hash.feed(static_cast<std::uint64_t>(each.scalar_type()));
    hash.feed(static_cast<std::uint64_t>(each.dim()));
    for (const std::int64_t size : each.sizes()) {
      hash.feed(static_cast<std::uint64_t>(size));
    }
  }
  if (!is_same_on_all(world, hash.value())) {
    throw usage_error(
        "ranks have buffers or frozen parameters of different types or sizes. Fix: wrap the same "
        "model on every rank");
  }
}

/// Broadcasts values that lie all on the host, or all on one device. A device's bytes pass through
/// host memory in one copy.
template <class Trainer>
void broadcast_packed(Trainer& world, const std::vector<at::Tensor>& values, int root) {
  if (values.empty()) {
    return;
  }
  const at::Tensor bytes = packed(values);
  const at::Tensor on_host = bytes.cpu();
  world.broadcast(
      root, std::as_writable_bytes(std::span(on_host.data_ptr<std::uint8_t>(), on_host.nbytes())));
  if (world.rank() != root) {
    unpack(on_host.to(bytes.device()), values);
  }
}

/// Copies the values of rank `root` to every rank.
template <class Trainer, class Queue>
void broadcast(Trainer& world, const torch_memory<Queue>& memory,
               const std::vector<at::Tensor>& values, int root) {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> of_host;
  std::vector<at::Tensor> of_device;
  for (const at::Tensor& each : values) {
    if (memory.is_on_host(each)) {
      of_host.push_back(each);
    } else {
      memory.expect(each, "a buffer");
      of_device.push_back(each);
    }
  }
  broadcast_packed(world, of_host, root);
  broadcast_packed(world, of_device, root);
}

}  // namespace tutti::adapter::detail
