// expect: tutti: an operation of this transport does not fit. Fix: widen operation_room
#include <array>

#include "tutti/transport/any_transport.hpp"

#ifdef GOOD
constexpr std::size_t bytes = 1;
#else
constexpr std::size_t bytes = 4096;
#endif

namespace tutti::transport::detail {

struct wide : operation {
  using operation::operation;
  std::array<char, bytes> memory{};
};

void begin(operation_room& room, run_queue& queue) {
  room.hold([&] { return wide(queue, 0); });
}

}  // namespace tutti::transport::detail
