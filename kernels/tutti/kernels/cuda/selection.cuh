#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/assert.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/selection_steps.hpp"

// The definitions of what selection.hpp declares for a cuda::stream.
namespace tutti::kernels {

namespace device {

static_assert(sizeof(steps::selecting) <= cuda::stream_room::bytes);

struct launch_steps {
  cuda::stream* queue;

  template <class Step>
  void operator()(std::size_t blocks, const Step& step) const {
    on_blocks(*queue, blocks, step);
  }
};

/// `names`: the indices of the input's elements, or null where they count up from 0.
inline void select(cuda::stream& queue, std::span<const float> input, const std::uint32_t* names,
                   std::uint64_t first_element, selection out, candidates room) {
  if (out.indices.empty()) {
    return;
  }
  TUTTI_ASSERT(room.values.size() >= steps::table_places(input.size()) &&
                   room.indices.size() == room.values.size(),
               "a selection's scratch is shorter than selection_candidates");
  const steps::job<const float*> of(
      input.data(), input.size(), out.indices.size(), room.values.data(), room.indices.data(),
      room.values.size(), reinterpret_cast<steps::selecting*>(queue.room().memory()), names);
  steps::select(
      launch_steps{&queue}, of,
      {out.indices.data(), out.values, out.indices.size(), queue.room().refused(), first_element});
}

}  // namespace device

[[gnu::used]] inline void select_largest(cuda::stream& queue, std::span<const float> input,
                                         std::uint64_t first_element, selection out,
                                         candidates room) {
  device::select(queue, input, nullptr, first_element, out, room);
}

[[gnu::used]] inline void select_largest(cuda::stream& queue, const pairs& from,
                                         std::uint64_t first_element, selection out,
                                         candidates room) {
  device::select(queue, {from.values, from.size()}, from.indices.data(), first_element, out, room);
}

[[gnu::used]] inline void clear_at(cuda::stream& queue, std::span<float> data,
                                   std::span<const std::uint32_t> indices) {
  device::for_each(queue, indices.size(), element::clear_at{data.data(), indices.data()});
}

[[gnu::used]] inline void scatter_add(cuda::stream& queue, std::span<const std::uint32_t> indices,
                                      const float* values, std::span<float> sum) {
  device::for_each(queue, indices.size(), element::scatter_add{indices.data(), values, sum.data()});
}

}  // namespace tutti::kernels
