#pragma once

#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "support/adaptive_sum_oracle.hpp"
#include "support/dealt.hpp"
#include "support/decentralised_strategies.hpp"
#include "support/listed.hpp"
#include "support/oracle.hpp"
#include "support/payload_oracle.hpp"
#include "support/short_blocks.hpp"
#include "support/sparse_regions_oracle.hpp"
#include "support/sparse_tree_oracle.hpp"
#include "tutti/architecture/adasum.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/graphs.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/by_arrival.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/at_most.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/split_phase.hpp"
#include "tutti/strategies/adasum.hpp"
#include "tutti/strategies/bytescheduler.hpp"
#include "tutti/strategies/ef_sign_sgd.hpp"
#include "tutti/strategies/gtopk_sgd.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/strategies/kungfu.hpp"
#include "tutti/strategies/ok_topk.hpp"
#include "tutti/strategies/qsgd.hpp"
#include "tutti/strategies/sign_sgd.hpp"
#include "tutti/strategies/top_k.hpp"
#include "tutti/strategies/wfbp.hpp"
#include "tutti/strategies/zero_plus_plus.hpp"
#include "tutti/tutti.hpp"

/// Strategies that together use every policy. A strategy that joins the list must train as its
/// oracle does in every world, unless a rule refuses it there (see strategy_laws.hpp). One file,
/// because it is one list.
namespace tutti::test::listed {

template <class Options>
Options moved_by_a_thread(Options each) {
  each.run.progress = progress::by_thread;
  return each;
}

template <class... Policies>
using in_rank_order = compose<architecture::all_reduce<collective::canonical>, Policies...>;

using WFBPUnlimited = with_defaults<strategies::WFBPUnlimited>;  // all options are the defaults
using canonical = with_defaults<in_rank_order<>>;
using at_the_end = with_defaults<
    compose<architecture::all_reduce<collective::star>, fusion::all, schedule::at_end>>;

struct merged_one_at_a_time
    : with_defaults<compose<architecture::all_reduce<collective::halving_doubling>,
                            fusion::merge_gradients, partition::into, schedule::at_most>> {
  static std::vector<options> variants() { return {{.partition = {.bytes = 4000}}}; }
};

/// A window of one chunk at a time.
struct fused_by_priority
    : with_defaults<in_rank_order<fusion::up_to, partition::into, schedule::by_priority>> {
  static std::vector<options> variants() {
    const options one{
        .fusion = {.bytes = 3000}, .partition = {.bytes = 100'000}, .schedule = {.credit = 1}};
    return {one, moved_by_a_thread(one)};
  }
};

struct ByteScheduler : with_defaults<strategies::ByteScheduler> {
  static std::vector<options> variants() {
    const options some{.partition = {.bytes = 30'000}, .schedule = {.credit = 60'000}};
    return {some, moved_by_a_thread(some)};
  }
};

struct Horovod : with_defaults<strategies::Horovod> {
  static std::vector<options> variants() {
    return {{.fusion = {.cycle = 2e-5}},
            {.fusion = {.bytes = 300, .cycle = 0},
             .coordination = {.by = coordination::identity::name, .cache = 2}}};
  }
};

struct gathered_by_priority
    : with_defaults<in_rank_order<fusion::when_ready, partition::into, schedule::by_priority>> {
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 16'000, .cycle = 0},
             .partition = {.bytes = 4'000},
             .schedule = {.credit = 8'000, .rule = schedule::credit_rule::fits}}};
  }
};

struct gathered_by_arrival
    : with_defaults<in_rank_order<fusion::by_arrival, coordination::learned>> {
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000, .first_bytes = 500}},
            {.fusion = {.bytes = 20'000, .rebuild = fusion::rebuild::after_second_step}},
            {.fusion = {.bytes = 3000, .rebuild = fusion::rebuild::never}}};
  }
};

/// Ranks of a host first, and then, for each share, one rank of every host.
struct hosts_first
    : with_defaults<
          compose<architecture::all_reduce<collective::hierarchical<>>, partition::into>> {
  static std::vector<options> variants() { return {{.partition = {.bytes = 50'000}}}; }
};

/// Trees of hosts, where each piece takes one of several graphs.
struct KungFu : with_defaults<strategies::KungFu> {
  static std::vector<options> variants() {
    options in_pieces;
    in_pieces.partition.bytes = 20'000;
    options in_turns = in_pieces;
    in_turns.architecture = {.topology = collective::topology::multi_binary_tree_star,
                             .hash = collective::hash::index};
    options around = in_pieces;
    around.architecture.topology = collective::topology::ring;
    return {in_pieces, in_turns, around};
  }
};

struct servers_that_add
    : with_defaults<
          compose<architecture::parameter_server<>, partition::into, schedule::by_priority>> {
  static std::vector<options> variants() {
    using architecture::placed_by;
    const auto so_many = [](int servers, placed_by how) {
      return options{.partition = {.bytes = 50'000},
                     .schedule = {.credit = 1},
                     .architecture = {.servers = servers, .placed_by = how}};
    };
    return {so_many(1, placed_by::least_loaded), so_many(2, placed_by::round_robin),
            so_many(3, placed_by::djb2)};
  }
};

struct servers_that_update
    : with_defaults<
          compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>,
                  fusion::up_to>> {
  static std::vector<options> variants() {
    using architecture::placed_by;
    return {{},
            {.fusion = {.bytes = 2000},
             .architecture = {.servers = 2, .placed_by = placed_by::kvstore}}};
  }
};

struct TopK : with_defaults<strategies::TopK> {
  static std::vector<options> variants() { return {{.compression = {.density = 0.1}}}; }
  static std::vector<float> expected(int workers, int steps) {
    const compression::error_feedback<compression::top_k> its({.density = 0.1});
    return payloads(way::gathered, workers, steps, its, {total_elements()}).parameters;
  }
};

struct gTopKSGD : with_defaults<strategies::gTopKSGD> {
  static std::vector<options> variants() { return {{.compression = {.density = 0.1}}}; }
  static std::vector<float> expected(int workers, int steps) {
    const auto of_rank = [](std::size_t rank, std::size_t step, std::size_t i) {
      return gradient(static_cast<int>(rank), static_cast<int>(step), i);
    };
    const auto all = selected_by_a_tree(
        architecture::give_back::compatible, static_cast<std::size_t>(workers), total_elements(),
        total_elements() / 10, static_cast<std::size_t>(steps), of_rank);
    return descended(steps, {}, [&](int step, std::size_t i) {
      return all.sums[static_cast<std::size_t>(step)][i] * (1.0f / static_cast<float>(workers));
    });
  }
};

struct OkTopk : with_defaults<strategies::OkTopk> {
  static std::vector<options> variants() {
    return {{.compression = {.density = 0.1},
             .architecture = {.estimate_every = 3,
                              .divide_every = 2,
                              .raises = 5,
                              .own_correction = 1.012,
                              .sum_correction = 1.008}}};
  }
  static std::vector<float> expected(int workers, int steps) {
    const auto of_rank = [](std::size_t rank, std::size_t step, std::size_t i) {
      return gradient(static_cast<int>(rank), static_cast<int>(step), i);
    };
    const auto all = selected_in_regions({total_elements() / 10, 3, 2, 0, 5, 1.012, 1.008},
                                         static_cast<std::size_t>(workers), total_elements(),
                                         static_cast<std::size_t>(steps), of_rank);
    return descended(steps, {}, [&](int step, std::size_t i) {
      return all.sums[static_cast<std::size_t>(step)][i] * (1.0f / static_cast<float>(workers));
    });
  }
};

struct EFSignSGD : with_defaults<strategies::EFSignSGD> {
  static std::vector<float> expected(int workers, int steps) {
    using its = compression::error_feedback<compression::scaled_sign>;
    return payloads<its>(way::scattered, workers, steps).parameters;
  }
};

template <class Strategy>
struct votes : with_defaults<Strategy> {
  static std::vector<float> expected(int workers, int steps) { return voted(workers, steps); }
};
struct SignSGD : with_defaults<strategies::SignSGD> {
  static std::vector<float> expected(int workers, int steps) {
    return workers == 1 ? trained(1, steps) : voted(workers, steps);
  }
};
using votes_by_owners = votes<compose<compression::sign, architecture::reduce_scatter_all_gather>>;
struct votes_by_servers : votes<compose<compression::sign, architecture::parameter_server<>>> {
  static std::vector<options> variants() {
    return {{}, {.architecture = {.servers = 2, .placed_by = architecture::placed_by::sdbm}}};
  }
};

/// Payloads whose length only the encoder knows, or whose answers are encoded otherwise than what
/// was sent.
template <way How, class Strategy>
struct coded : with_defaults<Strategy> {
  static expected_payloads expected(int workers, int steps) {
    return payloads<typename strategy_of<Strategy>::compression>(How, workers, steps);
  }
};
/// The whole model is one chunk, and each rank owns a part of it.
struct ZeROPlusPlus : with_defaults<strategies::ZeROPlusPlus> {
  static expected_payloads expected(int workers, int steps) {
    using its = strategies::ZeROPlusPlus::strategy::compression;
    return payloads<its>(way::sharded, workers, steps, {}, {total_elements()});
  }
};
/// Payloads of unknown length, while rank 0's decisions overtake them on the way.
struct coded_and_led
    : coded<way::gathered,
            compose<compression::qsgd, architecture::all_gather, schedule::by_priority>> {
  static std::vector<options> variants() { return {{.schedule = {.credit = 1}}}; }
};
/// Accepts floats and relays the answer in half precision; it does not compress otherwise.
struct halves_on_the_way_back : compression::none {
  static constexpr bool identity = false;
  static constexpr bool summable = false;
  static constexpr compression::fp16 relay() { return {}; }
};

template <template <class> class Each>
using each_dense_strategy =
    testing::Types<Each<WFBPUnlimited>, Each<canonical>, Each<at_the_end>,
                   Each<merged_one_at_a_time>, Each<fused_by_priority>, Each<ByteScheduler>,
                   Each<Horovod>, Each<gathered_by_priority>, Each<gathered_by_arrival>,
                   Each<hosts_first>, Each<KungFu>, Each<servers_that_add>,
                   Each<servers_that_update>>;

template <template <class> class Each>
using each_lossy_strategy =
    testing::Types<Each<TopK>, Each<gTopKSGD>, Each<OkTopk>, Each<EFSignSGD>, Each<SignSGD>,
                   Each<votes_by_owners>, Each<votes_by_servers>>;

template <template <class> class Each>
using each_coded_strategy = testing::Types<
    Each<coded<way::gathered, strategies::QSGD>>, Each<coded_and_led>, Each<ZeROPlusPlus>,
    Each<coded<way::gathered, compose<compression::error_feedback<qsgd_in_short_blocks>,
                                      architecture::all_gather>>>,
    Each<
        coded<way::scattered, compose<compression::qsgd, architecture::reduce_scatter_all_gather>>>,
    Each<coded<way::served, compose<compression::qsgd, architecture::parameter_server<>>>>,
    Each<coded<way::scattered,
               compose<halves_on_the_way_back, architecture::reduce_scatter_all_gather>>>,
    Each<coded<way::served, compose<halves_on_the_way_back, architecture::parameter_server<>>>>>;

/// A step applies the mean of the step before; the first step applies nothing.
struct means_a_step_late
    : with_defaults<compose<architecture::delayed<architecture::all_reduce<collective::canonical>>,
                            fusion::up_to, partition::into>> {
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000}, .partition = {.bytes = 20'000}}};
  }
  static std::vector<float> expected(int workers, int steps) { return trained(workers, steps - 1); }
};

struct in_two_halves : with_defaults<in_rank_order<fusion::up_to, schedule::split_phase>> {
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000}}, {.schedule = {.gathers_at_once = 1}}};
  }
};

/// Each rank updates its share; the shares of the other ranks arrive during the next forward pass.
struct in_shards : with_defaults<compose<architecture::sharded<collective::canonical>,
                                         fusion::up_to, partition::into, schedule::split_phase>> {
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000}, .partition = {.bytes = 50'000}},
            {.schedule = {.gathers_at_once = 1}}};
  }
};

