#pragma once

#include <vector>

#include "tutti/benchmark.hpp"

namespace bench {

/// Every network of apps/models on pictures of noise: what is measured is time, and that does not
/// depend on what is in them.
const std::vector<tutti::benchmark::model_choice>& networks();

}  // namespace bench
