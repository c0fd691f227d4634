#pragma once

#include <vector>

#include "tutti/core/compose.hpp"
#include "tutti/core/engine_options.hpp"

namespace tutti::test::listed {

/// A strategy with the options that it is run with, one after the other. What sends less than every
/// gradient says by `expected(workers, steps)` what its parameters come to, or also what each
/// worker sends; by `expected(options, workers, steps)`, where that depends on the options.
template <class Strategy>
struct with_defaults {
  using strategy = Strategy;
  using options = engine_options<Strategy>;
  static std::vector<options> variants() { return {{}}; }
};

}  // namespace tutti::test::listed
