#pragma once

#include <array>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/bounds.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/gate.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti {

namespace role {
struct architecture {};
}  // namespace role

/// Bytes that a compressor moves to encode so many elements, beside its payload: it reads them, and
/// reads and writes what it remembers of each.
template <class Compression>
constexpr std::size_t encoding_bytes(std::size_t elements) {
  return sizeof(float) * elements * (1 + 2 * facts::memory_per_element<Compression>);
}

/// What goes on the wire together, as an architecture sees it: a chunk with its buffer, the
/// compressor, and what is remembered of its elements. On entry `data` holds what travels from this
/// rank; when the exchange ends, what came back: the average, unless the architecture says
/// otherwise. Without memory it is a phantom: its payloads have lengths and nothing is encoded.
///
/// It is valid until the exchange's task ends. Trivially copyable: it lives in coroutines' frames.
template <class Compression>
struct launch {
  std::uint32_t number{};  ///< of its chunk: what messages and the schedule know it by
  std::uint64_t step{};    ///< steps of this chunk that were completed before
  std::span<float> data{};
  const Compression* compression{};
  chunk_context worker{};  ///< where this rank's gradient is encoded
  chunk_context owner{};   ///< where a sum is encoded again, by the rank that made it
  std::span<std::byte> workspace{};
  float average{1.0f};  ///< turns the sum into what is wanted
  int placed_on{};      ///< rank that owns the chunk, where the plan says so
  bool chosen{};        ///< its tensors are, by the rule of a compressor that selects
  void (*when_released)(void*, std::uint32_t){};
  void (*when_half_done)(void*){};
  void* context{};
  gate* second_half{};  ///< opens when it may begin, where the schedule splits the exchange
  /// Where each rank's share of the elements begins, and the end; none where parts are even.
  std::span<const std::size_t> shares{};
  /// Those that a fusion has gathered, side by side in `data`; none where it is `number` alone.
  std::span<const std::uint32_t> chunks{};

  /// The bytes have left this rank, or will have once its queue has come so far.
  void released() const { when_released(context, number); }

  /// `co_await what.between_halves()`: the first half has ended on this rank, and the schedule says
  /// when the second begins.
  class hand_back {
   public:
    explicit hand_back(const launch& of) : of_(&of) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) const {
      of_->second_half->await_suspend(waiter);
      of_->when_half_done(of_->context);
    }
    void await_resume() const noexcept {}

