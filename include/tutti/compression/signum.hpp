#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// The sign of each element's momentum, m = beta * m + (1 - beta) * g, as one vote, which is worth
/// what it is in `sign`. An optimizer that keeps a momentum of the result is refused.
/// Wire: as `sign`.
/// Cost: 1/32 of the bytes; one float of memory an element; two passes to encode.
/// After: Bernstein et al., "signSGD with Majority Vote", 2018 (Signum).
class signum {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  static constexpr bool sends_signs_alone = true;
  static constexpr bool keeps_momentum = true;
  static constexpr std::size_t memory_per_element = 1;

  struct options {
    double beta{0.9};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("beta", self.beta, "share of the momentum that is kept each step; 0: plain sign");
    }
  };

  constexpr signum() = default;
  /// Throws usage_error unless 0 <= beta < 1.
  explicit constexpr signum(const options& values) : options_(values) {
    if (!(values.beta >= 0 && values.beta < 1)) {
      throw usage_error("compression::signum: beta must be at least 0 and below 1. Fix: 0.9");
    }
  }

  static constexpr std::size_t wire_bytes(std::size_t elements) {
    return sign::wire_bytes(elements);
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out,
              const chunk_context& where) const {
    const std::span<float> momentum = where.row(0, gradient.size());
    kernels::blend(queue, momentum, gradient, static_cast<float>(options_.beta),
                   static_cast<float>(1 - options_.beta));
    sign{}.encode(queue, momentum, out);
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum,
                  const chunk_context& where = {}) const {
    sign{}.accumulate(queue, in, sum, where);
  }

  template <class Queue>
  void vote(Queue& queue, payload_row ballots, wire out) const {
    sign{}.vote(queue, ballots, out);
  }

  /// Copies the momentum whose signs were the last votes.
  template <class Queue>
  void voted_on(Queue& queue, std::span<float> momentum, const chunk_context& where) const {
    const std::span<float> row = where.row(0, momentum.size());
    queue.copy(momentum.data(), row.data(), row.size_bytes());
  }

  /// Plain signs, because a sum of votes has no momentum of its own.
  constexpr sign relay() const { return {}; }

 private:
  options options_{};
};
static_assert(compression_policy<signum>);

}  // namespace tutti::compression
