// expect: tutti: this compressor works on whole buckets, but this partition cuts them. Fix: use partition::none, or a compressor whose unit is smaller.
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"

/// Chooses among a whole bucket's elements.
struct of_a_bucket : tutti::compression::top_k {
  static constexpr tutti::unit unit = tutti::unit::bucket;
};

#ifdef GOOD
using cut = tutti::partition::none;
#else
using cut = tutti::partition::into;
#endif

tutti::compose<cut, of_a_bucket> composed;
