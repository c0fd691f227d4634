#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace tutti {

namespace detail {

template <class Byte>
struct basic_wire {
  Byte* data{};
  std::size_t size{};

  template <class T>
  auto header() const {
    if constexpr (std::is_const_v<Byte>) {
      return reinterpret_cast<const T*>(data);
    } else {
      return reinterpret_cast<T*>(data);
    }
  }
  /// The bytes behind a header of type `T`.
  template <class T>
  std::span<Byte> body() const {
    return {data + sizeof(T), size - sizeof(T)};
  }
  std::span<Byte> bytes() const { return {data, size}; }

  /// The payload as an array of `T`.
  template <class T>
  auto as() const {
    return std::span(header<T>(), size / sizeof(T));
  }
};

}  // namespace detail

/// Memory into which a payload is encoded, aligned for a float. Its size is the payload's exact
/// length, or its capacity where the length is known only after encoding.
using wire = detail::basic_wire<std::byte>;

/// An encoded payload to read. It may lie in a peer's memory: read it before the exchange ends.
struct const_wire : detail::basic_wire<const std::byte> {
  const_wire() = default;
  const_wire(const std::byte* its_data, std::size_t its_size)
      : detail::basic_wire<const std::byte>{its_data, its_size} {}
  const_wire(wire other) : const_wire(other.data, other.size) {}  // NOLINT: a view of the same
};

/// Payloads of one size that begin `stride` bytes apart. It is a plain value, so that a queue can
/// keep it.
struct payload_row {
  const std::byte* first{};
  std::size_t stride{};
  std::size_t count{};
  std::size_t bytes{};

  const_wire operator[](std::size_t i) const { return {first + i * stride, bytes}; }
};

}  // namespace tutti
