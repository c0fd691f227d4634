#pragma once

#include <cstddef>

namespace bench {

/// Returns how often `operator new` has been called in this process, in any form.
std::size_t allocations();

}  // namespace bench
