#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/low_rank.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// A tensor is seen as a matrix M, of its first dimension by the rest, and travels as the product
/// of two thin matrices. Each step makes one step of subspace iteration, which goes on from step to
/// step, and remembers what it leaves behind. With E the residual, sums over p ranks, and Q as the
/// last step has left it:
///
///     M = gradient + E;  P = sum of M Q;  P = orthonormal columns of P;
///     Q = sum of M' P;   mean = P Q' / p;  E = M - P Q' / p.
///
/// Q begins at random, equal on all ranks because it is drawn from the seed and the tensor's index.
/// A column of zeros is drawn again.
/// Wire: P, then Q, as floats, column by column: two sums. A tensor without a second dimension is
/// not shortened; `select` sends it as it is.
/// Cost: rank * (rows + columns) floats; a float of memory an element, and `rank` floats for every
/// column. M is read at most `rank` times a round to encode (on a GPU once for every four columns),
/// and written once to decode. On a device one thread block makes a tensor's columns orthonormal,
/// in a call for each tensor, because each tensor is a launch by itself. A step agrees with the
/// recurrence within 3 in 10^7 of the matrix's norm. If the columns of M Q are close to
/// dependent, later steps magnify the rounding of payloads to floats.
/// After: Vogels, Karimireddy and Jaggi, "PowerSGD", NeurIPS 2019.
class power_sgd {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = true;
  static constexpr tutti::unit unit = tutti::unit::tensor;
  static constexpr int rounds = 2;
  static constexpr std::size_t memory_per_element = 1;

  struct options {
    std::size_t rank{1};
    std::uint64_t seed{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("rank", self.rank, "number of columns of the two thin matrices");
      visit("seed", self.seed, "seed of the random values with which the first one begins");
    }
  };

  constexpr power_sgd() = default;
  /// Throws usage_error if the rank is 0.
  explicit constexpr power_sgd(const options& values) : options_(values) {
    if (values.rank == 0) {
      throw usage_error("compression::power_sgd: rank must be at least 1. Fix: 1");
    }
  }

  /// The tensor's dimensions as a matrix, and the rank that its factors can have.
  constexpr kernels::low_rank matrix(const tensor_facts& tensor) const {
    const std::size_t rows = tensor.shape.dimensions() == 0 ? tensor.elements : tensor.shape[0];
    const std::size_t columns = rows == 0 ? 0 : tensor.elements / rows;
    return {rows, columns, std::min({options_.rank, rows, columns})};
  }

  constexpr std::size_t wire_bytes(const tensor_facts& tensor, int round) const {
    const kernels::low_rank size = matrix(tensor);
    return (round == 0 ? size.rows : size.columns) * size.rank * sizeof(float);
  }
  constexpr std::size_t remembers(const tensor_facts& tensor) const {
    return wire_bytes(tensor, 1) / sizeof(float);
  }
  constexpr std::size_t scratch_bytes(const tensor_facts& tensor) const {
    return wire_bytes(tensor, 0);
  }

  template <class Queue>
  void encode(Queue& queue, int round, std::span<const float> gradient, wire out,
              const chunk_context& where) const {
    const kernels::low_rank size = matrix(*where.tensor);
    const std::span<float> input = where.row(0, gradient.size());
    if (round == 0) {
      kernels::fill_empty_columns(queue, where.remembered, size.columns, size.rank,
                                  kernels::counted_random(options_.seed)
                                      .stream(index(where.tensor->id))
                                      .stream(where.step));
      kernels::add_and_multiply(queue, input, gradient, where.remembered, size,
                                out.header<float>());
    } else {
      kernels::transposed_times_thin(queue, input.data(), left(where), size, out.header<float>());
    }
  }

  template <class Queue>
  void between(Queue& queue, int, const_wire sum, const chunk_context& where) const {
    const kernels::low_rank size = matrix(*where.tensor);
    queue.copy(left(where), sum.data, sum.size);
    kernels::orthonormalise(queue, left(where), size.rows, size.rank);
  }

  template <class Queue>
  void decode(Queue& queue, const_wire sum, std::span<float> mean, const chunk_context& where,
              const summed& over) const {
    queue.copy(where.remembered, sum.data, sum.size);
    kernels::expand_and_subtract(queue, left(where), sum.header<float>(), matrix(*where.tensor),
                                 over.average, over.ranks, mean, where.row(0, mean.size()));
  }

  template <class Queue>
  void fold(Queue& queue, wire into, const_wire from) const {
    kernels::add(queue, into.as<float>(), from.as<float>());
  }

 private:
  static float* left(const chunk_context& where) {
    return reinterpret_cast<float*>(where.scratch.data());
  }

  options options_{};
};
static_assert(compression_policy<power_sgd>);

}  // namespace tutti::compression
