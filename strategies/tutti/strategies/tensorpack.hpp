#pragma once

#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/mean.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/core/compose.hpp"

namespace tutti::strategies {

/// An all-reduce a tensor around a ring, and every rank applies the sum: tensorpack's
/// SyncMultiGPUTrainerReplicated with average=False in mode `nccl`, as its benchmark has it but for
/// the mode; `cpu` is `collective::canonical`, `hierarchical` `collective::hierarchical_copy`.
struct TensorpackReplicated {
  static constexpr std::string_view name = "TensorpackReplicated";
  static constexpr std::string_view after =
      "tensorpack's SyncMultiGPUTrainerReplicated with average=False, mode `nccl`";
  static constexpr std::string_view deviations =
      "Its benchmark runs in another mode: `cpu`, or `hierarchical` from 8 GPUs on.";
  using strategy = compose<architecture::all_reduce<collective::ring, architecture::mean::none>>;
};

}  // namespace tutti::strategies
