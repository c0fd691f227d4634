#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/bounds.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/archetypes.hpp"
#include "tutti/role/launch.hpp"

/// What an architecture may state and do. One file, because each fact, the verbs that go with it
/// and the concept that asks for both have to agree, and a policy's author reads them together.
namespace tutti {

namespace role {
struct architecture {};
}  // namespace role

/// The hosts that parameter servers run on.
enum class server_hosts {
  own,      ///< each on a host of its own
  workers,  ///< on the workers' hosts in turn, whose NICs they share
  mixed,    ///< the last servers with one worker each, the others each on a host of its own
};
constexpr std::array<std::string_view, 3> names(server_hosts) {
  return {"own", "workers", "mixed"};
}

/// How workers and servers are placed on hosts, for bounds and costs. `per_host` workers share a
/// host.
struct placement {
  int workers{1};
  int servers{};
  int per_host{1};
  server_hosts serving{};
  double server_speed{1};  ///< speed of the NIC of a server's own host; a worker's is 1

  constexpr int hosts() const { return bound::hosts(workers, per_host); }
};

/// What an architecture sends between ranks.
enum class carries {
  gradient,
  difference,  ///< of parameters from what they were when last exchanged
  parameters,
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
constexpr bool leaves_sums = requires {
  requires A::leaves_sums;
};
template <class A>
constexpr bool gives_gradients_back = requires {
  requires A::gives_gradients_back;
};
/// Whether each rank owns a part of every chunk.
template <class A>
constexpr bool owns_parts = requires {
  requires A::owns_parts;
};
template <class A>
constexpr bool updates_parts = owns_parameters<A>&& owns_parts<A>;
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
/// Whether workers go on at their own pace, so that they may be in different steps.
template <class A>
constexpr bool keeps_no_step = A::completes_alone&& stale<A>;
/// Whether a worker never waits for others, however far ahead of them it is. It may therefore end
/// before they do, unlike one of bounded staleness.
template <class A>
constexpr bool waits_for_nobody = requires {
  requires A::waits_for_nobody;
};
template <class A>
constexpr bool drops_gradients = requires {
  requires A::drops_gradients;
};
/// Whether, from some step on, what the compressor has left out of earlier steps is never sent.
template <class A>
constexpr bool stops_compressing = requires {
  requires A::stops_compressing;
};
/// Whether, from some step on, what the compressor has left out of means is never sent.
template <class A>
constexpr bool stops_encoding_means = requires {
  requires A::stops_encoding_means;
};
/// Whether it sends gradients by the compressor in some steps and not in others.
template <class A>
constexpr bool compresses_at_times = requires {
  requires A::compresses_at_times;
};
/// Whether everything is sent as it is, without the compressor.
template <class A>
constexpr bool ignores_compression = requires {
  requires A::ignores_compression;
};
/// Whether tensors must not be cut.
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
/// Whether exchanges differ from one step to another.
template <class A>
constexpr bool turns_on_steps = requires {
  requires A::turns_on_steps;
};
/// Whether, from some step on, ranks exchange momenta, which the optimizer makes of their
/// gradients.
template <class A>
constexpr bool exchanges_momenta = requires {
  requires A::exchanges_momenta;
};
/// Whether the result of an exchange can be mixed into the model after the model has changed.
template <class A>
constexpr bool mixes_late = requires {
  requires A::mixes_late;
};
template <class A>
constexpr int delay = 0;
template <class A>
requires requires { A::delay; }
constexpr int delay<A> = A::delay;
/// Whether votes are counted, which needs a compressor whose payload is one sign an element.
template <class A>
constexpr bool counts_votes = requires {
  requires A::counts_votes;
};
/// Whether payloads are merged, which needs a compressor that can merge them.
template <class A>
constexpr bool merges_payloads = requires {
  requires A::merges_payloads;
};
/// Whether the magnitude from which on elements are sent is kept from step to step, which needs a
/// compressor that can send all elements of at least a given magnitude.
template <class A>
constexpr bool keeps_magnitudes = requires {
  requires A::keeps_magnitudes;
};
/// Whether every rank must start its exchanges in the same order.
template <class A>
constexpr bool ordered_start = requires {
  requires A::ordered_start;
};

/// The optional verbs of an architecture's state.
template <class S>
using verbs_beside = archetype::name_probe<S, archetype::optional_verbs>;

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
template <class S>
concept has_undo_step = requires {
  &S::undo_step;
}
|| !requires { &verbs_beside<S>::undo_step; };
template <class S>
concept has_worker_left = requires {
  &S::worker_left;
}
|| !requires { &verbs_beside<S>::worker_left; };
template <class S>
concept has_holds_back = requires {
  &S::holds_back;
}
|| !requires { &verbs_beside<S>::holds_back; };
template <class S>
concept has_counted_pushes = requires {
  &S::counted_pushes;
}
|| !requires { &verbs_beside<S>::counted_pushes; };
template <class A>
using placing_beside = archetype::name_probe<A, archetype::placing>;
/// Whether some ranks, the last ones, do not train.
template <class A>
concept has_servers = requires {
  &A::workers;
}
|| !requires { &placing_beside<A>::workers; };
/// Whether some ranks answer messages of any rank.
template <class A>
concept has_listeners = requires {
  &A::listens;
}
|| !requires { &placing_beside<A>::listens; };
template <class A>
concept places_chunks = requires {
  &A::place;
}
|| !requires { &placing_beside<A>::place; };
}  // namespace facts

/// A state whose scratch depends on more of a chunk than its number of elements.
template <class S>
concept weighs_chunks = requires(const S& state, const chunk& piece) {
  { state.workspace_bytes(piece) } -> std::same_as<std::size_t>;
};

/// Bytes of scratch for each launch of a chunk.
template <weighs_chunks S>
std::size_t workspace_of(const S& state, const chunk& piece) {
  return state.workspace_bytes(piece);
}
template <class S>
requires(!weighs_chunks<S> && requires(const S& state, std::size_t elements) {
  { state.workspace_bytes(elements) } -> std::same_as<std::size_t>;
}) std::size_t workspace_of(const S& state, const chunk& piece) {
  return state.workspace_bytes(piece.elements);
}

/// A concept for each verb: the state has it with the arguments and the result that
/// architecture_policy lists, or leaves it out if it is optional.
namespace verbs {
/// The type that an optional verb is checked on: the state, or an archetype if the state leaves it
/// out.
template <bool Stated, class S>
using if_stated = std::conditional_t<Stated, S, archetype::optional_verbs>;

template <class S, class World>
concept exchange = requires(S& state, typename World::endpoint self,
                            const typename World::launch& what) {
  { state.exchange(self, what) } -> std::same_as<task>;
};
template <class S>
concept workspace_bytes = requires(const S& state, const chunk& piece) {
  workspace_of(state, piece);
};
template <class S>
concept sends = requires(const if_stated<facts::has_sends<S>, S>& state, std::uint64_t step) {
  { state.sends(step) } -> std::same_as<bool>;
};
template <class S>
concept outgoing = requires(if_stated<facts::has_outgoing<S>, S>& state, const chunk& piece,
                            std::span<float> buffer) {
  state.outgoing(piece, buffer);
};
template <class S>
concept incoming = requires(if_stated<facts::has_incoming<S>, S>& state, const chunk& piece,
                            std::span<float> buffer) {
  state.incoming(piece, buffer);
};
template <class S>
concept average = requires(const if_stated<facts::has_average<S>, S>& state) {
  { state.average() } -> std::same_as<float>;
};
template <class S>
concept depart = requires(if_stated<facts::has_depart<S>, S>& state, std::size_t position,
                          std::uint64_t step) {
  state.depart(position, step);
};
/// A state that has `sends` must also have `arrive`, because it must say what becomes of a tensor
/// in a step that sends nothing.
template <class S>
concept arrive = requires(if_stated<facts::has_arrive<S> || facts::has_sends<S>, S>& state,
                          std::size_t position, std::uint64_t step) {
  state.arrive(position, step);
};
template <class S, class World>
concept serve = requires(if_stated<facts::has_serve<S>, S>& state, typename World::endpoint self,
                         typename World::message asked) {
  { state.serve(self, std::move(asked)) } -> std::same_as<task>;
};
template <class S>
concept resume = requires(if_stated<facts::has_resume<S>, S>& state, std::uint64_t step) {
  state.resume(step);
};
template <class S>
concept memories = requires(if_stated<facts::has_memories<S>, S>& state) {
  { state.memories() } -> std::same_as<std::vector<std::span<float>>>;
};
template <class S>
concept optimizer_floats = requires(const if_stated<facts::has_optimizer_floats<S>, S>& state) {
  { state.optimizer_floats() } -> std::same_as<std::size_t>;
};
template <class S>
concept rescale = requires(if_stated<facts::has_rescale<S>, S>& state, float factor) {
  state.rescale(factor);
};
template <class S>
concept undo_step = requires(if_stated<facts::has_undo_step<S>, S>& state) {
  state.undo_step();
};
template <class S>
concept worker_left = requires(if_stated<facts::has_worker_left<S>, S>& state, int worker) {
  { state.worker_left(worker) } -> std::same_as<task>;
};
template <class S>
concept holds_back = requires(const if_stated<facts::has_holds_back<S>, S>& state,
                              std::uint32_t chunk) {
  { state.holds_back(chunk) } -> std::same_as<bool>;
};
template <class S>
concept counted_pushes = requires(const if_stated<facts::has_counted_pushes<S>, S>& state) {
  { state.counted_pushes() } -> std::same_as<push_counts>;
};
template <class S>
concept finish = requires(if_stated<facts::has_finish<S>, S>& state) {
  { state.finish() } -> std::same_as<task>;
  { state.at_rest() } -> std::same_as<bool>;
};
}  // namespace verbs

/// A state over `World` whose verbs are those that architecture_policy lists.
template <class S, class World>
concept architecture_state = verbs::exchange<S, World> && verbs::workspace_bytes<S> &&
    verbs::sends<S> && verbs::outgoing<S> && verbs::incoming<S> && verbs::average<S> &&
    verbs::depart<S> && verbs::arrive<S> && verbs::serve<S, World> && verbs::resume<S> &&
    verbs::memories<S> && verbs::optimizer_floats<S> && verbs::rescale<S> && verbs::undo_step<S> &&
    verbs::worker_left<S> && verbs::holds_back<S> && verbs::counted_pushes<S> && verbs::finish<S>;

namespace detail {
template <class A>
concept states_facts = requires {
  { A::adds_payloads } -> std::convertible_to<bool>;
  { A::completes_alone } -> std::convertible_to<bool>;
};
template <class A>
using state_of = typename A::template state<archetype::world>;
template <class A>
concept makes_a_state = requires(archetype::world& world, const tutti::options_of<A>& options) {
  state_of<A>(world, options);
};
template <bool Stated, class A>
using placing_of = std::conditional_t<Stated, A, archetype::placing>;
template <class A>
concept workers = requires(placing_of<facts::has_servers<A>, A>& architecture,
                           const tutti::options_of<A>& set) {
  { architecture.workers(set, 1) } -> std::same_as<int>;
};
/// An architecture with ranks that listen has a state with `serve`.
template <class A>
concept listens = requires(placing_of<facts::has_listeners<A>, A>& architecture,
                           const tutti::options_of<A>& set,
                           verbs::if_stated<facts::has_listeners<A>, state_of<A>>& state,
                           archetype::endpoint self, archetype::world::message asked) {
  { architecture.listens(set, 0, 1) } -> std::same_as<bool>;
  { state.serve(self, std::move(asked)) } -> std::same_as<task>;
};
template <class A>
concept place = requires(placing_of<facts::places_chunks<A>, A>& architecture, plan& made,
                         const tutti::options_of<A>& set) {
  architecture.place(made, set, 1);
};
}  // namespace detail

/// An architecture says which ranks combine what, what is combined, and what becomes of the result.
///
/// The facts, and the functions for the plan, are static:
///
/// * `adds_payloads`: encoded payloads are added on their way, so they must be summable.
/// * `completes_alone`: a rank's launch completes even if no other worker starts it now.
/// * `carries`: what is sent, by default `gradient`.
/// * `divides_first`: gradients are divided for their mean before they are encoded.
/// * `leaves_sums`: the sum of the ranks' gradients is never divided by their number.
/// * `owns_parameters`: only the owners of parameters run the optimizer. Owners are the servers, or
///   each rank for its parts.
/// * `ignores_compression`: everything is sent as it is.
/// * `weighs_tensors`: the result for a tensor depends on the whole tensor, so no tensor may be
///   cut.
/// * `updates_first`: what is sent is taken after the update, so the engine must run the optimizer.
/// * `receives_from_any`: some rank takes the message that comes first, whoever sent it.
/// * `stale`: a worker may compute on parameters that lack another worker's update.
/// * `drops_gradients`: a step's mean is of the gradients that came first, and not of all.
/// * `stops_compressing`: from some step on, gradients are no longer sent by the compressor.
/// * `stops_encoding_means`: from some step on, sums are no longer encoded again.
/// * `compresses_at_times`: before some step, or from it on, gradients are not sent by the
///   compressor.
/// * `has_halves`: the exchange can be split, and awaits `between_halves()` of its launch.
/// * `encodes_means`: a sum is encoded again by the rank that made it (`launch::owner`).
/// * `owns_parts`: sums are encoded again, or parameters owned, by parts of every chunk
///   (`chunk::part`). What compressors, and states that own parameters, remember of the parts moves
///   to their new owners when the plan changes.
/// * `gives_gradients_back`: the exchange calls the world's `give_back` for every launch and does
///   not touch the launch's `data` afterwards, so the engine can lend gradients their memory.
/// * `delay`: 0 or 1. If it is 1, a tensor arrives when its launch has begun, with the result of
///   the launch before; the first launch has none before it. A state with `incoming` is given that
///   result then, just before `outgoing`.
/// * `mixes_late`: the result of an exchange can be mixed into the model after the model has
///   changed.
/// * `turns_on_steps`: a launch's step determines how it is exchanged, so all its chunks must be of
///   the same step.
/// * `exchanges_momenta`: in steps that its optimizer names, it sends the optimizer's first row,
///   which is then the launch's `data`. `outgoing` may use its buffer as scratch in such a step.
/// * `workers(options, size)`: the number of ranks that train, which are the first ones; all ranks
///   by default.
/// * `listens(options, rank, size)`: whether this rank answers messages of any rank; needs `serve`.
/// * `place(plan, options, size)`: sets the rank that owns each chunk. Throws usage_error.
/// * `adds_in_rounds`: if payloads add, compressors of several rounds and selecting compressors can
///   be used. `workspace_bytes` of the state then takes a chunk.
/// * `busiest_nic(payload, dense, placement)`: a lower bound on the bytes that must pass some
///   host's NIC in one direction in a step, in any order, if each worker's payload is `payload`
///   bytes and `dense` bytes as floats. No step is shorter than these bytes take at the NIC's rate.
///   Options may come first. Needed to be replayed (core/replay.hpp).
/// * `alone(placement)`: the cost of an exchange that has the network to itself, if it is a number
///   of latencies and of payloads through one NIC. A simulation of few ranks can then represent
///   many. `alone(options, placement, elements)` is for architectures whose cost depends on these,
///   too, or does not always have that form.
///
/// `state<World>(world, options)` is made once on each rank, after the plan and before the
/// parameters are broadcast. `World` (core/architecture_world.hpp) is all that it may know and do.
/// Its verbs are plain member functions with written-out result types. An optional verb is found by
/// its name, and must then be callable as listed here. In a state that says `using
/// conditional_verbs = state;`, a verb whose `requires` clause does not hold counts as left out; no
/// verb of such a state may be a template or overloaded.
///
/// * `workspace_bytes(elements)`, or `workspace_bytes(chunk)` if it depends on more: the size of
///   each launch's workspace, known from the plan.
/// * `exchange(endpoint, const launch&)` -> task: exchanges one launch.
/// * `sends(step)`: false if this step sends nothing; there is then no launch, and a tensor that is
///   ready goes to `arrive`. It must be equal on all ranks, or the architecture completes alone.
/// * `outgoing(chunk, buffer)` writes what is sent, and `incoming(chunk, buffer)` takes what came
///   back. Outside these two calls the buffer is the engine's. Without `outgoing` the gradient
///   itself is sent, as a view where that is possible.
/// * `average()`: the factor that turns a sum of what is sent into the result. By default it is 1 /
///   (workers * accumulation), which makes a mean of gradients.
/// * `depart(position, step)`: a tensor's gradient is final and no piece of it has been sent.
/// * `arrive(position, step)`: a tensor's last piece has come. Without this verb, the engine
///   applies the optimizer to the mean, as `incoming`, if there is one, has left it in the buffer.
/// * `serve(endpoint, message)` -> task: answers a message of any rank. It reads the message's
///   bytes, starts the answer as a task of its own, and ends, because no other message is served
///   meanwhile. It never touches the parameters of a rank that trains.
/// * `resume(step)`: the model holds the parameters of that step; the state must copy those that it
///   keeps.
/// * `memories()`: spans of floats that a checkpoint keeps. A checkpoint restores the parameters,
///   calls `resume`, and then restores these spans. To outlive a plan they are laid out in one of
///   three ways. By default they follow the flat order of the model, whatever the chunks are. On
///   ranks that own chunks and do not train they come chunk by chunk, the same number of spans for
///   each chunk that is not empty, with a whole number of floats an element. Where ranks update
///   parts of every chunk there is one span for each chunk, of this rank's part, row by row.
/// * `rescale(factor)`: multiplies by `factor` the residuals of means that the state itself
///   remembers and that are measured in steps of the optimizer.
/// * `undo_step()`: the last step has updated nothing. The state forgets what it made in that step:
///   its residuals of means become what they were before. Ranks that train are also told where
///   residuals are to stay as the step has left them.
/// * `optimizer_floats()`: how many floats of `memories()` are what the optimizer remembers on this
///   rank.
/// * `worker_left(worker)` -> task: that worker pushes no more. Called on ranks that serve.
/// * `holds_back(chunk)`: on a rank that serves, whether some worker's answer for the chunk waits,
///   as the architecture intends, for what other workers have yet to send. No deadline ends that
///   wait.
/// * `counted_pushes()`: what this rank has counted of pushes (base/push_counts.hpp).
/// * `at_rest()` returns whether all of its answers have been read; `finish()` -> task ends when
///   they have.
template <class A>
concept architecture_policy = std::same_as<typename A::role, role::architecture> &&
    detail::states_facts<A> && architecture_state<detail::state_of<A>, archetype::world> &&
    detail::makes_a_state<A> && detail::workers<A> && detail::listens<A> && detail::place<A>;

/// The number of ranks among `size` that train, which are the first ones.
template <class A>
constexpr int workers_among(const options_of<A>& options, int size) {
  if constexpr (facts::has_servers<A>) {
    return A::workers(options, size);
  } else {
    return size;
  }
}

template <class A>
constexpr bool listens(const options_of<A>& options, int rank, int size) {
  if constexpr (facts::has_listeners<A>) {
    return A::listens(options, rank, size);
  } else {
    return false;
  }
}

}  // namespace tutti
