#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Separate streams of messages: a wildcard receive on one channel never takes a message of
/// another.
enum class channel : std::uint8_t {
  data,     ///< chunks
  coded,    ///< chunks' payloads whose lengths only their encoder knows
  service,  ///< decisions of a leading rank, and messages that an architecture takes from any rank
  control,  ///< diagnosis and failure; always short and in host memory
  host,     ///< what engines tell each other beside chunks; always in host memory
};

inline constexpr std::size_t channels = 5;

/// Identifies what a message belongs to. Messages of one (peer, tag) arrive in the order in which
/// they were sent.
struct tag {
  tutti::channel channel{};
  std::uint32_t chunk{};
  std::uint32_t lane{};

  friend bool operator==(const tag&, const tag&) = default;
};

/// The number of lanes of a chunk. Coroutines that exchange the same chunk at the same time use a
/// lane each, and no architecture may use more lanes than these.
inline constexpr std::uint32_t lanes_per_chunk = 8;

}  // namespace tutti
