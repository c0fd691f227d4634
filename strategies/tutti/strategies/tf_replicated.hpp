#pragma once

#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/strategies/tf_reduction.hpp"

namespace tutti::strategies {

/// An all-reduce a tensor, by what its size says; by default `nccl`.
/// `of_all_reduce_spec("pscpu:32k:xring")` are its options.
struct TFReplicated {
  static constexpr std::string_view name = "TFReplicated";
  static constexpr std::string_view after =
      "tf_cnn_benchmarks, `--variable_update` `distributed_all_reduce`, or `replicated`";
  static constexpr std::string_view deviations =
      "There gradients are summed, here averaged; inside a host NCCL adds them up, here its "
      "first rank.";
  using strategy = compose<architecture::all_reduce<tf_reduction>>;
};

}  // namespace tutti::strategies
