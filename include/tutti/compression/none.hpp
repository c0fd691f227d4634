#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// The gradient travels as it is.
/// Wire: n floats.
/// Cost: nothing; collectives work on the gradient in place.
/// After: what every system does without a compressor.
struct none {
  using role = tutti::role::compression;
  static constexpr bool summable = true;
  static constexpr bool identity = true;
  static constexpr bool lossless = true;

  static constexpr std::size_t wire_bytes(std::size_t elements) { return elements * sizeof(float); }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    queue.copy(out.data, gradient.data(), out.size);
  }

  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add(queue, sum, in.as<float>());
  }

  template <class Queue>
  void fold(Queue& queue, wire into, const_wire from) const {
    kernels::add(queue, into.as<float>(), from.as<float>());
  }

  template <host_queue Queue, std::size_t Count>
  void fold_everywhere(Queue& queue, const std::array<wire, Count>& all) const {
    std::array<float*, Count> floats;
    std::transform(all.begin(), all.end(), floats.begin(),
                   [](wire each) { return each.as<float>().data(); });
    kernels::add_everywhere(queue, floats, all[0].size / sizeof(float));
  }
};
static_assert(compression_policy<none>);

}  // namespace tutti::compression
