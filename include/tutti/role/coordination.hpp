#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/archetypes.hpp"

namespace tutti {

namespace role {
struct coordination {};
}  // namespace role

namespace coordination {

/// A rank's number and the number of ranks that take part in a machine's decisions.
struct ranks {
  int rank{};
  int size{1};
};

/// An `is_ready` under which every chunk may start.
struct all_ready {
  constexpr bool operator()(std::uint32_t) const { return true; }
};

}  // namespace coordination

namespace facts {

template <class C>
constexpr bool joins = false;
template <class C>
requires requires { C::joins; }
constexpr bool joins<C> = C::joins;

/// Whether the machine may ask for the time although the fusion has no cycle.
template <class C>
constexpr bool keeps_time = true;
template <class C>
requires requires { C::keeps_time; }
constexpr bool keeps_time<C> = C::keeps_time;

}  // namespace facts

/// The interface of a coordination's machine. `now` never decreases. After every event the engine
/// calls `speak`, then `next` until it returns nothing, and then `speak` again.
///
/// * `ready(bucket, now)`: all tensors of the bucket have their gradients on this rank. It is not
///   called for that bucket again before the bucket's chunks have been started and have arrived.
/// * `hear(peer, words, now)`: rank `peer`'s machine has said these words, in one call of its `say`
///   or in several, one after the other. What one call says comes complete. Throws
///   communication_error if the two ranks' decisions differ.
/// * `released(launch, now)`: the launch's bytes have left this rank.
/// * `due()`: returns when the machine wants a call of `tick(now)`, or nothing if it waits for
///   events only, as it must once it has let everything start that is ready.
/// * `speak(say)`: calls `say(span of words)` for whatever the machine has to say. Rank 0 speaks to
///   all other ranks, the others to rank 0. On them it is not called while their last words are
///   still on their way to rank 0.
/// * `next(is_ready, left)`: returns the launch to start now, if any. All of its chunks must be
///   ready on this rank. Only the first `left` words of rank 0 count: a launch that later words
///   announce must not start yet. On rank 0 these are the words that it has sent to all others, if
///   it must not start a launch earlier; otherwise `left` is no limit.
/// * `stuck(is_ready)`: returns the chunk that this rank or another one must hand in before the
///   machine can go on, if it knows one. The diagnosis of a stalled job asks about that chunk.
/// * `expects_words()`: returns true while a question between the ranks' machines has no answer, so
///   that the rank must not end yet.
template <class M>
concept coordination_machine = requires(M& machine, const M& seen, std::uint32_t which,
                                        std::span<const std::uint32_t> words, seconds now,
                                        void (*say)(std::span<const std::uint32_t>),
                                        coordination::all_ready is_ready, std::size_t left) {
  machine.ready(which, now);
  machine.hear(0, words, now);
  machine.released(which, now);
  { seen.due() } -> std::same_as<std::optional<seconds>>;
  machine.tick(now);
  machine.speak(say);
  { machine.next(is_ready, left) } -> std::same_as<std::optional<std::uint32_t>>;
  { seen.stuck(is_ready) } -> std::same_as<std::optional<std::uint32_t>>;
  { seen.expects_words() } -> std::same_as<bool>;
};

namespace detail {
template <class C>
using machine_of = typename C::template state<archetype::choice>;
template <class C>
concept makes_a_machine = requires(const plan& made, std::span<const tensor> forward,
                                   coordination::ranks all, const tutti::options_of<C>& options,
                                   archetype::choice choice) {
  machine_of<C>(made, forward, all, options, std::move(choice));
};
/// The machine of a coordination whose ranks may join must be told of it.
template <class C>
concept hears_of_joins = requires(
    std::conditional_t<facts::joins<C>, machine_of<C>, archetype::joining>& machine, seconds now) {
  machine.join(now);
  { machine.all_have_joined() } -> std::same_as<bool>;
};
}  // namespace detail

/// A coordination says which rank decides, for all ranks, what is launched next. Its machine has no
/// input or output, no threads and no clock: it is told events, and returns words to send and
/// launches to start. It allocates nothing after construction.
///
/// * `one_order`: every rank gets the same launches in the same order.
/// * `keeps_time`, true by default: if false, the machine has no times of its own. It is then told
///   the time and asked for `due` only where the fusion has a cycle; elsewhere `now` is 0.
/// * `joins`, false by default: ranks may have different numbers of batches. The machine then has
///   `join(now)`, which says that this rank has no more batches, and `all_have_joined()`.
/// * `state<Choice>(plan, tensors, ranks, options, choice)`: the machine, a coordination_machine. A
///   choice is a schedule, followed by a fusion if that decides at run time.
///
/// A launch is identified by its first chunk. If the choice gathers, the machine also has
/// `after(chunk)`, which returns the next chunk of the same launch. It is valid until the launch is
/// released, so read it before the chunk's tensors arrive.
template <class C>
concept coordination_policy = std::same_as<typename C::role, role::coordination> && requires {
  { C::one_order } -> std::convertible_to<bool>;
} && coordination_machine<detail::machine_of<C>> && detail::makes_a_machine<C> &&
    detail::hears_of_joins<C>;

}  // namespace tutti
