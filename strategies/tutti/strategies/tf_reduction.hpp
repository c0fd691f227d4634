#pragma once

#include <array>
#include <string_view>

#include "tutti/collective/by_graph.hpp"
#include "tutti/collective/by_size.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/rings.hpp"
#include "tutti/collective/shuffle.hpp"

namespace tutti::strategies {

/// The algorithms of tf_cnn_benchmarks' `--all_reduce_spec`.
enum class tf_algorithm {
  nccl,         ///< a ring of all ranks, as NCCL's for large messages
  nccl_xring,   ///< each host adds up on its first rank, then first ranks around a ring
  nccl_rechd,   ///< likewise, then first ranks by recursive halving and doubling
  nccl_pscpu,   ///< likewise, then each first rank adds up a part
  xring,        ///< several rings at once, as many as the shards of `xring#2`
  pscpu,        ///< each shard is added up on one host, the next chunk's on another
  psgpu,        ///< as pscpu, but on any rank
  pscpu_pscpu,  ///< each host adds up on its first rank, then the first rank of all adds up
  collective,   ///< TensorFlow's own ring, or two of them
};

/// Returns the enumerators' names, in their order.
constexpr std::array<std::string_view, 9> names(tf_algorithm) {
  return {"nccl",  "nccl/xring", "nccl/rechd",  "nccl/pscpu", "xring",
          "pscpu", "psgpu",      "pscpu/pscpu", "collective"};
}

/// `pscpu/pscpu`, which is KungFu's tree of hosts.
struct star_of_hosts : collective::by_graph {
  constexpr star_of_hosts() : by_graph({.topology = collective::topology::tree}) {}
};

/// The ranks of a host add up on the first, which alone exchanges the sum with other hosts, by
/// `Across`.
template <class Across>
using after_nccl =
    collective::hierarchical<collective::ring, Across, collective::crossing::first_rank>;

struct tf_reduction
    : collective::by_size<
          tf_algorithm, collective::ring, after_nccl<collective::ring>,
          after_nccl<collective::halving_doubling>, after_nccl<collective::canonical>,
          collective::rings, collective::shuffle<collective::gather_at::hosts>,
          collective::shuffle<collective::gather_at::ranks>, star_of_hosts, collective::rings> {
  using by_size::by_size;
};

}  // namespace tutti::strategies
