#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <tutti/compression/error_feedback.hpp>
#include <tutti/core/compose.hpp>

// example-begin compressor
/// One byte an element, and one scale a chunk: the largest magnitude is 127.
struct byte_codes {
  using role = tutti::role::compression;
  static constexpr bool summable = false;  // codes of different scales do not add

  static std::size_t wire_bytes(std::size_t elements) { return sizeof(float) + elements; }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, tutti::wire wire) const {
    queue.run([=] {
      float largest = 0;
      for (const float each : gradient) largest = std::max(largest, std::abs(each));
      const float scale = *wire.header<float>() = largest > 0 ? largest / 127 : 1;
      for (std::size_t i = 0; i < gradient.size(); ++i)
        wire.body<float>()[i] = std::byte(static_cast<int>(std::lround(gradient[i] / scale)));
    });
  }
  template <class Queue>
  void accumulate(Queue& queue, tutti::const_wire wire, std::span<float> sum) const {
    queue.run([=] {
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += *wire.header<float>() * static_cast<signed char>(wire.body<float>()[i]);
    });
  }
};
static_assert(tutti::compression_policy<byte_codes>);

using Mine = tutti::compose<tutti::compression::error_feedback<byte_codes>>;
// example-end