/// Gradients are sent in half precision to their owners, which are the same as for floats. A
/// tensor's parts differ by at most one element, and a rank sends all parts but its own. Parameters
/// are sent as floats around the ring, where a rank sends all parts but its successor's.
struct in_shards_of_halves : with_defaults<compose<architecture::sharded<>, compression::fp16>> {
  static expected_payloads expected(int workers, int steps) {
    const auto ranks = static_cast<std::size_t>(workers);
    expected_payloads all{trained(workers, steps, {}, gradient_of_few_digits)};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::size_t bytes = 0;
      std::size_t first = 0;
      for (std::size_t tensor = tensor_sizes().size(); tensor-- > 0;) {
        const std::size_t n = tensor_sizes()[tensor];
        bytes +=
            2 * (n - dealt(first, n, rank, ranks)) + 4 * (n - dealt(first, n, rank + 1, ranks));
        first += n;
      }
      all.bytes.push_back(bytes * static_cast<std::size_t>(steps));
    }
    return all;
  }
};

/// Adaptive sums: what the ranks' gradients of a tensor have in common counts once.
struct adaptive_sums : with_defaults<compose<architecture::adasum<>, fusion::up_to>> {
  static std::vector<options> variants() { return {{.fusion = {.bytes = 3000}}}; }
  static std::vector<float> expected(int workers, int steps) {
    return of_adaptive_sums(workers, steps, gradient);
  }
};

