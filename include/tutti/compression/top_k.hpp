#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/sparse_pairs.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Only the k elements of largest magnitude travel, exactly; of equal ones the first.
/// Wire: k indices in the chunk, ascending, as 32-bit words, then their k values as floats; k =
/// max(floor(n * density), 1), and 0 for an empty chunk.
/// Cost: 8k bytes; about one read of the chunk to select (five on a device for less than 2^20
/// elements); k additions to accumulate.
/// After: Aji and Heafield, "Sparse Communication", 2017; Shi et al., "gTopK", 2019 (the rule for
/// k).
class top_k {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  struct options {
    double density{0.001};
    std::size_t k{0};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("density", self.density, "share of each chunk's elements that is sent");
      visit("k", self.k, "number of elements sent from each chunk; 0: set by density");
    }
  };

  constexpr top_k() = default;
  /// Throws usage_error unless 0 < density <= 1.
  explicit constexpr top_k(const options& values) : options_(values) {
    if (!(values.density > 0 && values.density <= 1)) {
      throw usage_error(
          "compression::top_k: density must be above 0 and at most 1. Fix: 0.001 sends one element "
          "in a thousand");
    }
  }

  /// How many of `elements` elements travel.
  constexpr std::size_t selected(std::size_t elements) const {
    const std::size_t wanted =
        options_.k != 0
            ? options_.k
            : static_cast<std::size_t>(static_cast<double>(elements) * options_.density);
    return std::min(elements, std::max<std::size_t>(wanted, 1));
  }

  /// Throws usage_error above 2^32 - 1 elements, because an index has 32 bits.
  constexpr std::size_t wire_bytes(std::size_t elements) const {
    if (elements > std::numeric_limits<std::uint32_t>::max()) {
      throw usage_error(
          "compression::top_k: a chunk of more than 2^32 - 1 elements cannot be indexed by 32 "
          "bits. Fix: cut it with partition::into");
    }
    return selected(elements) * pair_bytes;
  }

  constexpr std::size_t scratch_bytes(std::size_t elements) const {
    return kernels::selection_candidates(elements, selected(elements)) * pair_bytes;
  }

  /// Throws usage_error for a NaN, and names its place.
  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out,
              const chunk_context& where) const {
    kernels::select_largest(queue, gradient, where.drawn_from(), {indices(out), values(out)},
                            room(where.scratch));
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::scatter_add(queue, indices(in), values(in), sum);
  }

  /// Encodes gradient + residual; the residual keeps whatever does not travel.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context& where) const {
    kernels::add(queue, residual, gradient);
    encode(queue, residual, out, where);
    kernels::clear_at(queue, residual, indices(out));
  }

  template <class Queue>
  void clear_sent(Queue& queue, const_wire payload, std::span<float> values) const {
    kernels::clear_at(queue, values, indices(payload));
  }

  template <class Queue>
  void select(Queue& queue, std::span<const float> values, wire out,
              const chunk_context& where) const {
    encode(queue, values, out, where);
  }

  constexpr std::size_t merging_bytes(std::size_t elements) const {
    const std::size_t k = selected(elements);
    return (2 * k + kernels::selection_candidates(2 * k, k)) * pair_bytes;
  }

  /// Keeps the k largest elements of both payloads' sum; of equal ones the first. If fewer than k
  /// elements are not zero, an element may come twice, the second time with the value 0.
  template <class Queue>
  void merge(Queue& queue, wire into, const_wire from, std::span<float> left_out,
             const chunk_context& where) const {
    const std::size_t all = count(into) + count(from);
    auto* both = reinterpret_cast<float*>(where.scratch.data());
    auto* whose = reinterpret_cast<std::uint32_t*>(both + all);
    const kernels::pairs sums{{whose, all}, both};
    kernels::merge_pairs(queue, pairs(into), pairs(from), {{whose, all}, both});
    kernels::select_largest(queue, sums, where.drawn_from(), {indices(into), values(into)},
                            room(where.scratch.subspan(all * pair_bytes)));
    if (!left_out.empty()) {
      kernels::add_absent(queue, sums, indices(into), left_out);
    }
  }
  template <class Queue>
  void add_absent(Queue& queue, const_wire payload, const_wire others, std::span<float> sum) const {
    if (!sum.empty()) {
      kernels::add_absent(queue, pairs(payload), indices(others), sum);
    }
  }

 private:
  static constexpr std::size_t pair_bytes = sizeof(std::uint32_t) + sizeof(float);

  static kernels::pairs pairs(const_wire in) { return {indices(in), values(in)}; }
  static std::span<std::uint32_t> indices(wire out) {
    return out.as<std::uint32_t>().first(count(out));
  }
  static std::span<const std::uint32_t> indices(const_wire in) {
    return in.as<std::uint32_t>().first(count(in));
  }
  static float* values(wire out) { return out.header<float>() + count(out); }
  static const float* values(const_wire in) { return in.header<float>() + count(in); }
  static std::size_t count(const_wire in) { return in.size / pair_bytes; }
  static kernels::candidates room(std::span<std::byte> scratch) {
    const std::size_t places = scratch.size() / pair_bytes;
    auto* values = reinterpret_cast<float*>(scratch.data());
    auto* indices = reinterpret_cast<std::uint32_t*>(values + places);
    return {{values, places}, {indices, places}};
  }

  options options_{};
};
static_assert(compression_policy<top_k>);

}  // namespace tutti::compression
