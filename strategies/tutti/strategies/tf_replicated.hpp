#pragma once

#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/strategies/tf_reduction.hpp"

namespace tutti::strategies {

/// An all-reduce a tensor, by what its size says: tf_cnn_benchmarks' `--variable_update
/// distributed_all_reduce`, and `replicated` where all sizes go one way; by default `nccl`.
/// `of_all_reduce_spec("pscpu:32k:xring")` are its options. There gradients are summed; here, as
/// under every strategy, averaged.
struct TFReplicated {
  static constexpr std::string_view name = "TFReplicated";
  using strategy = compose<architecture::all_reduce<tf_reduction>>;
};

}  // namespace tutti::strategies
