#pragma once

#include <string_view>

#include "tutti/architecture/replicated.hpp"
#include "tutti/base/units.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/by_arrival.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::strategies {

/// The first step has one bucket for each element type. Later steps have buckets of 25 MiB, the
/// first of 1 MiB, of gradients in the order in which rank 0's came, and launch them strictly in
/// that order. Every rank divides its gradients before they are added. PyTorch's `static_graph` is
/// fusion::rebuild::after_second_step, and `find_unused_parameters` is fusion::rebuild::never.
struct DDP {
  static constexpr std::string_view name = "DDP";
  static constexpr std::string_view after =
      "Li et al., \"PyTorch Distributed\", VLDB 2020, and DistributedDataParallel";
  static constexpr std::string_view deviations =
      "Until the order of the buckets is known, rank 0 tells the others what to launch; at most "
      "four buckets are in flight; the size of a 16-bit gradient counts as that of floats.";
  using strategy = compose<fusion::by_arrival, coordination::learned,
                           architecture::replicated<architecture::mean::before>>;
  static constexpr policy_options<strategy> defaults() {
    return {.fusion = {.bytes = 25_MiB, .first_bytes = 1_MiB, .types = fusion_types::apart}};
  }
};

}  // namespace tutti::strategies
