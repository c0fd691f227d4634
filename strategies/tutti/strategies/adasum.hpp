#pragma once

#include <cstddef>
#include <string_view>

#include "tutti/architecture/adasum.hpp"
#include "tutti/base/units.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::strategies {

/// Each rank takes its own optimizer step, and the steps are added so that what they have in common
/// counts once. They travel in Horovod's fusion buffers.
struct Adasum {
  static constexpr std::string_view name = "Adasum";
  static constexpr std::string_view after =
      "Maleki et al., \"Scaling distributed training with adaptive summation\", MLSys 2021, "
      "as Horovod's `DistributedOptimizer(op=Adasum)`";
  static constexpr std::string_view deviations =
      "Horovod requires a power of two of ranks; tutti first combines each rank above the largest "
      "power of two with the rank that many places below. Horovod adds in MPI, or on GPUs first "
      "takes the mean inside each host; in tutti all ranks are alike, and everything is fp32.";
  using strategy = compose<fusion::when_ready, coordination::negotiated,
                           architecture::adasum<carries::difference>>;
  static constexpr policy_options<strategy> defaults(std::size_t on_a_host = 1) {
    return {.fusion = {128_MiB, 1e-3, 64 * sizeof(double) * on_a_host, 1, fusion_types::apart},
            .coordination = {.by = coordination::identity::name, .cache = 1024}};
  }
};

}  // namespace tutti::strategies
