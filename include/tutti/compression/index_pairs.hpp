#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/index_pairs.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// How many elements of a chunk BytePS's `topk` and `randomk` send, and their layout: each value
/// behind its index.
/// Wire: count(n) times a 32-bit index and a float. As in BytePS, `density` is a share of the
/// chunk's length padded to a multiple of 32, computed in single precision. BytePS refuses more
/// than half of a chunk; here up to all of it may travel.
class index_pairs {
 public:
  constexpr index_pairs(double density, std::size_t k) : density_(density), k_(k) {
    if (!(density > 0 && density <= 1)) {
      throw usage_error(
          "compression::byteps_topk, byteps_randomk: density must be above 0 and at most 1. Fix: "
          "0.001 sends one element in a thousand");
    }
  }

  constexpr std::size_t count(std::size_t elements) const {
    const auto padded = static_cast<float>((elements + 31) / 32 * 32 * sizeof(float));
    const float share = static_cast<float>(density_) * padded / float{sizeof(float)};
    const std::size_t wanted = k_ != 0 ? k_ : static_cast<std::size_t>(share);
    return std::min(elements, std::max<std::size_t>(wanted, 1));
  }

  /// Throws usage_error above 2^32 - 1 elements, because an index has 32 bits.
  constexpr std::size_t wire_bytes(std::size_t elements) const {
    if (elements > std::numeric_limits<std::uint32_t>::max()) {
      throw usage_error(
          "compression::byteps_topk, byteps_randomk: a chunk of more than 2^32 - 1 elements cannot "
          "be indexed by 32 bits. Fix: cut it with partition::into");
    }
    return count(elements) * sizeof(kernels::index_pair);
  }

  static std::span<kernels::index_pair> pairs(wire out) { return out.as<kernels::index_pair>(); }
  static std::span<const kernels::index_pair> pairs(const_wire in) {
    return in.as<kernels::index_pair>();
  }

 private:
  double density_;
  std::size_t k_;
};

}  // namespace tutti::compression
