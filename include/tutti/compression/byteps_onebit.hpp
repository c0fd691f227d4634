#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "tutti/base/error.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/bit_codes.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// The magnitude that a sign is multiplied by.
enum class sign_is_worth { mean_magnitude, one };

/// Returns the enumerators' names, in their order.
constexpr std::array<std::string_view, 2> names(sign_is_worth) { return {"mean_magnitude", "one"}; }

/// BytePS's `onebit`: each element becomes its sign times the chunk's mean magnitude, as in
/// `scaled_sign`, in BytePS's format. If a sign is worth 1, it is worth the factor by
/// which gradients are multiplied: by a loss scale, or because passes are summed.
/// Wire: a bit an element, 1 for a negative one, 32 in a word, the first in its top bit, padded
/// with 0; then the magnitude as a float.
/// Cost: 1/32 of the bytes; two passes to encode, one to accumulate. Under error feedback two
/// passes do everything, or one if a sign is worth 1.
/// After: BytePS, `byteps_compressor_type: onebit`, `byteps_compressor_onebit_scaling`.
class byteps_onebit {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  struct options {
    sign_is_worth worth{sign_is_worth::mean_magnitude};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("worth", self.worth, "what a sign is worth: mean_magnitude (BytePS's scaling) or one");
    }
  };

  constexpr byteps_onebit() = default;
  explicit constexpr byteps_onebit(const options& values) : options_(values) {}

  static constexpr std::size_t wire_bytes(std::size_t elements) {
    return kernels::code_bytes<kernels::sign_code>(elements) + sizeof(float);
  }

  constexpr void expect_magnitudes() const {
    if (!scales()) {
      throw usage_error(
          "compression::byteps_onebit: with worth one, parameters or their changes would arrive as "
          "1 or -1. Fix: worth mean_magnitude, or an architecture that carries gradients");
    }
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out,
              const chunk_context& where = {}) const {
    if (scales()) {
      kernels::mean_magnitude(queue, gradient, magnitude(out));
    } else {
      write_set_magnitude(queue, out, where);
    }
    kernels::pack_codes(queue, code(out), gradient, out.data);
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    const auto* worth = reinterpret_cast<const float*>(
        in.data + kernels::code_bytes<kernels::sign_code>(sum.size()));
    kernels::add_codes(queue, kernels::sign_code{worth}, in.data, sum);
  }

  /// Encodes gradient + residual; the residual becomes what the payload leaves behind.
  template <class Queue>
  void encode_with_residual(Queue& queue, std::span<const float> gradient,
                            std::span<float> residual, wire out, const chunk_context& where) const {
    if (scales()) {
      kernels::add_and_mean_magnitude(queue, residual, gradient, magnitude(out));
      kernels::pack_codes_and_subtract(queue, code(out), residual, out.data);
    } else {
      write_set_magnitude(queue, out, where);
      kernels::add_and_pack_codes(queue, code(out), residual, gradient, out.data);
    }
  }

 private:
  static constexpr float unscaled = 1;

  constexpr bool scales() const { return options_.worth == sign_is_worth::mean_magnitude; }
  template <class Queue>
  static void write_set_magnitude(Queue& queue, wire out, const chunk_context& where) {
    queue.copy(magnitude(out), &unscaled, sizeof unscaled);
    if (where.scale != 1) {
      kernels::scale(queue, std::span(magnitude(out), 1), where.scale);
    }
  }
  static float* magnitude(wire out) {
    return reinterpret_cast<float*>(out.data + out.size - sizeof(float));
  }
  static kernels::sign_code code(wire out) { return {magnitude(out)}; }

  options options_{};
};
static_assert(compression_policy<byteps_onebit>);

}  // namespace tutti::compression
