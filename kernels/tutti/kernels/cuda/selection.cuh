#pragma once

#include <cstddef>
#include <cstdint>
#include <cub/device/device_select.cuh>
#include <span>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/tabulate_output_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/units.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/radix_search.hpp"
#include "tutti/kernels/selection.hpp"

// The definitions of what selection.hpp declares for a cuda::stream.
namespace tutti::kernels {

namespace device {

/// Elements from which on it pays to gather candidates: below, all stay in a device's cache.
inline constexpr std::size_t worth_gathering = std::size_t{1} << 20;

/// What suggests the candidates; nothing where they would not pay, or might not fit.
inline detail::sample sample_for(std::size_t n, std::size_t k, std::size_t room) {
  if (n < worth_gathering) {
    return {};
  }
  const detail::sample which = detail::sample_for(n, k);
  const std::size_t expected = which.rank * which.stride;
  return expected <= room - room / 4 ? which : detail::sample{};
}

/// Writes the candidates in order, as many as there is room for, and `*count` how many they are.
inline auto gather(cuda::stream& queue, std::span<const float> input, const std::uint32_t* floor,
                   const candidates& room, std::uint32_t* count) {
  return [=, stream = queue.native_handle()](void* storage, std::size_t& bytes) {
    const radix::index_if_reaching reaching{input.data(), floor};
    const radix::keep_gathered keep{input.data(), room.indices.data(), room.values.data(),
                                    room.values.size()};
    return cub::DeviceSelect::If(
        storage, bytes, thrust::make_transform_iterator(indices(), reaching),
        thrust::make_tabulate_output_iterator(keep), count, static_cast<std::int64_t>(input.size()),
        radix::is_gathered{}, stream);
  };
}

/// What a selection keeps in the stream's room, before the storage of CUB's algorithm.
inline constexpr std::size_t record_bytes = round_up(sizeof(radix::record), 256);

/// Bytes of a stream's room in which a selection from n elements works.
inline std::size_t room_of_selection(cuda::stream& queue, std::size_t n) {
  if (n < worth_gathering) {
    return record_bytes;
  }
  const cuda::on_device here(queue.device());
  const std::span<const float> any(static_cast<const float*>(nullptr), n);
  return record_bytes + cuda::detail::storage_of(gather(queue, any, nullptr, {}, nullptr));
}

/// `names`: the indices of the input's elements, or null where they count up from 0. Candidates are
/// gathered by `which`.
inline void select(cuda::stream& queue, std::span<const float> input, const std::uint32_t* names,
                   std::uint64_t first_element, selection out, const detail::sample& which,
                   const candidates& room_of_candidates) {
  const std::size_t n = input.size();
  if (out.indices.empty()) {
    return;
  }
  auto* const at = reinterpret_cast<radix::record*>(room(queue, room_of_selection(queue, n)));
  const auto k = static_cast<std::uint32_t>(out.indices.size());
  radix::source from{{input.data(), names, n}, {}, k};
  on_blocks(queue, 1, radix::begin_selection{input.data(), which, k, at});
  if (which.size != 0) {
    from.gathered = {room_of_candidates.values.data(), room_of_candidates.indices.data(),
                     room_of_candidates.values.size()};
    run(queue, record_bytes, gather(queue, input, &at->floor, room_of_candidates, &at->gathered));
  }
  const std::size_t blocks = radix::blocks_sharing(n);
  for (unsigned round = 0; round < radix::rounds; ++round) {
    on_blocks(queue, blocks, radix::count_digits{from, at, round});
  }
  on_blocks(queue, blocks, radix::tally_shares{from, at});
  on_blocks(queue, blocks,
            radix::write_selected{from, at, out.indices.data(), out.values, queue.room().refused(),
                                  first_element});
}

}  // namespace device

[[gnu::used]] inline void select_largest(cuda::stream& queue, std::span<const float> input,
                                         std::uint64_t first_element, selection out,
                                         candidates room) {
  device::select(queue, input, nullptr, first_element, out,
                 device::sample_for(input.size(), out.indices.size(), room.values.size()), room);
}

[[gnu::used]] inline void select_largest(cuda::stream& queue, const pairs& from,
                                         std::uint64_t first_element, selection out, candidates) {
  device::select(queue, {from.values, from.size()}, from.indices.data(), first_element, out, {},
                 {});
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
