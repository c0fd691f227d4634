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

/// Who takes part in a machine's decisions.
struct ranks {
  int rank{};
  int size{1};
};

/// What a rank's chunks answer where every one of them may start.
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

}  // namespace facts

/// What the machine of a coordination answers to. `now` never goes back. After every event come
/// `speak`, `next` until it has none, and `speak` again.
///
/// * `ready(bucket, now)`: all its tensors have their gradients on this rank; not again before its
///   chunks have begun and arrived.
/// * `hear(peer, words, now)`: what that rank's machine said, whole as it was said. Throws
///   communication_error if the two have not decided alike.
/// * `released(launch, now)`: its bytes have left here.
/// * `due()`: when it wants `tick(now)`; none: it waits for events.
/// * `speak(say)`: calls `say(span of words)` for whatever is to be said, by rank 0 to all others,
///   by the others to rank 0. Not called while what was said last is still under way to rank 0.
/// * `next(is_ready, left)`: the launch to start now, if any, of chunks that are ready here, among
///   those that the first `left` words that ever left say.
/// * `stuck(is_ready)`: the chunk that others or this rank must hand in before it can go on, if it
///   knows one: the diagnosis asks about it.
/// * `expects_words()`: somebody has been asked and has not answered: not yet the end.
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
/// Where ranks may join, the machine hears of it.
template <class C>
concept hears_of_joins = requires(
    std::conditional_t<facts::joins<C>, machine_of<C>, archetype::joining>& machine, seconds now) {
  machine.join(now);
  { machine.all_have_joined() } -> std::same_as<bool>;
};
}  // namespace detail

/// A coordination says who decides, on all ranks, what is launched next. Its machine has no input
/// or output, threads or clock: events in, words and launches out. It allocates nothing after
/// construction.
///
/// * `one_order`: every rank gets the same launches in the same order.
/// * `joins`, false unless it says otherwise: ranks may have unequal numbers of batches. Its
///   machine has `join(now)` and `all_have_joined()`.
/// * `state<Choice>(plan, tensors, ranks, options, choice)`: the machine, a coordination_machine.
///   A choice is a schedule, and a fusion at run time behind it.
///
/// A launch is known by its first chunk. Where the choice gathers, `after(chunk)` is the next chunk
/// of the same launch, until the launch is released: read it before the chunk's tensors arrive.
template <class C>
concept coordination_policy = std::same_as<typename C::role, role::coordination> && requires {
  { C::one_order } -> std::convertible_to<bool>;
} && coordination_machine<detail::machine_of<C>> && detail::makes_a_machine<C> &&
    detail::hears_of_joins<C>;

}  // namespace tutti