/// Adaptive sums of the steps that each rank takes by its own gradients, in fusion buffers that are
/// filled at run time.
struct Adasum : with_defaults<strategies::Adasum> {
  static std::vector<options> variants() { return {{.fusion = {.bytes = 3000, .cycle = 2e-5}}}; }
  static std::vector<float> expected(int workers, int steps) {
    return of_adaptive_steps(workers, steps, gradient);
  }
};

/// Strategies whose step applies something other than the mean of its gradients, or applies it
/// later or not on every rank.
template <template <class> class Each>
using each_averaging_strategy =
    testing::Types<Each<means_a_step_late>, Each<in_two_halves>, Each<in_shards>,
                   Each<models_averaged_every_period>, Each<models_drawn_together>,
                   Each<models_drawn_to_pairs>, Each<adaptive_sums>, Each<Adasum>,
                   Each<models_of_neighbours>, Each<halves_handed_on>, Each<outer_steps>,
                   Each<models_on_springs>, Each<models_of_active_and_passive>,
                   Each<drawn_together_until_a_switch>>;

/// Strategies whose ranks agree at run time which tensors are sent together, and when.
template <template <class> class Each>
using each_gathering_strategy = testing::Types<Each<Horovod>, Each<gathered_by_arrival>>;

/// For worlds that differ from another world only in where memory lies.
template <template <class> class Each>
using a_few_dense_strategies = testing::Types<Each<canonical>, Each<fused_by_priority>,
                                              Each<servers_that_add>, Each<servers_that_update>>;

}  // namespace tutti::test::listed
