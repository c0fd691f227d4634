#pragma once

#include <cstddef>
#include <span>

#include "tutti/compression/top_k.hpp"
#include "tutti/kernels/reaching.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Elements of at least the k-th largest magnitude travel, exactly: the k largest, and any others
/// that are as large as the last of these, but never zeros. NaN travels. An architecture may keep
/// that magnitude from one step to the next; then all elements travel that reach it, however many.
/// Wire: how many elements there are, then the index and the value of each, in words of 4 bytes; k
/// as in top_k.
/// Cost: 8 bytes an element that travels, and room for all of them; up to five passes to find the
/// magnitude, one to encode from it. On host queues only, as by_magnitude; top_k, which sends
/// exactly k, runs on devices too.
/// After: Li and Hoefler, "Near-optimal sparse allreduce for distributed deep learning", PPoPP
/// 2022, section 3.1.3.
class by_kth_magnitude {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  using options = top_k::options;

  constexpr by_kth_magnitude() = default;
  /// Throws usage_error unless 0 < density <= 1.
  explicit constexpr by_kth_magnitude(const options& values) : largest_(values) {}

  /// How many of `elements` elements travel if no others are as large as the last of them.
  constexpr std::size_t selected(std::size_t elements) const { return largest_.selected(elements); }
  /// Throws usage_error above 2^32 - 1 elements, because an index has 32 bits.
  constexpr std::size_t capacity(std::size_t elements) const {
    static_cast<void>(largest_.wire_bytes(elements));
    return kernels::reaching_bytes(elements);
  }
  constexpr std::size_t expected(std::size_t elements) const {
    return kernels::reaching_bytes(selected(elements));
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out, const chunk_context&,
              std::size_t* length) const {
    kernels::write_reaching_kth(queue, gradient, selected(gradient.size()), out.data, length);
  }

  template <class Queue>
  void find_magnitude(Queue& queue, std::span<const float> values, float* magnitude) const {
    kernels::find_kth_magnitude(queue, values, selected(values.size()), magnitude);
  }

  template <class Queue>
  void encode_from(Queue& queue, float magnitude, std::span<const float> values, wire out,
                   std::size_t* length) const {
    kernels::write_reaching(queue, values, magnitude, out.data, length);
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_reaching(queue, in.bytes(), sum);
  }

  template <class Queue>
  void clear_sent(Queue& queue, const_wire in, std::span<float> values) const {
    kernels::clear_reaching(queue, in.bytes(), values);
  }

 private:
  top_k largest_{};
};
static_assert(compression_policy<by_kth_magnitude> && reaches_a_magnitude<by_kth_magnitude>);

}  // namespace tutti::compression
