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
  using strategy = compose<architecture::all_reduce<collective::ring, architecture::mean::none>>;
};

}  // namespace tutti::strategies
