// expect: state.depart(position, step)
#include <cstddef>
#include <cstdint>

#include "tutti/architecture/all_reduce.hpp"

/// An architecture whose state has a verb without its last argument: the concept shows the call
/// that it is asked for, before there is an engine.
struct steps_first : tutti::architecture::all_reduce<> {
  template <class World>
  struct state : tutti::architecture::all_reduce<>::state<World> {
    using tutti::architecture::all_reduce<>::state<World>::state;
#ifdef GOOD
    void depart(std::size_t, std::uint64_t) {}
#else
    void depart(std::size_t) {}
#endif
  };
};
static_assert(tutti::architecture_policy<steps_first>);