   private:
    const launch* of_;
  };
  hand_back between_halves() const { return hand_back(*this); }

  bool phantom() const { return data.data() == nullptr; }
  /// This launch with the compressor that works on it, one of the two of a selecting one.
  template <class Other>
  launch<Other> seen_by(const Other& other) const {
    return {number,    step,        data,      &other, worker,        owner,
            workspace, average,     placed_on, chosen, when_released, when_half_done,
            context,   second_half, shares,    chunks};
  }
  /// Bytes of a payload of `count` elements, at most.
  std::size_t capacity(std::size_t count) const { return tutti::capacity(*compression, count); }
  std::size_t capacity() const { return capacity(data.size()); }
  /// Encodes a sum for its way back.
  std::size_t mean_capacity(std::size_t count) const {
    return tutti::capacity(relay(*compression), count);
  }
  /// `bytes` of the workspace from `offset` on; without memory behind them for a phantom.
  std::span<std::byte> room(std::size_t offset, std::size_t bytes) const {
    return phantom() ? std::span<std::byte>(static_cast<std::byte*>(nullptr), bytes)
                     : workspace.subspan(offset, bytes);
  }

  /// Encodes `count` elements from `first` on, with this rank's memory of them, into `room` for
  /// `capacity(count)` bytes; answers the payload. A phantom's is as long as it is expected to be.
  template <class Queue>
  std::span<std::byte> encode(Queue& queue, std::size_t first, std::size_t count,
                              std::span<std::byte> room) const {
    return encode_by(*compression, queue, first, count, room, worker);
  }
  /// Encodes the mean of `count` elements from `first` on, as their owner, into room for
  /// `mean_capacity(count)` bytes.
  template <class Queue>
  std::span<std::byte> encode_mean(Queue& queue, std::size_t first, std::size_t count,
                                   std::span<std::byte> room) const {
    return encode_by(relay(*compression), queue, first, count, room, owner);
  }
  template <class Queue>
  void accumulate(Queue& queue, std::span<const std::byte> payload, std::size_t first,
                  std::size_t count) const {
    accumulate_by(*compression, queue, payload, first, count);
  }
  /// What `encode_mean` has made.
  template <class Queue>
  void accumulate_mean(Queue& queue, std::span<const std::byte> payload, std::size_t first,
                       std::size_t count) const {
    accumulate_by(relay(*compression), queue, payload, first, count);
  }

  // ---- of several rounds, on a whole tensor

  template <class Queue>
  void encode_round(Queue& queue, int round, std::span<std::byte> out) const {
    charge(queue, encoding_bytes<Compression>(data.size()) + out.size());
    if (!phantom()) {
      compression->encode(queue, round, data, wire{out.data(), out.size()}, worker);
    }
  }
  /// The sum of a round that is not the last.
  template <class Queue>
  void between(Queue& queue, int round, std::span<const std::byte> sum) const {
    charge(queue, 2 * sum.size());
    if (!phantom()) {
      compression->between(queue, round, const_wire(sum.data(), sum.size()), worker);
    }
  }
  /// The last sum becomes `average` times the sum of what `ranks` ranks gave.
  template <class Queue>
  void decode(Queue& queue, std::span<const std::byte> sum, int ranks) const {
    charge(queue, encoding_bytes<Compression>(data.size()) + sum.size());
    if (!phantom()) {
      compression->decode(queue, const_wire(sum.data(), sum.size()), data, worker,
                          summed{ranks, average});
    }
  }
  template <class Queue>
  void clear(Queue& queue, std::size_t first, std::size_t count) const {
    charge(queue, sizeof(float) * count);
    if (!phantom()) {
      queue.clear(data.data() + first, count * sizeof(float));
    }
  }
  template <class Queue>
  void scale(Queue& queue, std::size_t first, std::size_t count) const {
    charge(queue, average == 1.0f ? 0 : 2 * sizeof(float) * count);
    if (!phantom() && average != 1.0f) {
      kernels::scale(queue, data.subspan(first, count), average);
    }
  }

 private:
  template <class C, class Queue>
  std::span<std::byte> encode_by(const C& its, Queue& queue, std::size_t first, std::size_t count,
                                 std::span<std::byte> room, const chunk_context& where) const {
    std::size_t length = expected(its, count);
    charge(queue, encoding_bytes<C>(count) + length);
    if (!phantom()) {
      tutti::encode(its, queue, data.subspan(first, count), wire{room.data(), room.size()},
                    where.from(first), &length);
    }
    return room.first(length);
  }
  template <class C, class Queue>
  void accumulate_by(const C& its, Queue& queue, std::span<const std::byte> payload,
                     std::size_t first, std::size_t count) const {
    charge(queue, payload.size() + 2 * sizeof(float) * count);
    if (!phantom()) {
      its.accumulate(queue, const_wire(payload.data(), payload.size()), data.subspan(first, count));
    }
  }
};

/// The endpoint on whose channel payloads of the compressor travel: the coded channel where a
/// message may be shorter than its receiver's room.
template <class Compression, class Endpoint>
Endpoint carrier_of(const Endpoint& self) {
  return facts::variable_length<Compression> ? self.on(channel::coded) : self;
}

/// Where parameter servers live.
enum class server_hosts {
  own,      ///< each on a host of its own
  workers,  ///< one after the other on the workers' hosts, whose NICs they share
  mixed,    ///< the last ones one with each worker, the others each on a host of its own
};
constexpr std::array<std::string_view, 3> names(server_hosts) {
  return {"own", "workers", "mixed"};
}

/// Who lives where, for bounds: workers share hosts.
struct placement {
  int workers{1};
  int servers{};
  int per_host{1};
  server_hosts serving{};
  double server_speed{1};  ///< of the NIC of a server's own host, a worker's being 1

  constexpr int hosts() const { return bound::hosts(workers, per_host); }
};

/// What somebody sent to whoever listens. The sender's memory is read here, and the sender goes on
/// when this is destroyed.
template <class Loan>
class message {
 public:
  explicit message(Loan&& lent) : loan_(std::move(lent)) {}

  int peer() const { return loan_.peer(); }
  /// The number under which it was sent: a chunk's.
  std::uint32_t number() const { return loan_.where().chunk; }
  std::span<const std::byte> bytes() const { return loan_.bytes(); }

