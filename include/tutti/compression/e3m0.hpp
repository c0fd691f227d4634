#pragma once

#include <cstddef>
#include <span>

#include "tutti/kernels/bit_codes.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Each element becomes a floating-point number of four bits, a sign and an exponent. The exponent
/// selects the nearest of seven powers of two, the greatest of which is the one nearest to the
/// chunk's largest magnitude. A magnitude below half the least of them becomes zero.
/// Wire: the largest magnitude as a float, then four bits an element, eight elements in a word,
/// padded with 0. A chunk that holds an infinity or NaN arrives as NaN in every element.
/// Cost: an eighth of the bytes; two passes to encode, one to accumulate.
/// After: Douillard et al., "Streaming DiLoCo with overlapping communication", 2025, which sends
/// outer gradients as E3M0, adds them as floats and leaves the scale open.
struct e3m0 {
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  static constexpr std::size_t wire_bytes(std::size_t elements) {
    return sizeof(float) + kernels::code_bytes<kernels::e3m0_code>(elements);
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    float* const largest = out.header<float>();
    kernels::largest_magnitude(queue, gradient, largest);
    kernels::pack_codes(queue, kernels::e3m0_code{largest}, gradient, out.data + sizeof(float));
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add_codes(queue, kernels::e3m0_code{in.header<float>()}, in.data + sizeof(float), sum);
  }
};
static_assert(compression_policy<e3m0>);

}  // namespace tutti::compression
