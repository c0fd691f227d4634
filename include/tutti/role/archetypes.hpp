#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tutti/base/beside.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/launch.hpp"
#include "tutti/role/transport.hpp"

/// The least that a policy finds of what it is written over: concepts ask for a policy's verbs over
/// these, and what compiles here compiles over every transport and queue. They do nothing.
///
/// Verbs that a policy may leave out are asked of it where it states them, and otherwise of an
/// archetype here that has them: so a concept is one list, of which a compiler shows what is wrong.
/// They are found by name (base/beside.hpp).
namespace tutti::archetype {

/// A device queue with the loops that kernels may use.
class queue : public host_loops<queue> {
 public:
  struct event {};
  event record() { return {}; }
  void wait(event) {}
  void synchronize() {}

  template <class F>
  void run(F f) {
    f();
  }
};
static_assert(host_queue<queue> && device_queue<queue>);

class operation {
 public:
  operation() = default;
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;

  bool await_ready() const { return true; }
  void await_suspend(std::coroutine_handle<>) {}
  void await_resume() {}
};

class loan {
 public:
  loan() = default;
  loan(loan&&) = default;
  loan& operator=(loan&&) = delete;

  std::span<const std::byte> bytes() const { return {}; }
  int peer() const { return 0; }
  tag where() const { return {}; }
};

class loan_operation : public operation {
 public:
  loan await_resume() { return {}; }
};

struct transport {};

/// One that only sends and receives: no all-reduce of its own, no rendezvous.
class endpoint {
 public:
  using transport_type = archetype::transport;
  using queue_type = archetype::queue;

  explicit endpoint(archetype::queue& queue) : queue_(&queue) {}

  int rank() const { return 0; }
  int size() const { return 1; }
  int host_of(int) const { return 0; }
  archetype::queue& queue() const { return *queue_; }
  seconds now() const { return 0; }
  tag where() const { return {}; }
  endpoint lane(std::uint32_t) const { return *this; }
  endpoint on(channel) const { return *this; }
  group_endpoint<endpoint> group(std::span<const int> ranks) const { return {*this, ranks}; }
  void start(task&) const {}

  operation send(int, std::span<const std::byte>) const { return {}; }
  operation receive(int, std::span<std::byte>) const { return {}; }
  template <class Fold>
  operation receive_fold(int, std::span<std::byte>, Fold) const {
    return {};
  }
  loan_operation receive_loan(int, std::size_t) const { return {}; }
  operation exchange(int, std::span<const std::byte>, int, std::span<std::byte>) const {
    return {};
  }
  template <class Fold>
  operation exchange_fold(int, std::span<const std::byte>, int, std::span<std::byte>, Fold) const {
    return {};
  }

 private:
  archetype::queue* queue_;
};
static_assert(message_endpoint<endpoint> && message_endpoint<group_endpoint<endpoint>>);

/// How two runs of elements combine.
struct fold {
  template <class Queue>
  void operator()(Queue&, std::byte*, const std::byte*, std::size_t) const {}
};

/// An argument of any type.
struct anything {
  template <class T>
  anything(T&&);
};

/// A compressor whose payloads add, and count votes.
struct compression {
  using role = tutti::role::compression;
  static constexpr bool summable = true;

  constexpr std::size_t wire_bytes(std::size_t elements) const { return elements; }
  template <class Queue>
  void encode(Queue&, std::span<const float>, wire) const {}
  template <class Queue>
  void accumulate(Queue&, const_wire, std::span<float>) const {}
  template <class Queue>
  void fold(Queue&, wire, const_wire) const {}
  template <class Queue>
  void vote(Queue&, payload_row, wire) const {}
};

/// What an architecture's state is written over: the types that its verbs are declared with. What
/// else a world has, core/surroundings.hpp says; the bodies that call it are compiled with an
/// engine.
struct world {
  using transport = archetype::transport;
  using queue_type = archetype::queue;
  using compression = archetype::compression;
  using relay_type = archetype::compression;
  using endpoint = archetype::endpoint;
  using launch = tutti::launch<archetype::compression>;
  using message = tutti::message<loan>;
  template <class T>
  using memory = memory_of<T, archetype::queue>;
  static constexpr bool splits_phases = false;
  static constexpr bool undoes_steps = false;
};

/// The verbs that an architecture's state may leave out.
struct optional_verbs {
  bool sends(std::uint64_t) const;
  void outgoing(const chunk&, std::span<float>);
  void incoming(const chunk&, std::span<float>);
  float average() const;
  void depart(std::size_t, std::uint64_t);
  void arrive(std::size_t, std::uint64_t);
  task serve(anything, anything);
  void resume(std::uint64_t);
  std::vector<std::span<float>> memories();
  std::size_t optimizer_floats() const;
  void rescale(float);
  void undo_step();
  task worker_left(int);
  bool holds_back(std::uint32_t) const;
  push_counts counted_pushes() const;
  task finish();
  bool at_rest() const;
};

/// What an architecture may leave out that the plan needs.
struct placing {
  static int workers(anything, int);
  static bool listens(anything, int, int);
  static void place(plan&, anything, int);
};

/// What a collective has that knows several routes.
struct routes {
  std::uint64_t route_of(anything) const;
};

/// What a partition has that looks at who owns chunks.
template <class Partition>
struct owners {
  Partition among(int) const;
};

/// What a coordination's machine chooses from: a schedule that limits flights.
struct choice {
  static constexpr bool gathers = false;
  static constexpr bool limits_in_flight = true;
  static constexpr bool has_cycle = false;

  void ready(std::uint32_t) {}
  void released(std::uint32_t) {}
  std::optional<std::uint32_t> next() { return std::nullopt; }
  bool admits(std::uint32_t) const { return true; }
  void take(std::uint32_t) {}
  std::size_t unsettled_steps() const { return 0; }
};

/// What the machine of a coordination has beside its other verbs where ranks may join.
struct joining {
  void join(seconds);
  bool all_have_joined();
};

/// What the state of a schedule has beside its other verbs where it limits flights.
struct window {
  bool admits(std::uint32_t) const;
  void take(std::uint32_t);
};

/// What a monitor has that needs numbers of all workers.
struct summing {
  static constexpr bool observes = true;
  std::span<double> sums();
  void summed(std::span<const double>);
};

/// What a monitor has that looks at mean gradients.
struct seeing_means {
  static constexpr bool observes = true;
  static constexpr bool reads_memory = true;
  void mean(std::uint32_t, std::span<const float>);
};

/// What a schedule has whose options leave something to the job.
template <class Options>
struct planning {
  static Options planned(anything, const plan&, anything);
};

/// When a schedule's second halves begin.
struct second_half {
  second_half(const plan&, anything);
  void half_done();
  void done();
  std::optional<std::uint32_t> next();
};

/// What a fusion has that decides at run time.
struct run_time_fusion {
  struct state {
    state(const plan&, anything);
    void stage(std::uint32_t);
    std::span<const std::uint32_t> next();
    seconds cycle() const;
  };
  std::size_t most_bytes(const plan&) const;
};

}  // namespace tutti::archetype
