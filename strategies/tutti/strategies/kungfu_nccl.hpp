#pragma once

#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"

namespace tutti::strategies {

/// All-reduces each tensor around a ring, as NCCL does. Every rank starts them in the order in
/// which rank 0 had the tensors in its first step. This is `sync-sgd-nccl` of Mai et al., "KungFu",
/// OSDI 2020.
struct KungFuNCCL {
  static constexpr std::string_view name = "KungFuNCCL";
  static constexpr std::string_view after = "Mai et al., \"KungFu\", OSDI 2020, `sync-sgd-nccl`";
  static constexpr std::string_view deviations = "";
  using strategy = compose<coordination::learned, architecture::all_reduce<collective::ring>>;
};

/// KungFuNCCL with `--fuse`: all gradients in one message, so that there is no order to learn.
struct KungFuNCCLFused {
  static constexpr std::string_view name = "KungFuNCCLFused";
  static constexpr std::string_view after =
      "Mai et al., \"KungFu\", OSDI 2020, `sync-sgd-nccl` with `--fuse`";
  static constexpr std::string_view deviations = "";
  using strategy = compose<fusion::all, architecture::all_reduce<collective::ring>>;
};

/// KungFu's `sync-sgd-hierarchical-nccl`, in the learned order: ranks first add up inside their
/// hosts. In KungFu a host's first rank exchanges the sum with other hosts, along `-strategy`; here
/// all ranks of a host do, a share each, around rings. In KungFu a host learns an order of its own
/// for both ways inside it.
struct KungFuHierarchicalNCCL {
  static constexpr std::string_view name = "KungFuHierarchicalNCCL";
  static constexpr std::string_view after =
      "Mai et al., \"KungFu\", OSDI 2020, `sync-sgd-hierarchical-nccl`";
  static constexpr std::string_view deviations =
      "In KungFu only a host's first rank exchanges with other hosts, along `-strategy`; in tutti "
      "all ranks do, a share each, around rings. In KungFu each host also learns its own order for "
      "both directions inside it.";
  using strategy =
      compose<coordination::learned, architecture::all_reduce<collective::hierarchical<>>>;
};

}  // namespace tutti::strategies
