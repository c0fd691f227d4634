#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cub/device/device_memcpy.cuh>
#include <span>

#include "tutti/kernels/copies.hpp"
#include "tutti/kernels/cuda/each.cuh"

// The definition of what copies.hpp declares for a cuda::stream.
namespace tutti::kernels {

namespace device {

/// How many runs are copied at a time. More runs take turns in a stream's workspace.
inline constexpr std::size_t most_runs = 1024;
inline constexpr std::size_t bytes_of_list = most_runs * sizeof(copy_run);
static_assert(bytes_of_list % 256 == 0);  // CUB's storage comes after the list

inline element::run_list list_in(std::byte* workspace) {
  constexpr std::size_t column = most_runs * sizeof(void*);
  return {reinterpret_cast<const void**>(workspace), reinterpret_cast<void**>(workspace + column),
          reinterpret_cast<std::size_t*>(workspace + 2 * column)};
}

inline auto copy_listed(cuda::stream& queue, const element::run_list& list, std::size_t runs) {
  return [=, stream = queue.native_handle()](void* storage, std::size_t& bytes) {
    return cub::DeviceMemcpy::Batched(storage, bytes, list.from, list.to, list.bytes,
                                      static_cast<std::int64_t>(runs), stream);
  };
}

/// Returns how many bytes of a stream's workspace the copy of any number of runs takes.
inline std::size_t workspace_of_copies(cuda::stream& queue) {
  const cuda::on_device here(queue.device());
  return bytes_of_list + cuda::detail::storage_of(copy_listed(queue, {}, most_runs));
}

/// Copies at most `most_runs` runs.
inline void copy_some(cuda::stream& queue, std::span<const copy_run> runs) {
  using element::listed_runs;
  const element::run_list list = list_in(workspace(queue, workspace_of_copies(queue)));
  for (std::size_t first = 0; first < runs.size(); first += listed_runs::most) {
    const auto some = runs.subspan(first, std::min(runs.size() - first, listed_runs::most));
    for_each_with_list(queue, some.size(), listed_runs(some, list.from_entry(first)));
  }
  run(queue, bytes_of_list, copy_listed(queue, list, runs.size()));
}

}  // namespace device

[[gnu::used]] inline void copy_runs(cuda::stream& queue, std::span<const copy_run> runs) {
  while (!runs.empty()) {
    const std::size_t now = std::min(runs.size(), device::most_runs);
    device::copy_some(queue, runs.first(now));
    runs = runs.subspan(now);
  }
}

}  // namespace tutti::kernels