 private:
  Loan loan_;
};

/// What it is that an architecture carries between ranks.
enum class carries {
  gradient,
  difference,  ///< of parameters, from what they were when last exchanged
  parameters,
};

/// An architecture says who combines what, what that is, and what becomes of it.
///
/// Facts, and what the plan needs, are static:
///
/// * `adds_payloads`: encoded payloads are added on their way, so they must be summable.
/// * `completes_alone`: a rank's launch completes although no other worker starts it now.
/// * `carries`, `gradient` unless it says otherwise.
/// * `divides_first`: it makes means by dividing gradients before it encodes them.
/// * `owns_parameters`: the optimizer runs on the owners of parameters alone: servers, or whom
///   `owned` says.
/// * `ignores_compression`: what it sends, it sends as it is.
/// * `weighs_tensors`: what becomes of a tensor depends on all of it, so that none is cut.
/// * `updates_first`: what travels is taken after the update, so the optimizer must be the
/// engine's.
/// * `receives_from_any`: somebody takes what comes first, from whom is for the message to say.
/// * `stale`: a worker may compute on parameters that lack another worker's update.
/// * `has_halves`: its exchange can be split, and awaits `between_halves()` of its launch.
/// * `encodes_means`: a sum is encoded again by the rank that made it (`launch::owner`).
/// * `owned(elements, rank, ranks)`: where sums are encoded again, or parameters owned, by parts of
///   every chunk, this rank's first element and end; then what is remembered of them moves to its
///   new owners with a plan.
/// * `gives_gradients_back`: its exchange calls the world's `give_back` of every launch, and does
///   not touch the launch's `data` from then on; so the engine can lend gradients their memory.
/// * `delay`: a tensor arrives when its launch has begun, with what came of the launch so many
///   steps before (0 or 1); nothing before there was one.
/// * `turns_on_steps`: a launch is exchanged as its step says, so all its chunks are of one.
/// * `workers(options, size)`: so many ranks, the first ones, train; all unless it is stated.
/// * `listens(options, rank, size)`: this rank answers whoever asks; needs `serve`.
/// * `place(plan, options, size)`: says which rank owns each chunk. Throws usage_error.
/// * `adds_in_rounds`: where payloads add, it runs compressors of several rounds, and those that
///   select: its states' `workspace_bytes` also takes a chunk.
/// * `busiest_nic(payload, dense, placement)`: bytes that must pass some host's NIC in one
///   direction, in a step of so many payload bytes a worker, whatever the order: no step is shorter
///   than these at the NIC's rate. `dense` is the same gradient as floats.
/// * `alone(placement)`: what an exchange that has the network to itself takes, where that is so
///   many latencies and so many payloads through one NIC: then few ranks can represent many.
///
/// `state<World>(world, options)` is made once a rank, after the plan and before the parameters are
/// broadcast. `World` (core/surroundings.hpp) is all that it may know and do. Its verbs are plain
/// members; an optional one is found by its name, and must then be callable as it stands here.
/// Where a state says `using conditional_verbs = state;`, one whose `requires` clause does not hold
/// is not stated; there none must be a template or overloaded.
///
/// * `workspace_bytes(elements)` of scratch for each launch, known from the plan.
/// * `exchange(endpoint, const launch&)` -> task: the way of one launch.
/// * `sends(step)`: false where this step sends nothing; then no launch exists and a tensor goes
///   from ready to `arrive`. Equal on all ranks, or the architecture completes alone.
/// * `outgoing(chunk, buffer)` writes what travels and `incoming(chunk, buffer)` takes what came
///   back; before and after, the buffer is the engine's. Without `outgoing` the gradient itself
///   travels, as a view where it can.
/// * `average()`: what turns a sum of what travels into what is wanted; 1 / (workers *
///   accumulation), the mean of gradients, unless it is stated.
/// * `depart(position, step)`: a tensor's gradient is final and no piece of it has left.
/// * `arrive(position, step)`: its last piece has come; without it, the optimizer on the mean.
/// * `serve(endpoint, message)` -> task: an answer to whoever asks. Nobody else is served
/// meanwhile:
///   it takes the bytes, starts the answer beside, and ends. It never touches the parameters of a
///   rank that trains.
/// * `resume(step)`: the parameters are those of that step: take copies of them.
/// * `memories()`: spans of floats that a checkpoint keeps. A checkpoint restores the parameters,
///   then calls `resume`, then restores these. So that they outlive a plan, they are by place in
///   the model, the flat order, whatever the chunks; or, on ranks that own chunks and do not train,
///   chunk by chunk, as many spans for each that is not empty, of whole floats an element; or,
///   where ranks own parts of every chunk, one span for each chunk, row by row.
/// * `rescale(factor)`: residuals of means that it remembers itself, in steps of the optimizer,
///   become `factor` times as much.
/// * `optimizer_floats()`: so many of them are what the optimizer remembers on this rank.
/// * `at_rest()`, `finish()` -> task: whether, and until, all its answers have been read.
template <class A>
concept architecture_policy = std::same_as<typename A::role, role::architecture> && requires {
  { A::adds_payloads } -> std::convertible_to<bool>;
  { A::completes_alone } -> std::convertible_to<bool>;
};

