#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/tensor.hpp"

namespace tutti {

/// What the encoder of a chunk may remember from step to step, use as scratch, and know.
struct chunk_context {
  /// The encoder's memory: `memory_per_element` floats for each element, in rows. Row `i` of this
  /// chunk begins at `memory + i * stride`. The memory survives re-planning and is part of
  /// checkpoints. When the loss scale or the number of passes changes, it is multiplied as its
  /// `memory_degrees` say: without them all of it must be in units of gradients.
  float* memory{};
  std::size_t stride{};
  /// Scratch of `scratch_bytes(n)` bytes, undefined on entry.
  std::span<std::byte> scratch{};
  /// The number of steps completed before this one, and the chunk's first element in the plan's
  /// flat index space.
  std::uint64_t step{};
  std::uint64_t first_element{};
  /// The rank that encodes. Ranks that round at random must not all round the same way.
  std::uint64_t rank{};
  /// The number of ranks that encode gradients.
  std::uint64_t ranks{1};
  /// The chunk's tensor, if the compressor's unit is a tensor, and `remembers(tensor)` floats of
  /// memory for it, if the compressor has several rounds.
  const tensor_facts* tensor{};
  float* remembered{};
  /// The factor by which gradients, and so residuals, are multiplied: by the loss scale and, where
  /// a rank encodes its own, by the number of passes, which are summed. A bound on magnitudes must
  /// be multiplied by it, too.
  float scale{1.0f};
  /// An offset for random numbers, added to `first_element`. It is not 0 where a launch has
  /// gathered chunks that are not neighbours. They then draw from numbers past the model's end that
  /// no other launch of the step draws from.
  std::uint64_t random_offset{};

  /// The counter at which this step's counter-based random numbers begin, and from which an error
  /// counts the elements.
  std::uint64_t drawn_from() const { return first_element + random_offset; }
  /// The context for this chunk's elements from `first` on.
  chunk_context from(std::size_t first) const {
    chunk_context rest = *this;
    rest.memory = memory == nullptr ? nullptr : memory + first;
    rest.first_element += first;
    return rest;
  }
  std::span<float> row(std::size_t i, std::size_t elements) const {
    return {memory + i * stride, elements};
  }
  /// The context for a decorated compressor, whose rows of memory follow the decorator's `taken`
  /// rows.
  chunk_context after(std::size_t taken) const {
    chunk_context inner = *this;
    inner.memory = memory == nullptr ? nullptr : memory + taken * stride;
    return inner;
  }
};

}  // namespace tutti
