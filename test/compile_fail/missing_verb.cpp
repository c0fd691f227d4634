// expect: fusion.group_ends(backward, known)
#include <span>
#include <vector>

#include "tutti/role/fusion.hpp"

/// A policy of the user's that lacks its role's verb: the concept says which.
struct half_done {
  using role = tutti::role::fusion;
#ifdef GOOD
  std::vector<std::size_t> group_ends(std::span<const tutti::tensor_facts>,
                                      const tutti::profile&) const;
#endif
};
static_assert(tutti::fusion_policy<half_done>);
