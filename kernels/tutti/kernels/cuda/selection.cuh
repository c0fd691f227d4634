#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/units.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/selection_steps.hpp"

// The definitions of what selection.hpp declares for a cuda::stream.
namespace tutti::kernels {

namespace device {

/// How many elements an input has at least if listing candidates pays. Fewer stay in a device's
/// cache.
inline constexpr std::size_t worth_a_sample = std::size_t{1} << 20;

/// Returns the sample that suggests the candidates; an empty one if they would not pay, or might
/// not fit.
inline detail::sample sample_for(std::size_t n, std::size_t k, std::size_t room) {
  if (n < worth_a_sample) {
    return {};
  }
  const detail::sample which = detail::sample_for(n, k);
  const std::size_t expected = which.rank * which.stride;
  return expected <= room - room / 4 ? which : detail::sample{};
}

/// How many bytes of the stream's workspace a selection's record takes. The marks come after it.
inline constexpr std::size_t record_bytes = round_up(sizeof(radix::record), 256);

/// Returns how many bytes of a stream's workspace a selection from n elements takes.
constexpr std::size_t workspace_of_selection(std::size_t n) {
  return record_bytes + (n < worth_a_sample ? 0 : radix::mark_bytes(n));
}

/// Selects from `input`. `names` are the indices of the input's elements, or null if they count up
/// from 0. Candidates are listed if there is a sample.
inline void select(cuda::stream& queue, std::span<const float> input, const std::uint32_t* names,
                   std::uint64_t first_element, selection out, const detail::sample& which,
                   const candidates& list) {
  const std::size_t n = input.size();
  if (out.indices.empty()) {
    return;
  }
  std::byte* const kept = workspace(queue, workspace_of_selection(n));
  auto* const at = reinterpret_cast<radix::record*>(kept);
  auto* const marks = reinterpret_cast<std::uint8_t*>(kept + record_bytes);
  const auto k = static_cast<std::uint32_t>(out.indices.size());
  const std::size_t blocks = radix::blocks_sharing(n);
  radix::source from{{input.data(), names, n}, k, nullptr, nullptr, 0};
  on_blocks(queue, 1, radix::begin_selection{input.data(), which, k, at});
  if (which.size != 0) {
    from.indices = list.indices.data();
    from.values = list.values.data();
    from.room = list.values.size();
    on_blocks(queue, blocks, radix::mark_candidates{input.data(), n, marks, at});
    on_blocks(queue, blocks, radix::list_candidates{from, marks, at});
  }
  for (unsigned round = 0; round < radix::rounds; ++round) {
    on_blocks(queue, blocks, radix::count_digits{from, at, round});
  }
  on_blocks(queue, blocks, radix::tally_shares{from, at});
  on_blocks(queue, blocks,
            radix::write_selected{from, at, out.indices.data(), out.values,
                                  queue.workspace().refused(), first_element});
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
