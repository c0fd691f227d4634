// Every named strategy has the policies and the defaults that its system's papers, code and flags
// state; test/lint/published.py finds a strategy without a row. Three strategies whose behaviour no
// other file tests are tested here. PowerSGD, QSGD and PairAveraging have only a row of the table
// here, beside the laws of their policies.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/replica_oracle.hpp"
#include "support/rule.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/strategies.hpp"
#include "tutti/strategies/mean_of_signs.hpp"
#include "tutti/strategies/one_bit_adam.hpp"

namespace tutti::test {
namespace {

using compression::error_feedback;
using schedule::at_most;
using schedule::by_priority;
using schedule::split_phase;
template <class Consistency, class UpdatedBy>
using servers = architecture::parameter_server<Consistency, UpdatedBy>;

/// A strategy, its policies other than their roles' defaults, and every option of theirs.
template <class Strategy, class... Policies>
struct row {
  std::string options;

  static constexpr bool composed_so = std::is_same_v<strategy_of<Strategy>, compose<Policies...>>;
};

std::string up_to(std::size_t bytes, const std::string& crossing = "in",
                  const std::string& from = "last") {
  return "fusion.bytes=" + std::to_string(bytes) +
         " fusion.elements=18446744073709551615 fusion.first_bytes=0 fusion.crossing=" + crossing +
         " fusion.from=" + from + " fusion.types=together ";
}
std::string up_to_elements(std::size_t elements) {
  return "fusion.bytes=67108864 fusion.elements=" + std::to_string(elements) +
         " fusion.first_bytes=0 fusion.crossing=in fusion.from=last fusion.types=together ";
}
std::string merged(const std::string& rule) {
  return "fusion.rule=" + rule +
         " fusion.startup=0.0001 fusion.seconds_per_byte=1e-09 fusion.ring=0 "
         "fusion.seconds_per_element=5e-09 ";
}
std::string cut_by(std::size_t bytes, const std::string& how) {
  return "partition.bytes=" + std::to_string(bytes) + " partition.elements=0 partition.cut=" + how +
         " partition.pieces=0 partition.least=0 ";
}
std::string one_server(const std::string& placed_by, int threads = 0) {
  return "architecture.servers=1 architecture.placed_by=" + placed_by +
         " architecture.mixed_classes=101 architecture.engine_threads=" + std::to_string(threads) +
         " architecture.engine_order=received ";
}
// HOROVOD_FUSION_THRESHOLD 128 MiB, _CYCLE_TIME 1 ms and _CACHE_CAPACITY 1024 since v0.21, and
// FUSION_BUFFER_ATOMIC_UNIT, 64 of 8 bytes.
const std::string fusion_buffers =
    "fusion.bytes=134217728 fusion.cycle=0.001 fusion.multiple=512 fusion.alignment=1 "
    "fusion.types=apart coordination.by=name coordination.cache=1024 ";
// Equal votes pack to 0, which is +1; with one node the momentum itself is applied.
const std::string a_tie_is_positive =
    "architecture.tie=positive architecture.seed=1 architecture.single=is_believed ";
// MXNET_KVSTORE_BIGARRAY_BOUND a million elements; keys by 9973.
const std::string bigarray_bound =
    "partition.bound=1000000 schedule.credit=0 schedule.rule=positive ";

/// BYTEPS_MIN_COMPRESS_BYTES 65536, and the options of the compressor itself.
std::string compressed_by_byteps(const std::string& its_own) {
  return cut_by(4'096'000, "fixed") + "schedule.credit=0 schedule.rule=fits " + its_own +
         "compression.dense_below=65536 " + one_server("djb2", 4);
}

const std::tuple published{
    row<strategies::Local, architecture::independent>{},
    row<strategies::BSP, fusion::all, schedule::at_end>{},
    row<strategies::WFBP, at_most>{"schedule.exchanges=1 "}, row<strategies::WFBPUnlimited>{},
    row<strategies::MGWFBP, fusion::merge_gradients, at_most>{merged("greedy") +
                                                              "schedule.exchanges=1 "},
    row<strategies::MGWFBPExact, fusion::merge_gradients>{merged("exact")},
    row<strategies::ASCWFBP, fusion::merge_gradients, at_most>{merged("greedy") +
                                                               "schedule.exchanges=2 "},
    row<strategies::Horovod, fusion::when_ready, coordination::negotiated>{fusion_buffers},
    row<strategies::HorovodHierarchical, fusion::when_ready, coordination::negotiated,
        architecture::all_reduce<collective::hierarchical<
            collective::ring, collective::ring, collective::crossing::all_ranks_if_even>>>{
        fusion_buffers},
    // bucket_cap_mb 25, the first bucket of 1 MiB.
    row<strategies::DDP, fusion::by_arrival, coordination::learned,
        architecture::replicated<architecture::mean::before>>{
        "fusion.bytes=26214400 fusion.first_bytes=1048576 fusion.rebuild=after_first_step "
        "fusion.types=apart "},
    // BYTEPS_PARTITION_BYTES 4,096,000, _SCHEDULING_CREDIT 0, _KEY_HASH_FN djb2,
    // _MIXED_MODE_BOUND 101, _SERVER_ENGINE_THREAD 4, _SERVER_ENABLE_SCHEDULE 0.
    row<strategies::BytePS, partition::into, by_priority, architecture::parameter_server<>>{
        cut_by(4'096'000, "fixed") + "schedule.credit=0 schedule.rule=fits " +
        one_server("djb2", 4)},
    // BYTEPS_FUSION_THRESHOLD 536,870,912 and BYTEPS_SERVER_ENGINE_THREAD 8 in the survey's.
    row<strategies::BSPPS, fusion::all, partition::into, schedule::at_end,
        architecture::parameter_server<>>{cut_by(4'096'000, "fixed") + one_server("djb2", 8)},
    // BYTEPS_MIN_COMPRESS_BYTES 65536; {'compressor': 'onebit', 'scaling': True, 'ef': 'vanilla'}
    row<strategies::BytePSOneBit, partition::into, by_priority,
        compression::dense_below<compression::rescaled_error_feedback<compression::byteps_onebit>>,
        architecture::parameter_server<>>{
        cut_by(4'096'000, "fixed") + "schedule.credit=0 schedule.rule=fits " +
        "compression.worth=mean_magnitude compression.dense_below=65536 " + one_server("djb2", 4)},
    // BYTESCHEDULER_PARTITION 1,000,000 and _CREDIT 4,000,000 elements.
    row<strategies::ByteScheduler, partition::into, by_priority>{
        cut_by(4'000'000, "fixed") + "schedule.credit=16000000 schedule.rule=positive "},
    // THRESHOLD 25 MB; while a module waits for its group, the next group's gather has begun.
    row<strategies::DeAR, fusion::by_modules, split_phase, architecture::all_reduce<>>{
        "fusion.bytes=26214400 fusion.modules=0 schedule.gathers_at_once=2 "},
    row<strategies::TopK, fusion::all, error_feedback<compression::top_k>,
        architecture::all_gather>{"compression.density=0.001 compression.k=0 "},
    row<strategies::TopK2, fusion::all, error_feedback<compression::top_k>,
        architecture::selecting_all_gather>{"compression.density=0.001 compression.k=0 "},
    // The tree of the original, which loses what two ranks leave out.
    row<strategies::gTopKSGD, fusion::all, error_feedback<compression::top_k>,
        architecture::sparse_tree>{
        "compression.density=0.001 compression.k=0 architecture.give_back=compatible "},
    // allreducer.py of their code for VGG: local_ and global_threshold_recompute_interval 32,
    // region_repartition_interval 64, _scale 1.012, _scale_global_increase and _decrease 1.008;
    // compression.py: 5 loops; vgg16_oktopk.sh: density 0.02.
    row<strategies::OkTopk, fusion::all, error_feedback<compression::by_kth_magnitude>,
        architecture::sparse_regions>{
        "compression.density=0.02 compression.k=0 architecture.estimate_every=32 "
        "architecture.divide_every=64 architecture.balance_above=0 architecture.raises=5 "
        "architecture.own_correction=1.012 architecture.sum_correction=1.008 "},
    // Top-k's time per element and comparison is a P102-100's, all-gathers' that of its table.
    row<strategies::DGC, compression::momentum_correction<error_feedback<compression::top_k>>,
        architecture::all_gather>{
        "compression.momentum=0.9 compression.masking=sent compression.clip=0 "
        "compression.density=0.001 compression.k=0 "},
    row<strategies::OMGS, fusion::sparse_merge, at_most, error_feedback<compression::top_k>,
        architecture::all_gather>{
        "fusion.startup=0.0027 fusion.seconds_per_byte=1.3e-08 fusion.gather=4 "
        "fusion.seconds_per_comparison=2.18897e-10 fusion.seconds_per_element=5e-09 "
        "schedule.exchanges=1 compression.density=0.001 compression.k=0 "},
    // _take_tensors of 100 MiB, in the order of the model's parameters.
    row<strategies::SignSGD, fusion::up_to, schedule::at_end, compression::sign,
        architecture::majority_vote>{up_to(104'857'600, "out", "first") + a_tie_is_positive},
    row<strategies::Signum, fusion::up_to, schedule::at_end, compression::signum,
        architecture::majority_vote>{up_to(104'857'600, "out", "first") + "compression.beta=0.9 " +
                                     a_tie_is_positive},
    row<strategies::EFSignSGD, compression::rescaled_error_feedback<compression::scaled_sign>,
        architecture::reduce_scatter_all_gather>{},
    row<strategies::PowerSGD, fusion::up_to,
        compression::select<matrices, compression::power_sgd, compression::none>>{
        up_to(67'108'864) + "compression.start=0 compression.rank=2 compression.seed=1 "},
    row<strategies::QSGD, compression::qsgd, architecture::all_gather>{
        "compression.levels=7 compression.block=512 compression.seed=1 "},
    row<strategies::MXNetDistSync, partition::over_servers, by_priority,
        servers<consistency::synchronous, updated_by::servers>>{bigarray_bound +
                                                                one_server("kvstore")},
    // {'type': '2bit', 'threshold': 0.5}
    row<strategies::MXNet2Bit, partition::over_servers, by_priority,
        error_feedback<compression::two_bit>,
        servers<consistency::synchronous, updated_by::servers>>{
        bigarray_bound + "compression.threshold=0.5 " + one_server("kvstore")},
    row<strategies::MXNetDistAsync, partition::over_servers, by_priority,
        servers<consistency::asynchronous, updated_by::servers>>{bigarray_bound +
                                                                 one_server("kvstore")},
    // MXNET_KVSTORE_SLICE_THRESHOLD 40,000 elements; ten of them under DMLC_PS_WATER_MARK 10.
    row<strategies::P3, partition::into, by_priority, architecture::parameter_server<>>{
        cut_by(160'000, "fixed") + "schedule.credit=1600000 schedule.rule=positive " +
        one_server("round_robin")},
    row<strategies::KungFu, partition::into, architecture::all_reduce<collective::by_graph>>{
        cut_by(1'048'576, "even") +
        "architecture.topology=binary_tree_star architecture.hash=name "},
    row<strategies::PairAveraging, fusion::all, architecture::pair_averaging>{
        "architecture.seed=1 "},
    row<strategies::SMA, architecture::model_averaging<>>{"architecture.alpha=0.1 "},
    row<strategies::LocalSGD, fusion::up_to, architecture::local_sgd<>>{
        up_to(67'108'864) + "architecture.period=4 architecture.warm_up=0 "
                            "architecture.growth=constant architecture.momenta=kept "},
    row<strategies::AdaSGD,
        architecture::switch_at<architecture::model_averaging<>, architecture::all_reduce<>>>{
        "architecture.step=1000 architecture.alpha=0.1 "},
    row<strategies::DPSGD, fusion::up_to, architecture::gossip>{
        up_to(67'108'864) + "architecture.topology=ring architecture.hop=1 "},
    row<strategies::SGP, fusion::up_to, architecture::push_sum>{
        up_to(67'108'864) + "architecture.receiver=exponential architecture.seed=1 "},
    row<strategies::ADPSGD, fusion::all, architecture::bipartite_averaging>{
        "architecture.neighbours=complete architecture.seed=1 "},
    row<strategies::EASGD, fusion::up_to, architecture::elastic_averaging<>>{
        up_to(67'108'864) + "architecture.force=0.9 architecture.period=1 "},
    row<strategies::AsyncEASGD, fusion::up_to, architecture::elastic_servers>{
        up_to(67'108'864) + "architecture.servers=1 architecture.force=0.9 architecture.period=1 "},
    // H 500, outer learning rate 0.7, outer momentum 0.9
    row<strategies::DiLoCo, fusion::up_to, architecture::diloco<>>{
        up_to(67'108'864) +
        "architecture.period=500 architecture.rate=0.7 architecture.momentum=0.9 "},
    row<strategies::Relaxed,
        architecture::delayed<architecture::replicated<architecture::mean::none>>>{},
    row<strategies::ZeRO1, fusion::up_to, split_phase, architecture::sharded<>>{
        up_to(26'214'400) + "schedule.gathers_at_once=2 "},
    row<strategies::ZeRO2, fusion::up_to, split_phase,
        architecture::sharded<collective::ring, architecture::gradients::given_back>>{
        up_to(26'214'400) + "schedule.gathers_at_once=2 architecture.lent_bytes=0 "},
    row<strategies::ZeROPlusPlus, fusion::up_to, split_phase, architecture::sharded_by_owners,
        compression::remembering_answers<compression::block_int8>>{
        up_to(26'214'400) + "schedule.gathers_at_once=2 compression.block=256 "},
    row<strategies::Adasum, fusion::when_ready, coordination::negotiated,
        architecture::adasum<carries::difference>>{fusion_buffers},
    // --all_reduce_spec nccl
    row<strategies::TFReplicated,
        architecture::all_reduce<strategies::tf_reduction, architecture::mean::none>>{
        "architecture.algorithm=nccl architecture.shards=1 architecture.up_to=0 "},
    row<strategies::DistributedReplicated,
        servers<consistency::synchronous, updated_by::servers_by_push>>{one_server("round_robin")},
    // BYTEPS_ENABLE_ASYNC 1
    row<strategies::BytePSAsync, partition::into, by_priority,
        servers<consistency::asynchronous, updated_by::workers>>{
        cut_by(4'096'000, "fixed") + "schedule.credit=0 schedule.rule=fits " + one_server("djb2")},
    row<strategies::SSP, servers<consistency::bounded_staleness, updated_by::workers>>{
        one_server("least_loaded") + "architecture.staleness=3 "},
    // total_num_replicas is replicas_to_aggregate unless it is given
    row<strategies::SyncReplicas, servers<consistency::backup_workers, updated_by::servers>>{
        one_server("round_robin") + "architecture.backups=0 "},
    // lambda_0 of DC-ASGD-c on CIFAR-10
    row<strategies::DCASGD, servers<consistency::delay_compensated, updated_by::servers>>{
        one_server("least_loaded") +
        "architecture.lambda=0.04 architecture.lambda_is=constant architecture.decay=0.95 "}};

/// Variants of these, which apps reach by options or as a composition.
const std::tuple in_no_registry{
    row<strategies::HorovodTorus, fusion::when_ready, coordination::negotiated,
        architecture::all_reduce<collective::torus>>{fusion_buffers + "architecture.columns=0 "},
    // BYTEPS_SERVER_ENABLE_SCHEDULE 1
    row<strategies::ByteSchedulerPS, partition::into, by_priority,
        architecture::parameter_server<>>{
        cut_by(4'096'000, "fixed") + "schedule.credit=0 schedule.rule=fits " +
        "architecture.servers=1 architecture.placed_by=djb2 architecture.mixed_classes=101 "
        "architecture.engine_threads=8 architecture.engine_order=byteps "},
    row<strategies::WFBPPS, partition::into, by_priority, architecture::parameter_server<>>{
        cut_by(4'096'000, "fixed") + "schedule.credit=0 schedule.rule=fits " +
        one_server("djb2", 8)},
    row<strategies::MGWFBP8192, fusion::merge_gradients, at_most>{merged("greedy_8192") +
                                                                  "schedule.exchanges=1 "},
    // BYTESCHEDULER_PARTITION 4,000,000 and _CREDIT 16,000,000 elements
    row<strategies::ByteSchedulerA2A, partition::into, by_priority>{
        cut_by(16'000'000, "fixed") + "schedule.credit=64000000 schedule.rule=positive "},
    // NUM_NEARBY_LAYERS 4
    row<strategies::DeARNearby, fusion::by_modules, split_phase, architecture::all_reduce<>>{
        "fusion.bytes=26214400 fusion.modules=4 schedule.gathers_at_once=2 "},
    row<strategies::PostLocalSGD, fusion::up_to, architecture::local_sgd<>>{
        up_to(67'108'864) +
        "architecture.period=4 architecture.warm_up=1000 architecture.growth=constant "
        "architecture.momenta=kept "},
    row<strategies::PairAveragingAhead, fusion::all,
        architecture::delayed<architecture::pair_averaging>>{"architecture.seed=1 "},
    row<strategies::StreamingDiLoCo, architecture::streaming_diloco<architecture::all_gather>,
        compression::e3m0>{
        "architecture.period=100 architecture.fragments=4 architecture.overlap=1 "
        "architecture.keep=0.5 architecture.rate=0.7 architecture.momentum=0.9 "},
    row<strategies::KungFuNCCL, coordination::learned,
        architecture::all_reduce<collective::ring>>{},
    row<strategies::KungFuNCCLFused, fusion::all, architecture::all_reduce<collective::ring>>{},
    row<strategies::KungFuHierarchicalNCCL, coordination::learned,
        architecture::all_reduce<collective::hierarchical<>>>{},
    row<strategies::TFParameterServer,
        servers<consistency::synchronous, updated_by::servers_by_push>>{one_server("least_loaded")},
    row<strategies::TFLocalParameterServer, servers<consistency::synchronous, updated_by::servers>>{
        one_server("least_loaded")},
    row<strategies::TFReplicatedByCopy,
        architecture::all_reduce<collective::shuffle<collective::gather_at::ranks>,
                                 architecture::mean::none>>{"architecture.shards=1 "},
    // {'compressor': 'topk', 'ef': 'vanilla'} and its like
    row<strategies::BytePSTopK, partition::into, by_priority,
        compression::dense_below<compression::rescaled_error_feedback<compression::byteps_topk>>,
        architecture::parameter_server<>>{
        compressed_by_byteps("compression.density=0.001 compression.k=0 ")},
    row<strategies::BytePSRandomK, partition::into, by_priority,
        compression::dense_below<compression::rescaled_error_feedback<compression::byteps_randomk>>,
        architecture::parameter_server<>>{
        compressed_by_byteps("compression.density=0.001 compression.k=0 compression.seed=1 ")},
    row<strategies::BytePSDithering, partition::into, by_priority,
        compression::dense_below<compression::dithering>, architecture::parameter_server<>>{
        compressed_by_byteps(
            "compression.levels=16 compression.spacing=linear compression.norm=largest "
            "compression.seed=1 ")},
    // Their --threshold 67108864 counts elements.
    row<strategies::MeanOfSigns, fusion::up_to, compression::sign, architecture::all_gather>{
        up_to_elements(67'108'864)},
    row<strategies::EFMeanOfSigns, fusion::up_to, error_feedback<compression::sign>,
        architecture::all_gather>{up_to_elements(67'108'864)},
    row<strategies::OneBitAdam, error_feedback<compression::norm_scaled_sign>,
        architecture::momentum_exchange>{},
    row<strategies::TensorpackReplicated,
        architecture::all_reduce<collective::ring, architecture::mean::none>>{},
    row<strategies::TensorpackReplicatedCPU,
        architecture::all_reduce<collective::canonical, architecture::mean::none>>{},
    row<strategies::TensorpackReplicatedHierarchical, fusion::all, partition::into,
        architecture::all_reduce<collective::hierarchical_copy, architecture::mean::none>>{
        "partition.bytes=4096000 partition.elements=0 partition.cut=rest_in_last "
        "partition.pieces=8 partition.least=1024 "}};

static_assert(std::tuple_size_v<decltype(published)> == std::tuple_size_v<strategies::all>,
              "a strategy has no row here, or a row no strategy");

/// Returns the options of a strategy's policies with the strategy's defaults.
template <class Strategy>
std::string defaults_of() {
  std::ostringstream said;
  auto all = default_options<Strategy>();
  decltype(all)::each(all, [&said](std::string_view role, auto& own) {
    std::remove_cvref_t<decltype(own)>::describe(
        own, [&](std::string_view name, const auto& value, std::string_view) {
          said << role << "." << name << "=";
          if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(value)>>) {
            said << names(value)[static_cast<std::size_t>(value)] << " ";
          } else {
            said << value << " ";
          }
        });
  });
  return said.str();
}

/// Checks the texts that lists of strategies print.
template <class Named>
void says_what_it_is_after(const Named*) {
  EXPECT_FALSE(Named::after.empty()) << Named::name;
  EXPECT_TRUE(Named::deviations.empty() || Named::deviations.ends_with('.')) << Named::name;
}
TEST(Published, AllSayWhatTheyAreAfter) {
  []<class... Each>(const std::tuple<Each...>*) {
    (says_what_it_is_after(static_cast<const Each*>(nullptr)), ...);
  }(static_cast<const strategies::all*>(nullptr));
  const auto of_row = []<class Strategy, class... Policies>(const row<Strategy, Policies...>&) {
    says_what_it_is_after(static_cast<const Strategy*>(nullptr));
  };
  std::apply([&](const auto&... rows) { (of_row(rows), ...); }, in_no_registry);
}

TEST(Published, EveryStrategyHasItsPoliciesAndDefaults) {
  const auto check = []<class Strategy, class... Policies>(const row<Strategy, Policies...>& each,
                                                           const Strategy*) {
    EXPECT_TRUE((row<Strategy, Policies...>::composed_so)) << Strategy::name;
    EXPECT_EQ(defaults_of<Strategy>(), each.options) << Strategy::name;
  };
  const auto its_own =
      [&]<class Strategy, class... Policies>(const row<Strategy, Policies...>& each) {
        check(each, static_cast<const Strategy*>(nullptr));
      };
  std::apply([&](const auto&... rows) { (its_own(rows), ...); }, in_no_registry);
  // One row each, in the order of the list.
  [&]<class... Strategies>(const std::tuple<Strategies...>*) {
    std::apply(
        [&](const auto&... rows) { (check(rows, static_cast<const Strategies*>(nullptr)), ...); },
        published);
  }(static_cast<const strategies::all*>(nullptr));
}

/// The default policy of each role that a composition does not name.
TEST(Published, RolesHaveTheirDefaults) {
  EXPECT_TRUE((std::is_same_v<compose<>, strategy<fusion::none, partition::none, schedule::as_ready,
                                                  coordination::automatic, compression::none,
                                                  architecture::replicated<>>>));
}

/// The values of HOROVOD_FUSION_THRESHOLD and _CYCLE_TIME before v0.21, on hosts of one rank and of
/// three.
TEST(Published, HorovodBefore021HadHalfTheBuffersAndLongerCycles) {
  const std::string rest =
      " fusion.alignment=1 fusion.types=apart coordination.by=name coordination.cache=1024 ";
  using strategies::HorovodBefore021;
  EXPECT_TRUE((std::is_same_v<strategy_of<HorovodBefore021>, strategies::Horovod::strategy>));
  EXPECT_EQ(defaults_of<HorovodBefore021>(),
            "fusion.bytes=67108864 fusion.cycle=0.005 fusion.multiple=512" + rest);
  EXPECT_EQ(HorovodBefore021::defaults(3).fusion.multiple, 1536U);
}

/// KungFu under its other flags differs only in the topology.
TEST(Published, KungFusStrategiesDifferInTheirTopology) {
  const auto check = []<class Over>(const Over&, const std::string& topology) {
    EXPECT_TRUE((std::is_same_v<strategy_of<Over>, strategies::KungFu::strategy>));
    EXPECT_EQ(defaults_of<Over>(), cut_by(1'048'576, "even") + "architecture.topology=" + topology +
                                       " architecture.hash=name ");
  };
  check(strategies::KungFuStar(), "star");
  check(strategies::KungFuMultiStar(), "multi_star");
  check(strategies::KungFuRing(), "ring");
  check(strategies::KungFuClique(), "clique");
  check(strategies::KungFuTree(), "tree");
  check(strategies::KungFuBinaryTree(), "binary_tree");
  check(strategies::KungFuMultiBinaryTreeStar(), "multi_binary_tree_star");
  check(strategies::KungFuAuto(), "automatic");
}

// ---- what some of them do, with two workers and three steps

constexpr std::uint64_t everything = 141'200'032;  // bytes of the large model
const std::vector<std::size_t> tensor_by_tensor{2'500'000, 25'000'000, 5'000'000,
                                                8,         2'500'000,  300'000};
const rule as_ready{
    0, {1, 1, 1, 1, 1, 1}, tensor_by_tensor, {1, 0, 2, 3, 5, 4}, {everything, everything}};

std::function<bool(const outcomes&)> each_has(std::vector<std::vector<float>> expected) {
  return [expected = std::move(expected)](const outcomes& made) {
    return close(made[0], expected[0]) && close(made[1], expected[1]);
  };
}

TEST(Published, RelaxedAppliesNothingAtFirst) {
  rule late = as_ready;
  // A tensor counts as arrived when its exchange has begun.
  late.bytes = {everything / 2, everything / 2};
  late.result = all_have(trained_on_sums(2, observed_steps - 1));
  EXPECT_EQ(broken(observe<strategies::Relaxed>(2), late), "");
  EXPECT_EQ(broken(observe<compose<architecture::delayed<>>>(2), late), "result ");
  EXPECT_EQ(broken(observe<compose<>>(2), late), "bytes result ");
}

TEST(Published, SMAGoesATenthOfTheWay) {
  rule drawn = as_ready;
  const auto by = [](float alpha) {
    return each_has(of_replicas(2, observed_steps, [alpha](auto& all, int step, std::size_t i) {
      const float mean = mean_of(all);
      for (replica& each : all) {
        each.x = (1 - alpha) * each.x + alpha * mean;
      }
      step_alone(all, step, i);
    }));
  };
  drawn.result = by(0.1f);
  EXPECT_EQ(broken(observe<strategies::SMA>(2), drawn), "");
  drawn.result = by(0.2f);
  EXPECT_EQ(broken(observe<strategies::SMA>(2), drawn), "result ");
}

/// Ranks step alone for three steps; the fourth would send.
TEST(Published, LocalSGDStepsAlone) {
  rule alone{0, {2, 4}, {27'500'000, 7'800'008}, {}, {0, 0}};
  alone.result = each_has(of_replicas(2, observed_steps, step_alone));
  EXPECT_EQ(broken(observe<strategies::LocalSGD>(2), alone), "");
  engine_options<strategies::LocalSGD> sooner;
  sooner.architecture.period = 3;
  EXPECT_EQ(broken(observe<strategies::LocalSGD>(2, sooner), alone), "result ");
}

}  // namespace
}  // namespace tutti::test
