#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/units.hpp"
#include "tutti/kernels/collect.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/widest.hpp"

// Payloads of all elements that reach a magnitude, preceded by their number. Only hosts have them,
// because the length of such a payload is not known before it is written.
namespace tutti::kernels {

/// An element that reaches the magnitude, and its index.
struct reaching_element {
  std::uint32_t index;
  float value;
};

constexpr std::size_t reaching_bytes(std::size_t count) {
  return sizeof(std::uint32_t) + count * sizeof(reaching_element);
}
constexpr std::size_t reaching_count(std::size_t bytes) {
  return bytes < reaching_bytes(0) ? 0 : (bytes - reaching_bytes(0)) / sizeof(reaching_element);
}
/// Returns the bytes of a payload that hold elements [first, first + count).
inline std::span<std::byte> reaching_part(std::span<std::byte> payload, std::size_t first,
                                          std::size_t count) {
  return payload.subspan(reaching_bytes(first), count * sizeof(reaching_element));
}

namespace detail {

/// Returns a payload's elements. Throws communication_error if it states more elements than it
/// holds.
inline std::span<const reaching_element> elements_in(std::span<const std::byte> payload) {
  if (payload.size() < sizeof(std::uint32_t)) {
    return {};
  }
  std::uint32_t stated = 0;
  std::memcpy(&stated, payload.data(), sizeof stated);
  if (stated > reaching_count(payload.size())) {
    throw communication_error(sentence({"a payload states ", stated, " elements but holds ",
                                        reaching_count(payload.size()),
                                        ". Fix: give every rank the same compression options"}));
  }
  return {reinterpret_cast<const reaching_element*>(payload.data() + sizeof stated), stated};
}

inline std::size_t count_reaching(std::span<const float> input, float magnitude) {
  std::uint32_t count = 0;  // as wide as an element, and an index
  widest([&] {
    take_from_four_places(
        input, [&](float each) { count += key_of(each) >= key_of(magnitude) ? 1U : 0U; });
  });
  return count;
}

/// Returns the k-th largest magnitude, or the least positive float if that is 0. If a sample
/// suggests a floor and at least k elements reach it, only those are counted, otherwise all.
inline float kth_magnitude(std::span<const float> input, std::size_t k) {
  std::uint32_t key = 0;
  if (k != 0) {
    std::uint32_t floor = likely_floor(input, k);
    if (floor != 0 && count_reaching(input, std::bit_cast<float>(floor)) < k) {
      floor = 0;
    }
    const auto for_each_key = [input](std::uint32_t least, std::uint32_t, const auto& take) {
      for_each_reaching(input, least, [&](std::size_t i) { take(key_of(input[i])); });
    };
    key = kth_largest(input.size(), k, floor, largest_key(input), for_each_key).key;
  }
  return std::bit_cast<float>(std::max(key, 1u));
}

/// Writes how many elements reach the magnitude, and these in order. `out` has room for all n
/// elements, reaching_bytes(n). Returns the bytes that are written.
inline std::size_t write_reaching(std::span<const float> input, float magnitude, std::byte* out) {
  auto* const found = reinterpret_cast<reaching_element*>(out + sizeof(std::uint32_t));
  std::uint32_t count = 0;
  for_each_reaching(input, key_of(magnitude), [&](std::size_t i) {
    found[count++] = {static_cast<std::uint32_t>(i), input[i]};
  });
  std::memcpy(out, &count, sizeof count);
  return reaching_bytes(count);
}

}  // namespace detail

/// *magnitude becomes the k-th largest magnitude of the input, 0 < k <= n, or the least positive
/// float if that is 0, so that zeros never reach it.
template <host_queue Queue>
void find_kth_magnitude(Queue& queue, std::span<const float> input, std::size_t k,
                        float* magnitude) {
  queue.run([=] { *magnitude = detail::kth_magnitude(input, k); });
}

/// Writes how many elements reach the magnitude, and these in order. `out` has room for all n
/// elements, reaching_bytes(n). *length becomes the bytes that are written. NaN reaches every
/// magnitude.
template <host_queue Queue>
void write_reaching(Queue& queue, std::span<const float> input, float magnitude, std::byte* out,
                    std::size_t* length) {
  queue.run([=] { *length = detail::write_reaching(input, magnitude, out); });
}
/// Writes the elements that reach the k-th largest magnitude of `input`.
template <host_queue Queue>
void write_reaching_kth(Queue& queue, std::span<const float> input, std::size_t k, std::byte* out,
                        std::size_t* length) {
  queue.run([=] { *length = detail::write_reaching(input, detail::kth_magnitude(input, k), out); });
}

/// *count becomes how many elements reach the magnitude.
template <host_queue Queue>
void count_reaching(Queue& queue, std::span<const float> input, float magnitude,
                    std::size_t* count) {
  queue.run([=] { *count = detail::count_reaching(input, magnitude); });
}

/// Cuts the input so that all parts have equally many elements that reach the magnitude, and writes
/// where each part but the first begins. If no element reaches it, the parts are equally long.
template <host_queue Queue>
void divide_reaching(Queue& queue, std::span<const float> input, float magnitude,
                     std::span<std::uint32_t> begins) {
  queue.run([=] {
    const std::size_t parts = begins.size() + 1;
    const std::size_t count = detail::count_reaching(input, magnitude);
    for (std::size_t part = 1; part < parts && count == 0; ++part) {
      begins[part - 1] = static_cast<std::uint32_t>(part_begin(input.size(), parts, part));
    }
    std::size_t part = 1;
    std::size_t before = 0;
    for_each_reaching(input, key_of(magnitude), [&](std::size_t i) {
      for (; part < parts && part * count / parts == before; ++part) {
        begins[part - 1] = static_cast<std::uint32_t>(i);
      }
      ++before;
    });
  });
}

/// Sets elements that do not reach the magnitude to 0.
template <host_queue Queue>
void keep_reaching(Queue& queue, std::span<float> data, float magnitude) {
  queue.run([=] {
    widest([=] {
      for (float& each : data) {
        each = key_of(each) >= key_of(magnitude) ? each : 0.0f;
      }
    });
  });
}

/// Sets elements that reach the magnitude to 0 where `other` is not 0.
template <host_queue Queue>
void clear_reaching_where(Queue& queue, std::span<float> data, float magnitude,
                          std::span<const float> other) {
  queue.run([=] {
    for_each_reaching(data, key_of(magnitude), [=](std::size_t i) {
      if (other[i] != 0) {
        data[i] = 0;
      }
    });
  });
}

/// sum[index] += value. Throws communication_error, and adds nothing, if an index is not below
/// sum.size() or the payload is cut short.
template <host_queue Queue>
void add_reaching(Queue& queue, std::span<const std::byte> payload, std::span<float> sum) {
  queue.run([=] {
    const auto found = detail::elements_in(payload);
    std::uint32_t last = 0;
    for (const reaching_element& each : found) {
      last = std::max(last, each.index);
    }
    if (!found.empty() && last >= sum.size()) {
      refuse_element(last, sum.size());
    }
    for (const reaching_element& each : found) {
      sum[each.index] += each.value;
    }
  });
}

/// Adds `by` to the index of each element of the payload, which then counts from `by` elements
/// earlier.
template <host_queue Queue>
void shift_reaching(Queue& queue, std::span<std::byte> payload, std::uint32_t by) {
  queue.run([=] {
    auto* const found = reinterpret_cast<reaching_element*>(payload.data() + sizeof(std::uint32_t));
    for (std::size_t i = 0; i < reaching_count(payload.size()); ++i) {
      found[i].index += by;
    }
  });
}

/// data[index] = 0 for the elements of a payload. It must be one of this rank's own, because
/// indices are not checked.
template <host_queue Queue>
void clear_reaching(Queue& queue, std::span<const std::byte> payload, std::span<float> data) {
  queue.run([=] {
    for (const reaching_element& each : detail::elements_in(payload)) {
      data[each.index] = 0;
    }
  });
}

}  // namespace tutti::kernels
