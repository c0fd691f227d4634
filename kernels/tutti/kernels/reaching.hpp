#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/kernels/elements.hpp"

// As many elements as reach a magnitude, behind how many they are. A host's alone: how long a
// payload is, nobody knows before it is written.
namespace tutti::kernels {

/// An element that reaches the magnitude, and its place.
struct reaching_element {
  std::uint32_t index;
  float value;
};

constexpr std::size_t reaching_bytes(std::size_t count) {
  return sizeof(std::uint32_t) + count * sizeof(reaching_element);
}

namespace detail {

/// Calls `visit(element)` for those of the payload that there is room for.
template <class Visit>
void for_each_reaching(std::span<const std::byte> payload, std::size_t elements,
                       const Visit& visit) {
  if (payload.size() < sizeof(std::uint32_t)) {
    return;
  }
  std::uint32_t stated = 0;
  std::memcpy(&stated, payload.data(), sizeof stated);
  const auto* const found =
      reinterpret_cast<const reaching_element*>(payload.data() + sizeof stated);
  const std::size_t count =
      std::min<std::size_t>(stated, (payload.size() - sizeof stated) / sizeof(reaching_element));
  for (std::size_t i = 0; i < count; ++i) {
    if (found[i].index < elements) {
      visit(found[i]);
    }
  }
}

}  // namespace detail

/// Writes how many elements reach the magnitude and which, in order, into room for
/// reaching_bytes(n); *length becomes the bytes of those. NaN reaches every magnitude.
template <host_queue Queue>
void write_reaching(Queue& queue, std::span<const float> input, float magnitude, std::byte* out,
                    std::size_t* length) {
  queue.run([=] {
    auto* const found = reinterpret_cast<reaching_element*>(out + sizeof(std::uint32_t));
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < input.size(); ++i) {  // without a branch: kept if it counts
      found[count] = {static_cast<std::uint32_t>(i), input[i]};
      count += key_of(input[i]) >= key_of(magnitude) ? 1 : 0;
    }
    std::memcpy(out, &count, sizeof count);
    *length = reaching_bytes(count);
  });
}

/// sum[index] += value. A payload that is none adds something within its own bounds.
template <host_queue Queue>
void add_reaching(Queue& queue, std::span<const std::byte> payload, std::span<float> sum) {
  queue.run([=] {
    detail::for_each_reaching(payload, sum.size(),
                              [=](const reaching_element& each) { sum[each.index] += each.value; });
  });
}

/// data[index] = 0.
template <host_queue Queue>
void clear_reaching(Queue& queue, std::span<const std::byte> payload, std::span<float> data) {
  queue.run([=] {
    detail::for_each_reaching(payload, data.size(),
                              [=](const reaching_element& each) { data[each.index] = 0; });
  });
}

}  // namespace tutti::kernels
