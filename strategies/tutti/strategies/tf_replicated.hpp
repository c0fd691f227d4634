#pragma once

#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/mean.hpp"
#include "tutti/collective/shuffle.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/strategies/tf_reduction.hpp"

namespace tutti::strategies {

/// All-reduces each tensor with the algorithm for its size, by default `nccl`. Every rank applies
/// the sum, so the learning rate has to be one for a sum.
/// `of_all_reduce_spec("pscpu:32k:xring")` returns its options.
struct TFReplicated {
  static constexpr std::string_view name = "TFReplicated";
  static constexpr std::string_view after =
      "tf_cnn_benchmarks, `--variable_update` `distributed_all_reduce`, or `replicated`";
  static constexpr std::string_view deviations =
      "Inside a host its first rank adds up gradients; in the original NCCL does.";
  using strategy = compose<architecture::all_reduce<tf_reduction, architecture::mean::none>>;
};

/// All ranks' gradients of a tensor are copied to one rank, those of the next tensor to the next
/// rank, added up there and copied back. Every rank applies the sum.
struct TFReplicatedByCopy {
  static constexpr std::string_view name = "TFReplicatedByCopy";
  static constexpr std::string_view after =
      "tf_cnn_benchmarks, `--variable_update replicated` without an `--all_reduce_spec`";
  static constexpr std::string_view deviations =
      "Chunks are assigned to ranks in turn; the original picks the rank with the fewest bytes.";
  using strategy =
      compose<architecture::all_reduce<collective::shuffle<collective::gather_at::ranks>,
                                       architecture::mean::none>>;
};

}  // namespace tutti::strategies
