// expect: tutti: this policy has options, but cannot be made with them, so they would do nothing.
#include "tutti/base/options.hpp"
#include "tutti/compression/top_k.hpp"

struct named_otherwise : tutti::compression::top_k {
#ifdef GOOD
  using tutti::compression::top_k::top_k;
#endif
};

const auto made = tutti::make_policy<named_otherwise>({.density = 0.5});