namespace facts {
template <class A>
constexpr tutti::carries carries_of = tutti::carries::gradient;
template <class A>
requires requires { A::carries; }
constexpr tutti::carries carries_of<A> = A::carries;
template <class A>
constexpr bool owns_parameters = requires {
  requires A::owns_parameters;
};
template <class A>
constexpr bool divides_first = requires {
  requires A::divides_first;
};
template <class A>
constexpr bool gives_gradients_back = requires {
  requires A::gives_gradients_back;
};
/// Each rank updates a part of every chunk.
template <class A>
constexpr bool owns_parts = owns_parameters<A>&& requires {
  A::owned(std::size_t{}, 0, 1);
};
template <class A>
constexpr bool updates_first = owns_parameters<A> || requires {
  requires A::updates_first;
};
template <class A>
constexpr bool receives_from_any = requires {
  requires A::receives_from_any;
};
template <class A>
constexpr bool stale = requires {
  requires A::stale;
};
/// What it sends, it sends as it is.
template <class A>
constexpr bool ignores_compression = requires {
  requires A::ignores_compression;
};
/// Its tensors must not be cut.
template <class A>
constexpr bool weighs_tensors = requires {
  requires A::weighs_tensors;
};
template <class A>
constexpr bool has_halves = requires {
  requires A::has_halves;
};
template <class A>
constexpr bool encodes_means = requires {
  requires A::encodes_means;
};
template <class A>
constexpr bool adds_in_rounds = requires {
  requires A::adds_in_rounds;
};
/// Its exchanges change from one step to a later one.
template <class A>
constexpr bool turns_on_steps = requires {
  requires A::turns_on_steps;
};
template <class A>
constexpr int delay = 0;
template <class A>
requires requires { A::delay; }
constexpr int delay<A> = A::delay;
/// The architecture takes votes: it needs a compressor whose payload is one sign an element.
template <class A>
constexpr bool counts_votes = requires {
  requires A::counts_votes;
};
/// Every rank must start its exchanges in the same order.
template <class A>
constexpr bool ordered_start = requires {
  requires A::ordered_start;
};

/// The optional verbs of an architecture's state are found by name: whoever misspells an argument
/// is told so, where a signature looked for would mean that the verb is not stated. A name that
/// both bases have is ambiguous here, be it a template's, an overload's or a private member's.
struct optional_verbs {
  void sends();
  void outgoing();
  void incoming();
  void average();
  void depart();
  void arrive();
  void serve();
  void resume();
  void memories();
  void finish();
  void optimizer_floats();
  void rescale();
};
template <class S>
struct verbs_beside : S, optional_verbs {};
/// Only what the state itself says counts: who derives from it may have verbs of other kinds.
template <class S>
requires std::is_final_v<S> || std::same_as<typename S::conditional_verbs, S>
struct verbs_beside<S> : optional_verbs {
};

template <class S>
concept has_sends = requires {
  &S::sends;
}
|| !requires { &verbs_beside<S>::sends; };
template <class S>
concept has_outgoing = requires {
  &S::outgoing;
}
|| !requires { &verbs_beside<S>::outgoing; };
template <class S>
concept has_incoming = requires {
  &S::incoming;
}
|| !requires { &verbs_beside<S>::incoming; };
template <class S>
concept has_average = requires {
  &S::average;
}
|| !requires { &verbs_beside<S>::average; };
template <class S>
concept has_depart = requires {
  &S::depart;
}
|| !requires { &verbs_beside<S>::depart; };
template <class S>
concept has_arrive = requires {
  &S::arrive;
}
|| !requires { &verbs_beside<S>::arrive; };
template <class S>
concept has_serve = requires {
  &S::serve;
}
|| !requires { &verbs_beside<S>::serve; };
template <class S>
concept has_resume = requires {
  &S::resume;
}
|| !requires { &verbs_beside<S>::resume; };
template <class S>
concept has_memories = requires {
  &S::memories;
}
|| !requires { &verbs_beside<S>::memories; };
template <class S>
concept has_finish = requires {
  &S::finish;
}
|| !requires { &verbs_beside<S>::finish; };
template <class S>
concept has_optimizer_floats = requires {
  &S::optimizer_floats;
}
|| !requires { &verbs_beside<S>::optimizer_floats; };
template <class S>
concept has_rescale = requires {
  &S::rescale;
}
|| !requires { &verbs_beside<S>::rescale; };
/// Some ranks, the last ones, do not train.
template <class A>
constexpr bool has_servers = requires(const options_of<A>& options) {
  A::workers(options, 1);
};
}  // namespace facts

