#pragma once

#include <chrono>
#include <cstdint>
#include <type_traits>

#include "tutti/base/tag.hpp"
#include "tutti/base/units.hpp"

namespace tutti::transport::detail {

/// What one process tells another about a message, at the head of what the carrier moves.
struct stamp {
  enum class kind : std::uint8_t {
    message,   ///< its head leaves the sender's NIC at `time`
    was_read,  ///< it was read at `time`
    stop,      ///< to oneself: stop listening
  };
  enum class payload : std::uint8_t {
    phantom,  ///< a length without memory
    inside,   ///< directly behind the stamp
    apart,    ///< in a message of its own
  };

  kind what{};
  payload contents{};
  tag where{};
  std::uint64_t number{};  ///< the sender's number of the message
  std::uint64_t bytes{};
  seconds time{};
};
static_assert(std::is_trivially_copyable_v<stamp>);

/// A clock that all processes of this host share.
inline seconds host_time() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tutti::transport::detail
