#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/widest.hpp"

// Two vectors are added so that what they have in common counts once: the sum where they are
// orthogonal, the mean where they are equal.
namespace tutti::kernels {

/// The products of two vectors that their adaptive sum needs.
struct inner_products {
  double dot{};     ///< of one with the other
  double first{};   ///< of the first with itself
  double second{};  ///< of the second with itself
};

/// Which of the two vectors one is.
enum class operand { first, second };

namespace element {

/// What a vector is multiplied by: 1 where it is as good as zero.
TUTTI_HD inline double adaptive_weight(double dot, double square) {
  constexpr double as_good_as_zero = 0x1p-511;  // its square is the least normal double
  return square < as_good_as_zero ? 1.0 : 1.0 - dot / square * 0.5;
}

/// In double, rounded once.
struct weighted_sum {
  double of_one;
  double of_other;
  TUTTI_HD float operator()(float one, float other) const {
    return static_cast<float>(of_one * static_cast<double>(one) +
                              of_other * static_cast<double>(other));
  }
};

/// Of the operand at `place`, then of the other one.
TUTTI_HD inline weighted_sum weighted_by(const inner_products& all, operand place) {
  const double of_first = adaptive_weight(all.dot, all.first);
  const double of_second = adaptive_weight(all.dot, all.second);
  return place == operand::first ? weighted_sum{of_first, of_second}
                                 : weighted_sum{of_second, of_first};
}

/// Both vectors' products at one place; a device's term.
struct products_at {
  const float* one;
  const float* other;
  TUTTI_HD inner_products operator()(std::size_t i) const {
    const double first = one[i];
    const double second = other[i];
    return {first * second, first * first, second * second};
  }
};

struct sum_of_products {
  TUTTI_HD inner_products operator()(const inner_products& a, const inner_products& b) const {
    return {a.dot + b.dot, a.first + b.first, a.second + b.second};
  }
};

struct exact_product {
  const float* one;
  const float* other;
  TUTTI_HD double operator()(std::size_t i) const {
    return static_cast<double>(one[i]) * static_cast<double>(other[i]);
  }
};

/// A device's element: there the products are known to the queue alone.
struct add_adaptively {
  const inner_products* known;
  operand place;
  TUTTI_HD void operator()(float& into, float from) const {
    into = weighted_by(*known, place)(into, from);
  }
};

struct add_products {
  inner_products* into;
  const inner_products* from;
  TUTTI_HD void operator()(std::size_t i) const {
    into[i].dot += from[i].dot;
    into[i].first += from[i].first;
    into[i].second += from[i].second;
  }
};

}  // namespace element

/// *result becomes the products of two vectors of one length, added in double in a fixed order. A
/// product of two floats is exact. A device's order is another, which is CUB's.
/// Cost: one read of both.
template <host_queue Queue>
void multiply(Queue& queue, std::span<const float> first, std::span<const float> second,
              inner_products* result) {
  queue.run([=] {
    widest([=] {
      constexpr std::size_t block = 2048;  // both stay in the first-level cache for three sums
      inner_products sum;
      for (std::size_t begin = 0; begin < first.size(); begin += block) {
        const std::size_t n = std::min(block, first.size() - begin);
        const float* const one = first.data() + begin;
        const float* const other = second.data() + begin;
        sum.dot += sum_in_lanes(n, element::exact_product{one, other});
        sum.first += sum_in_lanes(n, element::exact_product{one, one});
        sum.second += sum_in_lanes(n, element::exact_product{other, other});
      }
      *result = sum;
    });
  });
}
void multiply(cuda::stream& queue, std::span<const float> first, std::span<const float> second,
              inner_products* result);

/// into[i] += from[i], each of the three.
template <host_queue Queue>
void add_products(Queue& queue, std::span<inner_products> into,
                  std::span<const inner_products> from) {
  queue.run([=] {
    for (std::size_t i = 0; i < into.size(); ++i) {
      element::add_products{into.data(), from.data()}(i);
    }
  });
}
void add_products(cuda::stream& queue, std::span<inner_products> into,
                  std::span<const inner_products> from);

// Not compiled for wider vectors, where a processor would offer to round a product and a sum once:
// what comes out does not depend on the processor.

/// into[i] = (1 - dot / (2 a)) * into[i] + (1 - dot / (2 b)) * from[i], in double, rounded once,
/// where `into` is the operand at `place` of the `known` products, a its product with itself, and b
/// that of the other one. The products may be of longer vectors, of which these are parts.
template <host_queue Queue>
void add_adaptively(Queue& queue, std::span<float> into, std::span<const float> from,
                    const inner_products* known, operand place) {
  queue.run([=] {
    const element::weighted_sum sum = element::weighted_by(*known, place);
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] = sum(into[i], from[i]);
    }
  });
}
void add_adaptively(cuda::stream& queue, std::span<float> into, std::span<const float> from,
                    const inner_products* known, operand place);

}  // namespace tutti::kernels
