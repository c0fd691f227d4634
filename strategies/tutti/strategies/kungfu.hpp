#pragma once

#include <string_view>

#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"

namespace tutti::strategies {

/// In each step half-way to the model of a peer drawn at random, nobody in lock-step; one buffer
/// for the whole model: Mai et al., "KungFu", OSDI 2020, `async-sgd`.
struct PairAveraging {
  static constexpr std::string_view name = "PairAveraging";
  using strategy = compose<fusion::all, architecture::pair_averaging>;
};

/// In each step a tenth of the way to the mean of all models: KungFu's `sma`.
struct SMA {
  static constexpr std::string_view name = "SMA";
  using strategy = compose<architecture::model_averaging<>>;
};

}  // namespace tutti::strategies
