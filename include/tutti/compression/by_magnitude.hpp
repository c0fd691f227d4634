#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/kernels/reaching.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Elements of at least a fixed magnitude travel, exactly, however many they are; what error
/// feedback remembers is below it. NaN travels.
/// Wire: how many elements there are, then the index and the value of each, in words of 4 bytes.
/// Cost: 8 bytes an element that travels, and room for all of them; one pass to encode. On host
/// queues only: a payload's length is known only from its encoding, and the host does not wait
/// until a stream has encoded (rule lengths_must_be_known).
/// After: Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing",
/// Interspeech 2015, who sends the magnitude in place of the value.
class by_magnitude {
 public:
  using role = tutti::role::compression;
  static constexpr bool summable = false;

  struct options {
    float magnitude{0.001f};
    double density{0.001};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("magnitude", self.magnitude, "smallest magnitude of an element that is sent");
      visit("density", self.density,
            "expected share of elements that are sent, for models of a network");
    }
  };

  constexpr by_magnitude() = default;
  /// Throws usage_error unless 0 <= magnitude and 0 <= density <= 1.
  explicit constexpr by_magnitude(const options& values) : options_(values) {
    if (!(values.magnitude >= 0)) {
      throw usage_error(
          "compression::by_magnitude: the magnitude must be at least 0, where 0 sends everything. "
          "Fix: 0.001");
    }
    if (!(values.density >= 0 && values.density <= 1)) {
      throw usage_error(
          "compression::by_magnitude: the expected density must be at least 0 and at most 1. Fix: "
          "0.001");
    }
  }

  /// Throws usage_error above 2^32 - 1 elements, because an index has 32 bits.
  constexpr std::size_t capacity(std::size_t elements) const {
    if (elements > std::numeric_limits<std::uint32_t>::max()) {
      throw usage_error(
          "compression::by_magnitude: a chunk of more than 2^32 - 1 elements cannot be indexed by "
          "32 bits. Fix: cut it with partition::into");
    }
    return kernels::reaching_bytes(elements);
  }
  constexpr std::size_t expected(std::size_t elements) const {
    return kernels::reaching_bytes(
        static_cast<std::size_t>(static_cast<double>(elements) * options_.density));
  }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out, const chunk_context& where,
              std::size_t* length) const {
    kernels::write_reaching(queue, gradient, where.scale * options_.magnitude, out.data, length);
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
  options options_{};
};
static_assert(compression_policy<by_magnitude>);

}  // namespace tutti::compression
