#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Separate streams of messages: a wildcard receive on one never takes another's.
enum class channel : std::uint8_t {
  data,     ///< chunks
  coded,    ///< of chunks, payloads whose lengths only their encoder knows
  service,  ///< decisions of a leading rank, and whatever an architecture receives from anybody
  control,  ///< diagnosis, failure: in the host's memory, always, and short
  host,     ///< what engines tell each other beside chunks: in the host's memory, always
};

inline constexpr std::size_t channels = 5;

/// What a message belongs to. Messages of one (peer, tag) arrive in the order they were sent.
struct tag {
  tutti::channel channel{};
  std::uint32_t chunk{};
  std::uint32_t lane{};

  friend bool operator==(const tag&, const tag&) = default;
};

/// A coroutine uses as many lanes of its chunk as it runs at once; an architecture with more than
/// this is two architectures.
inline constexpr std::uint32_t lanes_per_chunk = 8;

}  // namespace tutti
