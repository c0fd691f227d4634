#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/memory.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti {

/// What policies remember: rows of floats parallel to the parameters, in the flat index space.
/// Under another fusion, after a checkpoint or after a resize, every value is therefore found at
/// its place. All begin as 0.
template <class Queue>
class state_memory {
 public:
  state_memory(Queue& queue, std::size_t rows, std::size_t elements)
      : elements_(elements), floats_(allocate_zeros<float>(queue, rows * elements)) {}

  std::span<float> floats() { return span_of(floats_); }
  std::span<const float> floats() const { return span_of(floats_); }

  /// Copies `count` elements of each row from `other`, beginning with element `first`.
  void copy(Queue& queue, const state_memory& other, std::size_t first, std::size_t count) {
    for (std::size_t row = 0; row < floats_.size(); row += elements_) {
      queue.copy(floats_.data() + row + first, other.floats_.data() + row + first,
                 count * sizeof(float));
    }
  }

  chunk_context at(std::size_t first_element, std::span<std::byte> scratch, std::uint64_t step) {
    float* first = floats_.empty() ? nullptr : floats_.data() + first_element;
    return chunk_context{first, elements_, scratch, step, first_element};
  }

 private:
  std::size_t elements_;
  memory_of<float, Queue> floats_;
};

/// Converts what `C` remembers, in rows of one length, to gradients that are `factor` times as
/// large.
template <class C, class Queue>
[[gnu::cold]] void follow_gradients(Queue& queue, std::span<float> rows, float factor) {
  if constexpr (facts::memory_per_element<C> != 0) {
    const std::size_t length = rows.size() / facts::memory_per_element<C>;
    for (const unsigned degree : facts::memory_degrees<C>) {
      for (unsigned i = 0; i != degree; ++i) {
        kernels::scale(queue, rows.first(length), factor);
      }
      rows = rows.subspan(length);
    }
  }
}

/// Converts rows that lie on the host.
template <class C>
[[gnu::cold]] void follow_gradients(std::span<float> rows, float factor) {
  inline_queue now;
  follow_gradients<C>(now, rows, factor);
}

}  // namespace tutti
