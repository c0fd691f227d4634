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

/// What it is that an architecture carries between ranks.
enum class carries {
  gradient,
  difference,  ///< of parameters, from what they were when last exchanged
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
constexpr bool gives_gradients_back = requires {
  requires A::gives_gradients_back;
};
/// Each rank owns a part of every chunk.
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
/// Its workers wait for no others, each goes on at its own pace.
template <class A>
constexpr bool keeps_no_step = A::completes_alone&& stale<A>;
/// However far ahead of the others a worker is, unlike one of bounded staleness: it may end before
/// they do.
template <class A>
constexpr bool waits_for_nobody = requires {
  requires A::waits_for_nobody;
};
template <class A>
constexpr bool drops_gradients = requires {
  requires A::drops_gradients;
};
/// From some step on, what the compressor has left out of earlier ones would go nowhere.
template <class A>
constexpr bool stops_compressing = requires {
  requires A::stops_compressing;
};
/// Or what it has left out of means.
template <class A>
constexpr bool stops_encoding_means = requires {
  requires A::stops_encoding_means;
};
/// In some steps it sends gradients by the compressor, and in others not.
template <class A>
constexpr bool compresses_at_times = requires {
  requires A::compresses_at_times;
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
/// From some step on, momenta travel, which the optimizer makes of gradients.
template <class A>
constexpr bool exchanges_momenta = requires {
  requires A::exchanges_momenta;
};
/// What comes of an exchange can be mixed into whatever the model is by then.
template <class A>
constexpr bool mixes_late = requires {
  requires A::mixes_late;
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
/// The architecture merges payloads: it needs a compressor that does.
template <class A>
constexpr bool merges_payloads = requires {
  requires A::merges_payloads;
};
/// It keeps from step to step the magnitude from which on elements travel: it needs a compressor
/// that sends what reaches one.
template <class A>
constexpr bool keeps_magnitudes = requires {
  requires A::keeps_magnitudes;
};
/// Every rank must start its exchanges in the same order.
template <class A>
constexpr bool ordered_start = requires {
  requires A::ordered_start;
};

/// The optional verbs of an architecture's state.
template <class S>
using verbs_beside = archetype::beside<S, archetype::optional_verbs>;

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
using placing_beside = archetype::beside<A, archetype::placing>;
/// Some ranks, the last ones, do not train.
template <class A>
concept has_servers = requires {
  &A::workers;
}
|| !requires { &placing_beside<A>::workers; };
/// Some ranks answer whoever asks.
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

/// Scratch depends on more of a chunk than its elements.
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

/// A state has the verb, or leaves out one that it may, with the arguments and the result that
/// architecture_policy says.
namespace verbs {
/// What an optional verb is asked of: the state, or an archetype where the state leaves it out.
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
/// What arrives where nothing was sent is for the state to say.
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

/// The verbs of an architecture's state over `World` are as architecture_policy says.
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
/// Ranks that listen have an answer.
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

/// An architecture says who combines what, what that is, and what becomes of it.
///
/// Facts, and what the plan needs, are static:
///
/// * `adds_payloads`: encoded payloads are added on their way, so they must be summable.
/// * `completes_alone`: a rank's launch completes although no other worker starts it now.
/// * `carries`, `gradient` unless it says otherwise.
/// * `divides_first`: it makes means by dividing gradients before it encodes them.
/// * `owns_parameters`: the optimizer runs on the owners of parameters alone: servers, or those of
///   parts.
/// * `ignores_compression`: what it sends, it sends as it is.
/// * `weighs_tensors`: what becomes of a tensor depends on all of it, so that none is cut.
/// * `updates_first`: what travels is taken after the update, so the optimizer must be the
/// engine's.
/// * `receives_from_any`: somebody takes what comes first, from whom is for the message to say.
/// * `stale`: a worker may compute on parameters that lack another worker's update.
/// * `drops_gradients`: a step's mean is of the gradients that came first, and not of all.
/// * `stops_compressing`: from some step on it does not send gradients by the compressor any more.
/// * `stops_encoding_means`: from some step on it encodes no sums again.
/// * `compresses_at_times`: before some step, or from it on, it sends none by the compressor.
/// * `has_halves`: its exchange can be split, and awaits `between_halves()` of its launch.
/// * `encodes_means`: a sum is encoded again by the rank that made it (`launch::owner`).
/// * `owns_parts`: sums are encoded again, or parameters owned, by parts of every chunk
///   (`chunk::part`); then what is remembered of them moves to its new owners with a plan.
/// * `gives_gradients_back`: its exchange calls the world's `give_back` of every launch, and does
///   not touch the launch's `data` from then on; so the engine can lend gradients their memory.
/// * `delay`: a tensor arrives when its launch has begun, with what came of so many launches before
///   (0 or 1); nothing before there was one. Where the state has `incoming`, it takes that then,
///   and `outgoing` follows.
/// * `mixes_late`: what comes of an exchange can be mixed into whatever the model is by then.
/// * `turns_on_steps`: a launch is exchanged as its step says, so all its chunks are of one.
/// * `exchanges_momenta`: in steps of which its optimizer says so it sends the optimizer's first
///   row, which is then the launch's `data`, and `outgoing` has the buffer to work in.
/// * `workers(options, size)`: so many ranks, the first ones, train; all unless it is stated.
/// * `listens(options, rank, size)`: this rank answers whoever asks; needs `serve`.
/// * `place(plan, options, size)`: says which rank owns each chunk. Throws usage_error.
/// * `adds_in_rounds`: where payloads add, it runs compressors of several rounds, and those that
///   select: its states' `workspace_bytes` also takes a chunk.
/// * `busiest_nic(payload, dense, placement)`: bytes that must pass some host's NIC in one
///   direction, in a step of so many payload bytes a worker, whatever the order: no step is shorter
///   than these at the NIC's rate. `dense` is the same gradient as floats.
/// * `alone(placement)`: what an exchange that has the network to itself takes, where that is so
///   many latencies and so many payloads through one NIC: then few ranks can represent many. Or
///   `alone(options, placement, elements)`, where that counts or there is not always such a form.
///
/// `state<World>(world, options)` is made once a rank, after the plan and before the parameters are
/// broadcast. `World` (core/surroundings.hpp) is all that it may know and do. Its verbs are plain
/// members whose results are written out; an optional one is found by its name, and must then be
/// callable as it stands here. Where a state says `using conditional_verbs = state;`, one whose
/// `requires` clause does not hold is not stated; there none must be a template or overloaded.
///
/// * `workspace_bytes(elements)`, or `workspace_bytes(chunk)` where it looks at more: scratch for
///   each launch, known from the plan.
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
/// * `serve(endpoint, message)` -> task: an answer to whoever asks. It takes the bytes, starts the
///   answer beside, and ends, for nobody else is served meanwhile. It never touches the parameters
///   of a rank that trains.
/// * `resume(step)`: the parameters are those of that step: take copies of them.
/// * `memories()`: spans of floats that a checkpoint keeps. A checkpoint restores the parameters,
///   then calls `resume`, then restores these. So that they outlive a plan, they are by place in
///   the model, the flat order, whatever the chunks; or, on ranks that own chunks and do not train,
///   chunk by chunk, as many spans for each that is not empty, of whole floats an element; or,
///   where ranks own parts of every chunk, one span for each chunk, row by row.
/// * `rescale(factor)`: residuals of means that it remembers itself, in steps of the optimizer,
///   become `factor` times as much.
/// * `undo_step()`: the last step has updated nothing, and nothing that it made is remembered:
///   residuals of its means are what they were before it.
/// * `optimizer_floats()`: so many of them are what the optimizer remembers on this rank.
/// * `worker_left(worker)` -> task: it pushes no more; on ranks that serve.
/// * `holds_back(chunk)`: on a rank that serves, some worker's answer of the chunk waits for what
/// other
///   workers have yet to send, as the architecture has it: no deadline ends that wait.
/// * `counted_pushes()`: what this rank has counted of pushes (base/push_counts.hpp).
/// * `at_rest()`, `finish()` -> task: whether, and until, all its answers have been read.
template <class A>
concept architecture_policy = std::same_as<typename A::role, role::architecture> &&
    detail::states_facts<A> && architecture_state<detail::state_of<A>, archetype::world> &&
    detail::makes_a_state<A> && detail::workers<A> && detail::listens<A> && detail::place<A>;

/// Ranks that train, among `size`: the first so many.
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
