#pragma once

#include <vector>

#include "tutti/core/compose.hpp"
#include "tutti/core/engine_options.hpp"

namespace tutti::test::listed {

/// A strategy with the list of options that it is run with. A strategy whose result is not that of
/// plain averaging states by `expected(workers, steps)` what its parameters become, or also what
/// each worker sends; by `expected(options, workers, steps)` if that depends on the options.
template <class Strategy>
struct with_defaults {
  using strategy = Strategy;
  using options = engine_options<Strategy>;
  static std::vector<options> variants() { return {{}}; }
};

}  // namespace tutti::test::listed
