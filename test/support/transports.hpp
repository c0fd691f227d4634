#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/host_stream.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/task.hpp"
#include "tutti/transport/any_transport.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/recording.hpp"
#include "tutti/transport/shaped.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {

/// Compares with one `memcmp`, because sanitizers check every load of a loop.
inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// Runs a coroutine to its end on the calling thread. `at_rest()` is called between resumptions.
template <class Transport, class AtRest>
void drive(Transport& world, task rank, AtRest at_rest) {
  rank.start(world.ready_coroutines());
  std::size_t idle_polls = 0;
  while (!rank.done()) {
    const bool resumed = world.ready_coroutines().drain() != 0;
    if (world.poll() || resumed) {
      idle_polls = 0;
    } else {
      rest(world, ++idle_polls);
    }
    at_rest();
  }
  rank.result();
}
template <class Transport>
void drive(Transport& world, task rank) {
  drive(world, std::move(rank), [] {});
}

// A world runs the coroutine `body(transport)` on so many ranks and throws what the first failed
// rank threw. It returns false if this process is not among these ranks. `longest` is a size that
// the transport treats as long.

struct in_process_world {
  using transport = tutti::transport::in_process;
  static constexpr bool phantoms = true;
  static constexpr std::size_t longest = (1 << 18) + 12;

  template <class Body>
  static bool run(int ranks, Body body) {
    tutti::transport::run_ranks<transport>(ranks,
                                           [&](transport& world) { drive(world, body(world)); });
    return true;
  }
};

struct simulated_world {
  using transport = tutti::transport::simulated;
  static constexpr bool phantoms = true;
  static constexpr std::size_t longest = (1 << 18) + 12;

  template <class Body>
  static bool run(int ranks, Body body) {
    tutti::transport::run_simulated(ranks, {1e9, 5e-6}, body);
    return true;
  }
};

/// Memory belongs to a stream of each rank, as on a device.
struct host_stream_world {
  using transport = tutti::transport::basic_in_process<host_stream, tutti::transport::by_mailbox>;
  static constexpr bool phantoms = true;
  static constexpr std::size_t longest = (1 << 18) + 12;

  template <class Body>
  static bool run(int ranks, Body body) {
    tutti::transport::run_ranks<transport>(ranks,
                                           [&](transport& world) { drive(world, body(world)); });
    return true;
  }
};

struct recording_world {
  using transport = tutti::transport::recording<tutti::transport::in_process>;
  static constexpr bool phantoms = true;
  static constexpr std::size_t longest = (1 << 18) + 12;

  template <class Body>
  static bool run(int ranks, Body body) {
    tutti::transport::run_ranks(ranks, [&](tutti::transport::in_process& inner) {
      transport world(inner, 100000);
      drive(world, body(world));
    });
    return true;
  }
};

/// Threads that are connected as processes over a network are. One message takes only a part of a
/// link.
struct shaped_world {
  using transport = tutti::transport::shaped<tutti::transport::in_process>;
  static constexpr bool phantoms = true;
  static constexpr std::size_t longest = (1 << 18) + 12;

  template <class Body>
  static bool run(int ranks, Body body) {
    tutti::transport::run_ranks(ranks, [&](tutti::transport::in_process& inner) {
      tutti::transport::run_shaped(inner, tutti::transport::network(ranks, {1e9, 5e-6, 0.25}),
                                   body);
    });
    return true;
  }
};

struct any_world {
  using transport = tutti::transport::any_transport;
  static constexpr bool phantoms = true;
  static constexpr std::size_t longest = (1 << 18) + 12;

  template <class Body>
  static bool run(int ranks, Body body) {
    tutti::transport::run_ranks(ranks, [&](tutti::transport::in_process& inner) {
      transport world(inner);
      drive(world, body(world));
    });
    return true;
  }
};

/// A simulated rank behind a type-erased transport, so that its virtual clock is known only at run
/// time. One message takes only a part of a link.
struct any_simulated_world {
  using transport = tutti::transport::any_like<tutti::transport::simulated>;
  static constexpr bool phantoms = true;
  static constexpr std::size_t longest = (1 << 18) + 12;

  template <class Body>
  static bool run(int ranks, Body body) {
    tutti::transport::run_simulated(ranks, {1e9, 5e-6, 0.25},
                                    [&](tutti::transport::simulated& inner) -> task {
                                      transport world(inner);
                                      task rank = body(world);
                                      co_await rank;
                                    });
    return true;
  }
};

/// Memory in which `Queue` works.
template <class Queue>
class memory {
 public:
  memory(Queue&, std::size_t bytes) : bytes_(bytes) {}
  std::span<std::byte> span() { return bytes_; }
  std::vector<std::byte> read() { return bytes_; }
  void write(const std::vector<std::byte>& values) { bytes_ = values; }

 private:
  std::vector<std::byte> bytes_;
};

template <>
class memory<host_stream> {
 public:
  memory(host_stream& stream, std::size_t bytes) : bytes_(stream, bytes) {}
  std::span<std::byte> span() { return bytes_.span(); }
  std::vector<std::byte> read() { return bytes_.read_back(); }
  void write(const std::vector<std::byte>& values) { bytes_.write(values); }

 private:
  host_stream::buffer<std::byte> bytes_;
};

/// Returns a copy of a loan's bytes, which may be a peer's memory on a device.
template <class Queue>
std::vector<std::byte> read(Queue& queue, std::span<const std::byte> bytes) {
  std::vector<std::byte> copy(bytes.size());
  queue.copy(copy.data(), bytes.data(), bytes.size());
  queue.synchronize();
  return copy;
}

}  // namespace tutti::test
