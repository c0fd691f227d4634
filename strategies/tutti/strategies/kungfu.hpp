#pragma once

#include <string_view>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/base/units.hpp"
#include "tutti/collective/by_graph.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::strategies {

/// All-reduces each tensor as soon as its gradient exists, in even pieces of at most 1 MiB. Each
/// piece travels along one of the graphs of the topology BINARY_TREE_STAR, which a hash of the
/// piece's name chooses.
struct KungFu {
  static constexpr std::string_view name = "KungFu";
  static constexpr std::string_view after = "Mai et al., \"KungFu\", OSDI 2020, `sync-sgd`";
  static constexpr std::string_view deviations =
      "A hash of a tensor's name chooses its graph: in tutti that is the model's name, not "
      "TensorFlow's operation, and each byte of a non-ASCII character counts. A rank adds its "
      "children in rank order, in KungFu as they arrive.";
  using strategy = compose<partition::into, architecture::all_reduce<collective::by_graph>>;
  static constexpr policy_options<strategy> defaults() {
    return {.partition = {.bytes = 1_MiB, .cut = partition::cut::even}};
  }
};

/// KungFu with another `-strategy`. These differ only in the option `architecture.topology`, which
/// programs may take as a flag.
template <collective::topology Topology>
struct KungFuOver {
  static constexpr std::string_view after = KungFu::after;
  static constexpr std::string_view deviations = KungFu::deviations;
  using strategy = KungFu::strategy;
  static constexpr policy_options<strategy> defaults() {
    auto its = KungFu::defaults();
    its.architecture.topology = Topology;
    return its;
  }
};
struct KungFuStar : KungFuOver<collective::topology::star> {
  static constexpr std::string_view name = "KungFuStar";
};
struct KungFuMultiStar : KungFuOver<collective::topology::multi_star> {
  static constexpr std::string_view name = "KungFuMultiStar";
};
struct KungFuRing : KungFuOver<collective::topology::ring> {
  static constexpr std::string_view name = "KungFuRing";
};
struct KungFuClique : KungFuOver<collective::topology::clique> {
  static constexpr std::string_view name = "KungFuClique";
};
struct KungFuTree : KungFuOver<collective::topology::tree> {
  static constexpr std::string_view name = "KungFuTree";
};
struct KungFuBinaryTree : KungFuOver<collective::topology::binary_tree> {
  static constexpr std::string_view name = "KungFuBinaryTree";
};
struct KungFuMultiBinaryTreeStar : KungFuOver<collective::topology::multi_binary_tree_star> {
  static constexpr std::string_view name = "KungFuMultiBinaryTreeStar";
};
struct KungFuAuto : KungFuOver<collective::topology::automatic> {
  static constexpr std::string_view name = "KungFuAuto";
};

/// In each step a rank's model moves half-way to the model of a peer that is drawn at random. No
/// rank runs in lock-step with another. The whole model is one buffer.
struct PairAveraging {
  static constexpr std::string_view name = "PairAveraging";
  static constexpr std::string_view after = "Mai et al., \"KungFu\", OSDI 2020, `async-sgd`";
  static constexpr std::string_view deviations = "";
  using strategy = compose<fusion::all, architecture::pair_averaging>;
};

/// PairAveraging, but towards a model that was asked for in the step before, so that it has had a
/// step's computing in which to arrive.
struct PairAveragingAhead {
  static constexpr std::string_view name = "PairAveragingAhead";
  static constexpr std::string_view after =
      "Mai et al., \"KungFu\", OSDI 2020, `async-sgd` with prefetched requests";
  static constexpr std::string_view deviations = "";
  using strategy = compose<fusion::all, architecture::delayed<architecture::pair_averaging>>;
};

/// In each step every model moves a tenth of the way to the mean of all models.
struct SMA {
  static constexpr std::string_view name = "SMA";
  static constexpr std::string_view after = "Mai et al., \"KungFu\", OSDI 2020, `sma`";
  static constexpr std::string_view deviations =
      "Models travel around a ring instead of along KungFu's `-strategy`.";
  using strategy = compose<architecture::model_averaging<>>;
};

/// SMA for a thousand steps. From then on all models and momenta are equal, and each step applies
/// the mean of all gradients.
struct AdaSGD {
  static constexpr std::string_view name = "AdaSGD";
  static constexpr std::string_view after = "Mai et al., \"KungFu\", OSDI 2020, `ada-sgd`";
  static constexpr std::string_view deviations =
      "In the step before the switch, models and momenta become their means; KungFu instead hands "
      "out rank 0's after it. KungFu has no default for the step of the switch.";
  using strategy =
      compose<architecture::switch_at<architecture::model_averaging<>, architecture::all_reduce<>>>;
  static constexpr policy_options<strategy> defaults() { return {.architecture = {.step = 1000}}; }
};

}  // namespace tutti::strategies
