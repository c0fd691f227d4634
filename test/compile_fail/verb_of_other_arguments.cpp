// expect: tutti: a verb of this architecture's state cannot be called as role/architecture.hpp says. Fix: correct its arguments and its result, or give it another name.
#include <cstddef>
#include <cstdint>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/transport/in_process.hpp"

/// A verb that is a template and takes too few arguments where floats travel: the policy's concept
/// has not seen this world, so the engine says it.
template <class Compression>
struct counts {
  template <class Position>
  void arrive(Position, std::uint64_t) {}
};
#ifndef GOOD
template <>
struct counts<tutti::compression::none> {
  template <class Position>
  void arrive(Position) {}
};
#endif
struct counts_arrivals : tutti::architecture::all_reduce<> {
  template <class World>
  struct state : tutti::architecture::all_reduce<>::state<World>,
                 counts<typename World::compression> {
    using tutti::architecture::all_reduce<>::state<World>::state;
  };
};
static_assert(sizeof(tutti::engine<tutti::compose<counts_arrivals>, tutti::transport::in_process,
                                   tutti::optimizer::sgd>) > 0);

// However it is written, a name is found.
struct none {};
struct overloaded {
  void arrive(std::size_t, std::uint64_t) {}
  void arrive(std::size_t, int) {}
};
struct inherited : overloaded {};
class hidden {
  void arrive(std::size_t, std::uint64_t) {}
};
template <bool Stated>
struct conditional {
  using conditional_verbs = conditional;
  void arrive(std::size_t, std::uint64_t) requires Stated {}
};
struct derived : conditional<false> {};
using namespace tutti::facts;
static_assert(!has_arrive<none> && has_arrive<overloaded> && has_arrive<inherited>);
static_assert(has_arrive<hidden>);
static_assert(has_arrive<conditional<true>> && !has_arrive<conditional<false>>);
static_assert(has_arrive<derived>, "only what the state itself says counts");
