// expect: collective.all_reduce(self, data)
#include <cstddef>

#include "tutti/architecture/all_reduce.hpp"

/// A collective of the user's whose verb has a typo: the door says so, and no coroutine inside.
struct misspelt {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = false;

  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }
  template <class Endpoint, class Fold>
#ifdef GOOD
  tutti::task all_reduce(Endpoint, tutti::reduction<Fold>) const;
#else
  tutti::task allreduce(Endpoint, tutti::reduction<Fold>) const;
#endif
};
using sums = tutti::architecture::all_reduce<misspelt>;
static_assert(!sums::completes_alone);
