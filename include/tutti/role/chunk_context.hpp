#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/tensor.hpp"

namespace tutti {

/// What an encoder of a chunk may remember from step to step, scribble on and know.
struct chunk_context {
  /// `memory_per_element` floats for each element, row by row: row `i` of this chunk begins at
  /// `memory + i * stride`. It survives re-planning and travels with checkpoints.
  float* memory{};
  std::size_t stride{};
  /// `scratch_bytes(n)` bytes, undefined on entry.
  std::span<std::byte> scratch{};
  /// Steps completed before this one, and the chunk's first element in the flat index space.
  std::uint64_t step{};
  std::uint64_t first_element{};
  /// The rank that encodes: ranks which round at random must not all round the same way.
  std::uint64_t rank{};
  /// Ranks that encode gradients.
  std::uint64_t ranks{1};
  /// The tensor at hand and `remembers(tensor)` floats for it, where the unit is a tensor.
  const tensor_facts* tensor{};
  float* remembered{};
  /// What the loss has been multiplied by, and with it gradients and what is remembered of them: a
  /// bound is this many times as large.
  float scale{1.0f};
  /// How far beyond `first_element` random numbers are counted from, where a launch has gathered
  /// chunks that are no neighbours: past the model's end, at a place that no other launch of the
  /// step has.
  std::uint64_t drawn_beyond{};

  /// Where counter-based random numbers of this step are counted from.
  std::uint64_t drawn_from() const { return first_element + drawn_beyond; }
  /// The context of the same chunk's elements from `first` on.
  chunk_context from(std::size_t first) const {
    chunk_context rest = *this;
    rest.memory = memory == nullptr ? nullptr : memory + first;
    rest.first_element += first;
    return rest;
  }
  std::span<float> row(std::size_t i, std::size_t elements) const {
    return {memory + i * stride, elements};
  }
  /// The context for a decorated compressor, whose rows follow the first `taken` of its decorator.
  chunk_context after(std::size_t taken) const {
    chunk_context inner = *this;
    inner.memory = memory == nullptr ? nullptr : memory + taken * stride;
    return inner;
  }
};

}  // namespace tutti
