#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "tutti/compression/index_pairs.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// BytePS's `topk`: only the k elements of largest magnitude travel, exactly, in BytePS's format.
/// Wire: index_pairs. The pairs are a heap of magnitudes as libstdc++ makes it, the smallest first.
/// A later element enters the heap only if it is larger than the smallest, whose place it takes, so
/// of equal elements those that are there stay. `top_k` sends the first of equal ones, in the order
/// of indices.
/// Cost: 8k bytes; one read of the chunk, and log k comparisons for each element that enters; k
/// additions to accumulate. On a device one thread block reads the chunk and one of its threads
/// keeps the heap, about k ln(n / k) entries one after the other, and accumulating takes k * k / 2
/// comparisons; `top_k` is made for devices. Throws usage_error for a NaN, which BytePS takes for
/// smaller or for larger than everything.
/// After: BytePS, `byteps_compressor_type: topk`.
class byteps_topk {
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

  constexpr byteps_topk() : byteps_topk(options{}) {}
  /// Throws usage_error unless 0 < density <= 1.
  explicit constexpr byteps_topk(const options& values) : layout_(values.density, values.k) {}

  constexpr std::size_t wire_bytes(std::size_t elements) const {
    return layout_.wire_bytes(elements);
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out,
              const chunk_context& where) const {
    kernels::select_by_heap(queue, gradient, where.drawn_from(), index_pairs::pairs(out));
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_pairs(queue, index_pairs::pairs(in), sum);
  }

  /// Encodes gradient + residual; the residual keeps whatever does not travel.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context& where) const {
    kernels::add(queue, residual, gradient);
    encode(queue, residual, out, where);
    kernels::clear_pairs(queue, residual, index_pairs::pairs(out));
  }

  template <class Queue>
  void clear_sent(Queue& queue, const_wire payload, std::span<float> values) const {
    kernels::clear_pairs(queue, values, index_pairs::pairs(payload));
  }

 private:
  index_pairs layout_;
};
static_assert(compression_policy<byteps_topk>);

}  // namespace tutti::compression
