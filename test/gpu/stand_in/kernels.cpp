// The kernels of tutti::cuda without nvcc: the same text over a launcher of host threads. Selection
// is the same steps, put together here.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/stand_in/launcher.hpp"
#include "gpu/stand_in/runtime.hpp"
#include "support/selection_round.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/cuda/arithmetic.cuh"
#include "tutti/kernels/cuda/block_codes.cuh"
#include "tutti/kernels/cuda/block_signs.cuh"
#include "tutti/kernels/cuda/cast.cuh"
#include "tutti/kernels/cuda/copies.cuh"
#include "tutti/kernels/cuda/descent.cuh"
#include "tutti/kernels/cuda/signs.cuh"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/selection_steps.hpp"

namespace tutti::kernels {

template void narrow<half>(cuda::stream&, std::span<const float>, std::uint16_t*);
template void narrow<bfloat>(cuda::stream&, std::span<const float>, std::uint16_t*);
template void add_widened<half>(cuda::stream&, const std::uint16_t*, std::span<float>);
template void add_widened<bfloat>(cuda::stream&, const std::uint16_t*, std::span<float>);
template void add_narrow<half>(cuda::stream&, std::span<std::uint16_t>, const std::uint16_t*);
template void add_narrow<bfloat>(cuda::stream&, std::span<std::uint16_t>, const std::uint16_t*);

namespace {

/// `above` and `equal` have room for the tiles' counts.
template <class Refuse>
steps::tally collect(const steps::source& from, steps::search limit, std::span<float> above,
                     std::span<std::uint32_t> equal, const steps::destination& out,
                     const Refuse& refuse) {
  const std::size_t tiles = steps::tiles_of(from.n);
  auto* above_bits = reinterpret_cast<std::uint32_t*>(above.data());
  steps::tally sum;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    above_bits[tile] = sum.above;
    equal[tile] = sum.equal;
    sum = sum + steps::count_tile(steps::host_group{}, from, tile, limit);
  }
  for (std::size_t tile = tiles; tile-- > 0;) {
    steps::write_tile(steps::host_group{}, from, tile, limit, {above_bits[tile], equal[tile]}, out,
                      refuse);
  }
  return sum;
}

void select(std::span<const float> input, const selection& out, const candidates& room,
            unsigned long long* refused, std::uint64_t first_element) {
  const std::size_t k = out.indices.size();
  const std::size_t capacity = room.values.size() - steps::tiles_of(input.size());
  const auto above = room.values.subspan(capacity);
  const auto equal = room.indices.subspan(capacity);
  const steps::source whole{input.data(), nullptr, input.size()};
  steps::source from = whole;
  steps::search known{0, static_cast<std::uint32_t>(k)};
  known = test::search_round(from, known, 0);
  if (input.size() > capacity) {
    const auto found =
        collect(whole, steps::floor_of(known), above, equal,
                {room.indices.data(), room.values.data(), capacity}, steps::refuse_nothing{});
    from =
        steps::chosen(whole, {room.values.data(), room.indices.data(), capacity}, found.above, k);
  }
  known = test::search_round(from, known, 1);
  known = test::search_round(from, known, 2);
  collect(from, known, above, equal, {out.indices.data(), out.values, k}, [&](std::uint32_t index) {
    *refused = std::min<unsigned long long>(*refused, first_element + index);
  });
}

}  // namespace

void select_largest(cuda::stream& queue, std::span<const float> input, std::uint64_t first_element,
                    selection out, candidates room) {
  if (!out.indices.empty()) {
    test::stood_in_by(queue.native_handle()).run([=, refused = queue.room().refused()] {
      select(input, out, room, refused, first_element);
    });
  }
}
void clear_at(cuda::stream& queue, std::span<float> data, std::span<const std::uint32_t> indices) {
  device::for_each(queue, indices.size(), element::clear_at{data.data(), indices.data()});
}
void scatter_add(cuda::stream& queue, std::span<const std::uint32_t> indices, const float* values,
                 std::span<float> sum) {
  device::for_each(queue, indices.size(), element::scatter_add{indices.data(), values, sum.data()});
}

}  // namespace tutti::kernels