/// Bytes of scratch for each launch of a chunk.
template <class S>
std::size_t workspace_of(const S& state, const chunk& piece) {
  if constexpr (requires { state.workspace_bytes(piece); }) {
    return state.workspace_bytes(piece);
  } else {
    return state.workspace_bytes(piece.elements);
  }
}

/// The verbs of an architecture's state over `World`: those that are stated have the arguments and
/// results that role/architecture.hpp says.
template <class S, class World>
concept architecture_state = requires(S& state, const typename World::launch& what,
                                      typename World::endpoint self, const chunk& piece) {
  { workspace_of(state, piece) } -> std::same_as<std::size_t>;
  { state.exchange(self, what) } -> std::same_as<task>;
}
&&(!facts::has_sends<S> ||
   requires(const S& state, std::uint64_t step) {
     { state.sends(step) } -> std::same_as<bool>;
     requires facts::has_arrive<S>;  // what arrives where nothing was sent is for it to say
   }) &&
    (!facts::has_outgoing<S> ||
     requires(S & state, const chunk& piece, std::span<float> buffer) {
       state.outgoing(piece, buffer);
     }) &&
    (!facts::has_incoming<S> ||
     requires(S & state, const chunk& piece, std::span<float> buffer) {
       state.incoming(piece, buffer);
     }) &&
    (!facts::has_average<S> ||
     requires(const S& state) {
       { state.average() } -> std::same_as<float>;
     }) &&
    (!facts::has_depart<S> || requires(S & state, std::size_t position,
                                       std::uint64_t step) { state.depart(position, step); }) &&
    (!facts::has_arrive<S> || requires(S & state, std::size_t position,
                                       std::uint64_t step) { state.arrive(position, step); }) &&
    (!facts::has_serve<S> ||
     requires(S & state, typename World::endpoint self, typename World::message asked) {
       { state.serve(self, std::move(asked)) } -> std::same_as<task>;
     }) &&
    (!facts::has_resume<S> || requires(S & state, std::uint64_t step) { state.resume(step); }) &&
    (!facts::has_memories<S> ||
     requires(S & state) {
       { state.memories() } -> std::same_as<std::vector<std::span<float>>>;
     }) &&
    (!facts::has_optimizer_floats<S> ||
     requires(const S& state) {
       { state.optimizer_floats() } -> std::same_as<std::size_t>;
     }) &&
    (!facts::has_rescale<S> || requires(S & state, float factor) { state.rescale(factor); }) &&
    (!facts::has_finish<S> || requires(S & state) {
      { state.finish() } -> std::same_as<task>;
      { state.at_rest() } -> std::same_as<bool>;
    });

/// Ranks that train, among `size`: the first so many.
template <class A>
constexpr int workers_among(const options_of<A>& options, int size) {
  if constexpr (requires { A::workers(options, size); }) {
    return A::workers(options, size);
  } else {
    return size;
  }
}

template <class A>
constexpr bool listens(const options_of<A>& options, int rank, int size) {
  if constexpr (requires { A::listens(options, rank, size); }) {
    return A::listens(options, rank, size);
  } else {
    return false;
  }
}

}  // namespace tutti
