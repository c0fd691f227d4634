#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_scan.cuh>
#include <span>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/tabulate_output_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/radix_search.hpp"
#include "tutti/kernels/selection.hpp"

// The definitions of what selection.hpp declares for a cuda::stream.
namespace tutti::kernels {

namespace device {

/// What a selection keeps in the stream's room, before the storage of CUB's algorithms.
struct alignas(256) selecting {
  std::uint32_t count[radix::bins];
  radix::search found[radix::rounds];
};

inline auto count_digits(cuda::stream& queue, const radix::digit_of& digit, std::size_t n,
                         std::uint32_t* count) {
  return [=, stream = queue.native_handle()](void* storage, std::size_t& bytes) {
    return cub::DeviceHistogram::HistogramEven(
        storage, bytes, thrust::make_transform_iterator(indices(), digit), count,
        static_cast<int>(radix::bins) + 1, 0, static_cast<int>(radix::bins),
        static_cast<std::int64_t>(n), stream);
  };
}

inline auto write_in_order(cuda::stream& queue, const radix::write_selected& write, std::size_t n) {
  return [=, stream = queue.native_handle()](void* storage, std::size_t& bytes) {
    const radix::tally_of tally{write.input, write.threshold};
    return cub::DeviceScan::ExclusiveSum(storage, bytes,
                                         thrust::make_transform_iterator(indices(), tally),
                                         thrust::make_tabulate_output_iterator(write), n, stream);
  };
}

/// Bytes of a stream's room in which a selection from n elements works.
inline std::size_t room_of_selection(cuda::stream& queue, std::size_t n) {
  const cuda::on_device here(queue.device());
  return sizeof(selecting) + std::max(cuda::detail::storage_of(count_digits(queue, {}, n, nullptr)),
                                      cuda::detail::storage_of(write_in_order(queue, {}, n)));
}

/// `names`: the indices of the input's elements, or null where they count up from 0.
inline void select(cuda::stream& queue, std::span<const float> input, const std::uint32_t* names,
                   std::uint64_t first_element, selection out) {
  const std::size_t n = input.size();
  if (out.indices.empty()) {
    return;
  }
  auto* const state = reinterpret_cast<selecting*>(room(queue, room_of_selection(queue, n)));
  const auto k = static_cast<std::uint32_t>(out.indices.size());
  const radix::search* before = nullptr;
  for (unsigned round = 0; round < radix::rounds; ++round) {
    radix::search* const after = &state->found[round];
    run(queue, sizeof(selecting),
        count_digits(queue, {input.data(), before, round}, n, state->count));
    for_each(queue, radix::bins, radix::narrow{state->count, k, before, after, round});
    before = after;
  }
  run(queue, sizeof(selecting),
      write_in_order(queue,
                     {input.data(), names, before, out.indices.data(), out.values,
                      queue.room().refused(), first_element},
                     n));
}

}  // namespace device

[[gnu::used]] inline void select_largest(cuda::stream& queue, std::span<const float> input,
                                         std::uint64_t first_element, selection out, candidates) {
  device::select(queue, input, nullptr, first_element, out);
}

[[gnu::used]] inline void select_largest(cuda::stream& queue, const pairs& from,
                                         std::uint64_t first_element, selection out, candidates) {
  device::select(queue, {from.values, from.size()}, from.indices.data(), first_element, out);
}

[[gnu::used]] inline void clear_at(cuda::stream& queue, std::span<float> data,
                                   std::span<const std::uint32_t> indices) {
  device::for_each(queue, indices.size(), element::clear_at{data.data(), indices.data()});
}

[[gnu::used]] inline void scatter_add(cuda::stream& queue, std::span<const std::uint32_t> indices,
                                      const float* values, std::span<float> sum) {
  device::for_each(queue, indices.size(),
                   element::scatter_add{indices.data(), values, sum.data(), sum.size()});
}

}  // namespace tutti::kernels
