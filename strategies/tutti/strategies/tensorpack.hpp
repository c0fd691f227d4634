#pragma once

#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/mean.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/hierarchical_copy.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::strategies {

/// All-reduces each tensor around a ring, and every rank applies the sum: tensorpack's
/// SyncMultiGPUTrainerReplicated with average=False in mode `nccl`.
struct TensorpackReplicated {
  static constexpr std::string_view name = "TensorpackReplicated";
  static constexpr std::string_view after =
      "tensorpack's SyncMultiGPUTrainerReplicated with average=False, mode `nccl`";
  static constexpr std::string_view deviations = "";
  using strategy = compose<architecture::all_reduce<collective::ring, architecture::mean::none>>;
};

/// TensorpackReplicated with sums in the order of ranks: tensorpack's mode `cpu`, which its
/// benchmark uses below 8 GPUs.
struct TensorpackReplicatedCPU {
  static constexpr std::string_view name = "TensorpackReplicatedCPU";
  static constexpr std::string_view after =
      "tensorpack's SyncMultiGPUTrainerReplicated with average=False, mode `cpu`";
  static constexpr std::string_view deviations =
      "Each rank adds up a share and sends it to the others; in tensorpack everything is added up "
      "in the host's memory.";
  using strategy =
      compose<architecture::all_reduce<collective::canonical, architecture::mean::none>>;
};

/// All-reduces all gradients in eight pieces, each of which is added up in both halves of the
/// ranks, and then across the halves. This is tensorpack's mode `hierarchical`, for the 8 GPUs of a
/// DGX-1, which tf_cnn_benchmarks calls `--hierarchical_copy`.
struct TensorpackReplicatedHierarchical {
  static constexpr std::string_view name = "TensorpackReplicatedHierarchical";
  static constexpr std::string_view after =
      "tensorpack's SyncMultiGPUTrainerReplicated with average=False, mode `hierarchical`";
  static constexpr std::string_view deviations =
      "Any number of ranks is possible, with `--partition.pieces` set to it. tensorpack does not "
      "pack gradients of fewer than 1024 elements a piece; in tutti they travel in one piece.";
  using strategy =
      compose<fusion::all, partition::into,
              architecture::all_reduce<collective::hierarchical_copy, architecture::mean::none>>;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.cut = partition::cut::rest_in_last, .pieces = 8, .least = 1024}};
  }
};

}  // namespace tutti::strategies
