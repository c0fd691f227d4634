#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "tutti/base/error.hpp"
#include "tutti/kernels/bit_codes.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// MXNet's gradient compression. With two bits, an element of at least the threshold becomes the
/// threshold, one of at most its negative becomes the negative, and any other becomes 0. With one
/// bit, an element above the threshold becomes 1 and any other -1. Meant for use under
/// error_feedback, whose residual then is MXNet's. Where gradients are multiplied, by a loss scale
/// or because passes are summed, the threshold and what elements become are multiplied alike, which
/// MXNet leaves to the user.
/// Wire: `Bits` bits an element, neighbours in a byte, the first in its upper bits, in whole words
/// of 4 bytes.
/// Cost: 1/16 or 1/32 of the bytes; one pass to encode, also under error feedback, one to
/// accumulate. NaN is encoded like a small element, and stays in the residual.
/// After: MXNet's kvstore, `set_gradient_compression({'type': '2bit', 'threshold': 0.5})`. Its
/// workers compress what they push, and pull full precision (push_only.hpp).
template <unsigned Bits>
requires(Bits == 1 || Bits == 2) class threshold {
  using code = std::conditional_t<Bits == 1, kernels::one_bit_code, kernels::two_bit_code>;

 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  static constexpr bool sends_signs_alone = Bits == 1;
  static constexpr bool sends_set_values = true;
  static constexpr tutti::unit unit = tutti::unit::block;

  struct options {
    float threshold{0.5f};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("threshold", self.threshold,
            "two bits: smallest magnitude that is sent; one bit: elements above it become 1, "
            "others -1");
    }
  };

  constexpr threshold() = default;
  /// Throws usage_error if the threshold is NaN, or, with two bits, not above 0.
  explicit constexpr threshold(const options& values) : code_{values.threshold} {
    if (values.threshold != values.threshold) {
      throw usage_error("compression::threshold: the threshold is not a number. Fix: 0.5");
    }
    if (Bits == 2 && !(values.threshold > 0)) {
      throw usage_error(
          "compression::two_bit: the threshold must be above 0, or every element is sent as the "
          "threshold. Fix: 0.5");
    }
  }

  /// The number of elements in a word, so that chunks end where MXNet's do.
  static constexpr std::size_t block() { return 32 / Bits; }
  static constexpr std::size_t wire_bytes(std::size_t elements) {
    return kernels::code_bytes<code>(elements);
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out,
              const chunk_context& where = {}) const {
    kernels::pack_codes(queue, code_.times(where.scale), gradient, out.data);
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum,
                  const chunk_context& where = {}) const {
    kernels::add_codes(queue, code_.times(where.scale), in.data, sum);
  }

  /// Encodes gradient + residual; the residual becomes what the payload leaves behind.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context& where) const {
    kernels::add_and_pack_codes(queue, code_.times(where.scale), residual, gradient, out.data);
  }

 private:
  code code_{options{}.threshold};
};
using one_bit = threshold<1>;
using two_bit = threshold<2>;
static_assert(compression_policy<one_bit> && compression_policy<two_bit>);

}  // namespace tutti::compression
