#pragma once

#include <vector>

#include "tutti/benchmark.hpp"

namespace bench {

/// Every network of apps/models on pictures of noise: what is measured is time, and that does not
/// depend on what is in them.
const std::vector<tutti::benchmark::model_choice>& networks();

/// ResNet-50 and BERT-Base, replayed by 4 workers at 1 and 10 Gbit/s.
const std::vector<tutti::benchmark::replayed_choice>& replays();

}  // namespace bench
