#pragma once

#include <ATen/ATen.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tutti/adapter/side_channel.hpp"
#include "tutti/adapter/torch_memory.hpp"

namespace tutti::adapter::detail {

/// A copy of all their bytes, one behind the other, where they lie.
inline at::Tensor packed(const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> bytes;
  for (const at::Tensor& each : values) {
    bytes.push_back(each.contiguous().reshape({-1}).view(at::kByte));
  }
  return at::cat(bytes);
}
/// What `packed` has packed becomes the values of `into`.
inline void unpack(const at::Tensor& bytes, const std::vector<at::Tensor>& into) {
  std::int64_t from = 0;
  for (const at::Tensor& each : into) {
    const auto length = static_cast<std::int64_t>(each.nbytes());
    // A copy of its own begins where elements of any type may.
    const at::Tensor mine = bytes.narrow(0, std::exchange(from, from + length), length).clone();
    each.copy_(mine.view(each.scalar_type()).view(each.sizes()));
  }
}

template <class Beside>
void broadcast_on_host(side_channel<Beside>& beside, const std::vector<at::Tensor>& values,
                       int rank, int root) {
  std::vector<std::byte> bytes;
  std::vector<at::Tensor> dense;
  std::size_t length = 0;
  for (const at::Tensor& each : values) {
    dense.push_back(each.contiguous());
    length += dense.back().nbytes();
  }
  if (length == 0) {
    return;
  }
  bytes.reserve(length);
  for (const at::Tensor& each : dense) {
    const auto* its = static_cast<const std::byte*>(each.data_ptr());
    bytes.insert(bytes.end(), its, its + each.nbytes());
  }
  beside.broadcast(root, bytes);
  if (rank == root) {
    return;
  }
  auto from = bytes.cbegin();
  for (std::size_t i = 0; i < values.size(); ++i) {
    at::Tensor received = at::empty(dense[i].sizes(), dense[i].options());
    std::copy_n(from, received.nbytes(), static_cast<std::byte*>(received.data_ptr()));
    from += static_cast<std::ptrdiff_t>(received.nbytes());
    values[i].copy_(received);
  }
}

/// Values of rank `root` become everybody's. A device's come through the host's memory, all of them
/// in one copy.
template <class Beside, class Queue>
void broadcast(side_channel<Beside>& beside, const torch_memory<Queue>& memory,
               std::vector<at::Tensor> values, int rank, int root) {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> of_device;
  std::erase_if(values, [&](const at::Tensor& each) {
    if (memory.is_on_host(each)) {
      return false;
    }
    memory.expect(each, "a buffer");
    of_device.push_back(each);
    return true;
  });
  if (of_device.empty()) {
    broadcast_on_host(beside, values, rank, root);
    return;
  }
  const at::Tensor bytes = packed(of_device);
  values.push_back(bytes.cpu());
  broadcast_on_host(beside, values, rank, root);
  if (rank != root) {
    unpack(values.back().to(bytes.device()), of_device);
  }
}

}  // namespace tutti::adapter::detail
