// expect: tutti: this compressor works on whole buckets, but this fusion gathers different ones in every step. Fix: use fusion::up_to, or a compressor whose unit is smaller.
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/when_ready.hpp"

/// Chooses among a whole bucket's elements.
struct of_a_bucket : tutti::compression::top_k {
  static constexpr tutti::unit unit = tutti::unit::bucket;
};

#ifdef GOOD
using small = tutti::compression::top_k;
#else
using small = of_a_bucket;
#endif

tutti::compose<tutti::fusion::when_ready, small> composed;
