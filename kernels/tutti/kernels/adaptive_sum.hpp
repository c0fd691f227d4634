#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sum_in_lanes.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

// Adds two vectors so that what they have in common counts once: the result is their sum if they
// are orthogonal, and their mean if they are equal.
namespace tutti::kernels {

/// The inner products of two vectors that their adaptive sum needs.
struct inner_products {
  double dot{};     ///< of one with the other
  double first{};   ///< of the first with itself
  double second{};  ///< of the second with itself
};

/// Which of the two vectors of an adaptive sum an operand is.
enum class operand { first, second };

namespace element {

/// Returns the factor of a vector in the adaptive sum: 1 if the vector is as good as zero.
TUTTI_HD inline double adaptive_weight(double dot, double square) {
  constexpr double as_good_as_zero = 0x1p-511;  // its square is the least normal double
  return square < as_good_as_zero ? 1.0 : 1.0 - dot / square * 0.5;
}

/// The weighted sum of two numbers, in double and rounded once.
struct weighted_sum {
  double of_one;
  double of_other;
  TUTTI_HD float operator()(float one, float other) const {
    return static_cast<float>(product(of_one, static_cast<double>(one)) +
                              product(of_other, static_cast<double>(other)));
  }
};

/// Returns the adaptive sum's weights: first that of the operand at `place`, then that of the other
/// one.
TUTTI_HD inline weighted_sum weighted_by(const inner_products& all, operand place) {
  const double of_first = adaptive_weight(all.dot, all.first);
  const double of_second = adaptive_weight(all.dot, all.second);
  return place == operand::first ? weighted_sum{of_first, of_second}
                                 : weighted_sum{of_second, of_first};
}

/// The three products of the vectors' elements at one place, which a device adds up.
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

/// Adds an element adaptively on a device, where only the queue knows the products.
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

/// *result becomes the inner products of two vectors of one length, added in double in a fixed
/// order. Each product of two floats is exact. A device adds in CUB's order instead.
/// Cost: one read of both.
template <host_queue Queue>
void multiply(Queue& queue, std::span<const float> first, std::span<const float> second,
              inner_products* result) {
  queue.run([=] {
    widest([=] {
      // So few elements that those of both vectors stay in the first-level cache for three sums.
      constexpr std::size_t block = 2048;
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

/// into[i] += from[i], for each of the three products.
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

// The loop below is not compiled for wider vectors, because processors with these could round a
// product and a sum only once, and the result must not depend on the processor.

/// into[i] = (1 - dot / (2 a)) * into[i] + (1 - dot / (2 b)) * from[i], in double and rounded once.
/// `into` is the operand at `place` of the `known` products, a is its product with itself, and b
/// that of the other operand. The products may be those of longer vectors, of which these are
/// parts.
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
