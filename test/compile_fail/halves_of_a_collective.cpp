// expect: collective.reduce_scatter(self, data)
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/star.hpp"

#ifdef GOOD
using inside = tutti::collective::ring;
#else
using inside = tutti::collective::star;  // has no halves
#endif
static_assert(!tutti::collective::hierarchical<inside>::rank_ordered);
