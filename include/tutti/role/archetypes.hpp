#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tutti/base/memory.hpp"
#include "tutti/base/name_probe.hpp"
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

/// Minimal stand-ins for what a policy is written over. The concepts of the roles check a policy's
/// verbs against them, and a verb that compiles here compiles over every transport and queue. They
/// do nothing.
///
/// A concept checks an optional verb on the policy if the policy states it, and otherwise on an
/// archetype that has it. So each concept is one list of requirements, and the compiler shows which
/// one fails. Whether a policy states a verb is found out by its name (base/name_probe.hpp).
namespace tutti::archetype {

/// A device queue with the loops that kernels may use, run on the host.
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

/// An endpoint that only sends and receives: it has no all-reduce of its own and no rendezvous.
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

/// A function that combines two runs of elements.
struct fold {
  template <class Queue>
  void operator()(Queue&, std::byte*, const std::byte*, std::size_t) const {}
};

/// An argument of any type.
struct anything {
  template <class T>
  anything(T&&);
};

/// A compressor whose payloads add and that counts votes.
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

/// What an architecture's state is written over: the types that its verbs are declared with. The
/// rest of a world is in core/architecture_world.hpp; function bodies that call it are compiled
/// only with an engine.
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

/// The functions for making a plan that an architecture may leave out.
struct placing {
  static int workers(anything, int);
  static bool listens(anything, int, int);
  static void place(plan&, anything, int);
};

/// The verb of a collective that has several routes.
struct routes {
  std::uint64_t route_of(anything) const;
};

/// The verb of a partition that depends on how many ranks own chunks.
template <class Partition>
struct owners {
  Partition among(int) const;
};

/// A choice for a coordination's machine: a schedule that limits what is in flight.
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

/// The further verbs of a coordination's machine if ranks may join.
struct joining {
  void join(seconds);
  bool all_have_joined();
};

/// The further verbs of a schedule's state if it limits what is in flight.
struct window {
  bool admits(std::uint32_t) const;
  void take(std::uint32_t);
};

/// The verbs of a monitor that needs sums over all workers.
struct summing {
  static constexpr bool observes = true;
  std::span<double> sums();
  void summed(std::span<const double>);
};

/// The verb of a monitor that is given mean gradients.
struct seeing_means {
  static constexpr bool observes = true;
  static constexpr bool reads_memory = true;
  void mean(std::uint32_t, std::span<const float>);
};

/// The verbs of a monitor that is told what its numbers are numbers of.
struct hearing_of_plans {
  void replanned();
};
struct hearing_of_scales {
  void scaled(float);
};

/// The verb of a schedule that takes some of its options from the job's profile.
template <class Options>
struct planning {
  static Options planned(anything, const plan&, anything);
};

/// The machine that says when a schedule's second halves begin.
struct second_half {
  second_half(const plan&, anything);
  void half_done();
  void done();
  std::optional<std::uint32_t> next();
};

/// The verb of a fusion that sorts tensors.
struct grouping {
  std::size_t group_of(anything) const;
};

/// The verbs that an optimizer may leave out.
struct checking_values {
  void expect_values() const;
};
struct restoring {
  bool restores_residuals() const;
};

/// The state and the verb of a fusion that decides at run time.
struct run_time_fusion {
  struct state {
    state(const plan&, anything);
    void stage(std::uint32_t);
    std::span<const std::uint32_t> next();
    seconds cycle() const;
    std::size_t unsettled_steps() const;
  };
  std::size_t most_bytes(const plan&) const;
};

}  // namespace tutti::archetype
