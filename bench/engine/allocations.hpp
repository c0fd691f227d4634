#pragma once

#include <cstddef>

namespace bench {

/// Calls of any `operator new` in this process so far.
std::size_t allocations();

}  // namespace bench
