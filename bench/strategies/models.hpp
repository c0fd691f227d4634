#pragma once

#include <vector>

#include "tutti/benchmark.hpp"

namespace bench {

/// Returns the networks mlp and cnn of apps/models, with images of noise, because the time of a
/// step does not depend on the images.
const std::vector<tutti::benchmark::model_choice>& networks();

/// Returns ResNet-50 and BERT-Base, replayed by 4 workers at 1 and 10 Gbit/s.
const std::vector<tutti::benchmark::replayed_choice>& replays();

}  // namespace bench
