#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "support/adaptive_sum_oracle.hpp"
#include "support/oracle.hpp"
#include "support/payload_oracle.hpp"
#include "support/replica_oracle.hpp"
#include "support/sparse_tree_oracle.hpp"
#include "tutti/architecture/adasum.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/bipartite_averaging.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/diloco.hpp"
#include "tutti/architecture/elastic_averaging.hpp"
#include "tutti/architecture/gossip.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/push_sum.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/architecture/switch_at.hpp"
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
#include "tutti/strategies/qsgd.hpp"
#include "tutti/strategies/sign_sgd.hpp"
#include "tutti/strategies/top_k.hpp"
#include "tutti/strategies/wfbp.hpp"
#include "tutti/strategies/zero_plus_plus.hpp"
#include "tutti/tutti.hpp"

/// Strategies that between them have every policy. One that joins the list trains as its oracle in
/// every world, or is refused there (see strategy_laws.hpp).
namespace tutti::test::listed {

/// A strategy with the options that it is run with, one after the other. What sends less than every
/// gradient says by `expected(workers, steps)` what its parameters come to, or also what each
/// worker sends; by `expected(options, workers, steps)`, where that depends on the options.
template <class Strategy>
struct with_defaults {
  using strategy = Strategy;
  using options = engine_options<Strategy>;
  static std::vector<options> variants() { return {{}}; }
};

template <class Options>
Options moved_by_a_thread(Options each) {
  each.run.progress = progress::by_thread;
  return each;
}

template <class... Policies>
using in_rank_order = compose<architecture::all_reduce<collective::canonical>, Policies...>;

using WFBPUnlimited = with_defaults<strategies::WFBPUnlimited>;  // nothing but defaults
using canonical = with_defaults<in_rank_order<>>;
using at_the_end = with_defaults<
    compose<architecture::all_reduce<collective::star>, fusion::all, schedule::at_end>>;

struct merged_one_at_a_time
    : with_defaults<compose<architecture::all_reduce<collective::halving_doubling>,
                            fusion::merge_gradients, partition::into, schedule::at_most>> {
  static std::vector<options> variants() { return {{.partition = {.bytes = 4000}}}; }
};

/// A window of one chunk.
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

/// Hosts first, then one rank of each for each share.
struct hosts_first
    : with_defaults<
          compose<architecture::all_reduce<collective::hierarchical<>>, partition::into>> {
  static std::vector<options> variants() { return {{.partition = {.bytes = 50'000}}}; }
};

/// Along trees of hosts, and each piece along one of several graphs.
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
using SignSGD = votes<strategies::SignSGD>;
using votes_by_owners = votes<compose<compression::sign, architecture::reduce_scatter_all_gather>>;
struct votes_by_servers : votes<compose<compression::sign, architecture::parameter_server<>>> {
  static std::vector<options> variants() {
    return {{}, {.architecture = {.servers = 2, .placed_by = architecture::placed_by::sdbm}}};
  }
};

/// Payloads whose lengths only their encoder knows, or whose answers are encoded otherwise.
template <way How, class Strategy>
struct coded : with_defaults<Strategy> {
  static expected_payloads expected(int workers, int steps) {
    return payloads<typename strategy_of<Strategy>::compression>(How, workers, steps);
  }
};
/// The whole model is one chunk, of which each rank owns a part.
struct ZeROPlusPlus : with_defaults<strategies::ZeROPlusPlus> {
  static expected_payloads expected(int workers, int steps) {
    using its = strategies::ZeROPlusPlus::strategy::compression;
    return payloads<its>(way::sharded, workers, steps, {}, {total_elements()});
  }
};
/// Rank 0's decisions pass them on their way.
struct coded_and_led
    : coded<way::gathered,
            compose<compression::qsgd, architecture::all_gather, schedule::by_priority>> {
  static std::vector<options> variants() { return {{.schedule = {.credit = 1}}}; }
  static expected_payloads expected(int workers, int steps) {
    expected_payloads all = coded::expected(workers, steps);
    all.bytes.clear();  // what is decided is sent, too
    return all;
  }
};
/// Answers in half precision what came as floats, and knows nothing else of it.
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
    testing::Types<Each<TopK>, Each<gTopKSGD>, Each<EFSignSGD>, Each<SignSGD>,
                   Each<votes_by_owners>, Each<votes_by_servers>>;

template <template <class> class Each>
using each_coded_strategy = testing::Types<
    Each<coded<way::gathered, strategies::QSGD>>, Each<coded_and_led>, Each<ZeROPlusPlus>,
    Each<coded<way::gathered,
               compose<compression::error_feedback<compression::qsgd>, architecture::all_gather>>>,
    Each<
        coded<way::scattered, compose<compression::qsgd, architecture::reduce_scatter_all_gather>>>,
    Each<coded<way::served, compose<compression::qsgd, architecture::parameter_server<>>>>,
    Each<coded<way::scattered,
               compose<halves_on_the_way_back, architecture::reduce_scatter_all_gather>>>,
    Each<coded<way::served, compose<halves_on_the_way_back, architecture::parameter_server<>>>>>;

/// A step applies the mean of the step before, the first nothing.
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

/// Each rank updates its share, and what others have updated comes under the next forward pass.
struct in_shards : with_defaults<compose<architecture::sharded<collective::canonical>,
                                         fusion::up_to, partition::into, schedule::split_phase>> {
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000}, .partition = {.bytes = 50'000}},
            {.schedule = {.gathers_at_once = 1}}};
  }
};

/// Gradients travel in half precision to their owners, who are the same as of floats: of each
/// tensor's parts, that differ by an element, a rank sends all but its own. Parameters travel
/// whole, around the ring, so that a rank sends all parts but the next one's.
struct in_shards_of_halves : with_defaults<compose<architecture::sharded<>, compression::fp16>> {
  static expected_payloads expected(int workers, int steps) {
    const auto ranks = static_cast<std::size_t>(workers);
    expected_payloads all{trained(workers, steps, {}, gradient_of_few_digits)};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::size_t bytes = 0;
      for (const std::size_t n : tensor_sizes()) {
        const auto part = [n, ranks](std::size_t of) {
          return n / ranks + (of % ranks < n % ranks ? 1 : 0);
        };
        bytes += 2 * (n - part(rank)) + 4 * (n - part(rank + 1));
      }
      all.bytes.push_back(bytes * static_cast<std::size_t>(steps));
    }
    return all;
  }
};

struct models_averaged_every_period
    : with_defaults<compose<architecture::local_sgd<collective::canonical>, fusion::up_to>> {
  static constexpr int period = 3;
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000}, .architecture = {.period = period}}};
  }
  static expected_payloads expected(int workers, int steps) {
    return {.of_worker = of_replicas(workers, steps, [](auto& all, int step, std::size_t element) {
              step_alone(all, step, element);
              if ((step + 1) % period == 0) {
                const float mean = mean_of(all);
                for (replica& each : all) {
                  each.x = mean;
                }
              }
            })};
  }
};

/// Not at all, a little, and all the way to the mean.
struct models_drawn_together
    : with_defaults<
          compose<architecture::model_averaging<collective::canonical>, partition::into>> {
  static std::vector<options> variants() {
    const auto drawn = [](double alpha) {
      return options{.partition = {.bytes = 20'000}, .architecture = {.alpha = alpha}};
    };
    return {drawn(0), drawn(0.1), drawn(1)};
  }
  static expected_payloads expected(const options& set, int workers, int steps) {
    const auto alpha = static_cast<float>(set.architecture.alpha);
    const auto rule = [alpha](auto& all, int step, std::size_t element) {
      const float mean = mean_of(all);
      for (replica& each : all) {
        each.x = (1 - alpha) * each.x + alpha * mean;
      }
      step_alone(all, step, element);
    };
    return {.of_worker = of_replicas(workers, steps, rule)};
  }
};

/// Each in its turn moves half-way to the model that its pair has come to, and steps.
struct models_drawn_to_pairs
    : with_defaults<compose<architecture::pair_averaging, fusion::up_to, partition::into>> {
  static constexpr bool takes_turns = true;
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000}, .partition = {.bytes = 20'000}}};
  }
  static expected_payloads expected(int workers, int steps) {
    return {.of_worker =
                of_replicas(workers, steps, [workers](auto& all, int step, std::size_t element) {
                  for (int rank = 0; rank < workers; ++rank) {
                    const auto at_step = static_cast<std::uint64_t>(step);
                    const int pair = architecture::pair_of(1, rank, at_step, workers);
                    replica& mine = all[static_cast<std::size_t>(rank)];
                    const float its = all[static_cast<std::size_t>(pair)].x;
                    mine.x = workers == 1 ? mine.x : 0.5f * mine.x + 0.5f * its;
                    mine.step(gradient(rank, step, element));
                  }
                })};
  }
};

/// A third of each of three neighbours, or as much as a power of two of places brings.
struct models_of_neighbours
    : with_defaults<compose<architecture::gossip, fusion::up_to, partition::into>> {
  static std::vector<options> variants() {
    const auto over = [](architecture::topology which, int hop) {
      return options{.fusion = {.bytes = 3000},
                     .partition = {.bytes = 20'000},
                     .architecture = {.topology = which, .hop = hop}};
    };
    return {over(architecture::topology::ring, 1), over(architecture::topology::exponential, 7)};
  }
  static expected_payloads expected(const options& set, int workers, int steps) {
    std::vector<int> ahead;
    for (int each = 1; each < workers; each *= 2) {
      ahead.push_back(each * set.architecture.hop % workers);
    }
    if (set.architecture.topology == architecture::topology::ring) {
      ahead = workers < 3 ? ahead : std::vector{1, workers - 1};
    }
    return {.of_worker = of_replicas(workers, steps, [&](auto& all, int step, std::size_t element) {
              std::array<float, 8> before{};
              for (std::size_t rank = 0; rank < all.size(); ++rank) {
                before[rank] = all[rank].x;
              }
              for (int rank = 0; rank < workers && workers > 1; ++rank) {
                float& x = all[static_cast<std::size_t>(rank)].x;
                for (const int each : ahead) {
                  x += before[static_cast<std::size_t>((rank + workers - each) % workers)];
                }
                x *= 1.0f / static_cast<float>(1 + ahead.size());
              }
              step_alone(all, step, element);
            })};
  }
};

/// Halves handed on; of random receivers some have more than one, whose weights are not 1.
struct halves_handed_on
    : with_defaults<compose<architecture::push_sum, fusion::up_to, partition::into>> {
  static std::vector<options> variants() {
    const auto to = [](architecture::receiver which) {
      return options{.fusion = {.bytes = 3000},
                     .partition = {.bytes = 20'000},
                     .architecture = {.receiver = which}};
    };
    return {to(architecture::receiver::exponential), to(architecture::receiver::random)};
  }
  static expected_payloads expected(const options& set, int workers, int steps) {
    const auto at = [](int index) { return static_cast<std::size_t>(index); };
    std::vector<std::vector<int>> to(at(steps));
    std::vector<std::vector<double>> weights(1, std::vector<double>(at(workers), 1));
    for (int step = 0; step < steps; ++step) {
      weights.emplace_back(at(workers));
      for (int rank = 0; rank < workers; ++rank) {
        to[at(step)].push_back(architecture::receiver_of(
            set.architecture.receiver, 1, rank, static_cast<std::uint64_t>(step), workers));
        weights.back()[at(rank)] += weights[at(step)][at(rank)] / 2;
        weights.back()[at(to[at(step)].back())] += weights[at(step)][at(rank)] / 2;
      }
    }
    return {.of_worker = of_replicas(workers, steps, [&](auto& all, int step, std::size_t element) {
              for (std::size_t rank = 0; rank < all.size(); ++rank) {
                all[rank].x *= static_cast<float>(weights[at(step)][rank]);
              }
              step_alone(all, step, element);
              if (workers > 1) {
                std::array<float, 8> halves{};
                for (std::size_t rank = 0; rank < all.size(); ++rank) {
                  halves[rank] = all[rank].x *= 0.5f;
                }
                for (std::size_t rank = 0; rank < all.size(); ++rank) {
                  all[at(to[at(step)][rank])].x += halves[rank];
                }
              }
              for (std::size_t rank = 0; rank < all.size(); ++rank) {
                all[rank].x *= static_cast<float>(1 / weights[at(step + 1)][rank]);
              }
            })};
  }
};

/// Three steps alone, then one outer step with momentum on how far all have come.
struct outer_steps
    : with_defaults<compose<architecture::diloco<collective::canonical>, fusion::up_to>> {
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000}, .architecture = {.period = 3}}};
  }
  static expected_payloads expected(int workers, int steps) {
    float start = 0;
    float velocity = 0;
    return {.of_worker = of_replicas(workers, steps, [&](auto& all, int step, std::size_t element) {
              if (step == 0) {
                start = initial(element);
                velocity = 0;
              }
              step_alone(all, step, element);
              if ((step + 1) % 3 == 0) {
                auto gone = all;
                for (replica& each : gone) {
                  each.x = start - each.x;
                }
                const float mean = workers == 1 ? gone[0].x : mean_of(gone);
                velocity = 0.9f * velocity + mean;
                start -= 0.7f * (mean + 0.9f * velocity);
                for (replica& each : all) {
                  each.x = start;
                }
              }
            })};
  }
};

/// Models and a centre on springs, every other step.
struct models_on_springs
    : with_defaults<compose<architecture::elastic_averaging<collective::canonical>, fusion::up_to,
                            partition::into>> {
  static std::vector<options> variants() {
    return {
        {.fusion = {.bytes = 3000}, .partition = {.bytes = 20'000}, .architecture = {.period = 2}}};
  }
  static expected_payloads expected(int workers, int steps) {
    float centre = 0;
    const auto share = static_cast<float>(0.9 / workers);
    return {.of_worker = of_replicas(workers, steps, [&](auto& all, int step, std::size_t element) {
              centre = step == 0 ? initial(element) : centre;
              if (step % 2 == 0) {
                const float mean = workers == 1 ? all[0].x : mean_of(all);
                for (replica& each : all) {
                  each.x = (1 - share) * each.x + share * centre;
                }
                centre = static_cast<float>(1 - 0.9) * centre + 0.9f * mean;
              }
              step_alone(all, step, element);
            })};
  }
};

/// Each in its turn: an active rank and its passive one become their mean, and it steps; a passive
/// one steps from what it has come to.
struct models_of_active_and_passive
    : with_defaults<compose<architecture::bipartite_averaging, fusion::up_to, partition::into>> {
  static constexpr bool takes_turns = true;
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000}, .partition = {.bytes = 20'000}}};
  }
  static expected_payloads expected(int workers, int steps) {
    std::vector<float> averaged;  // what passive ranks go on from
    return {.of_worker = of_replicas(workers, steps, [&](auto& all, int step, std::size_t element) {
              if (step == 0) {
                averaged.assign(all.size(), initial(element));
              }
              for (int rank = 0; rank < workers; ++rank) {
                replica& mine = all[static_cast<std::size_t>(rank)];
                if (rank % 2 == 0 && workers > 1) {
                  const auto passive = static_cast<std::size_t>(
                      architecture::passive_of(architecture::bipartite::complete, 1, rank,
                                               static_cast<std::uint64_t>(step), workers));
                  averaged[passive] = mine.x = 0.5f * mine.x + 0.5f * averaged[passive];
                } else if (rank % 2 == 1) {
                  mine.x = averaged[static_cast<std::size_t>(rank)];
                }
                mine.step(gradient(rank, step, element));
                averaged[static_cast<std::size_t>(rank)] = mine.x;
              }
            })};
  }
};

/// Models that drift apart, until they have to be equal.
struct drawn_together_until_a_switch
    : with_defaults<
          compose<architecture::switch_at<architecture::model_averaging<collective::canonical>,
                                          architecture::all_reduce<collective::canonical>>,
                  fusion::up_to>> {
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000}, .architecture = {.step = 3}}};
  }
  static expected_payloads expected(int workers, int steps) {
    return {.of_worker =
                of_replicas(workers, steps, [workers](auto& all, int step, std::size_t element) {
                  if (step < 2) {
                    const float mean = mean_of(all);
                    for (replica& each : all) {
                      each.x = (1 - 0.1f) * each.x + 0.1f * mean;
                    }
                  }
                  if (step < 3) {
                    step_alone(all, step, element);
                  }
                  if (step == 2) {
                    auto of_momenta = all;
                    for (replica& each : of_momenta) {
                      each.x = each.m;
                    }
                    const replica both{mean_of(all), mean_of(of_momenta)};
                    std::fill(all.begin(), all.end(), both);
                  }
                  if (step >= 3) {
                    float sum = gradient(0, step, element);
                    for (int worker = 1; worker < workers; ++worker) {
                      sum += gradient(worker, step, element);
                    }
                    for (replica& each : all) {
                      each.step(sum * (1.0f / static_cast<float>(workers)));
                    }
                  }
                })};
  }
};

/// What the ranks' gradients of a tensor have in common counts once.
struct adaptive_sums : with_defaults<compose<architecture::adasum<>, fusion::up_to>> {
  static std::vector<options> variants() { return {{.fusion = {.bytes = 3000}}}; }
  static std::vector<float> expected(int workers, int steps) {
    return of_adaptive_sums(workers, steps, gradient);
  }
};

/// Records of the steps that the ranks take by them, in buffers that are filled at run time.
struct Adasum : with_defaults<strategies::Adasum> {
  static std::vector<options> variants() { return {{.fusion = {.bytes = 3000, .cycle = 2e-5}}}; }
  static std::vector<float> expected(int workers, int steps) {
    return of_adaptive_steps(workers, steps, gradient);
  }
};

/// A step applies something else than the mean of its gradients, or later, or not on every rank.
template <template <class> class Each>
using each_averaging_strategy =
    testing::Types<Each<means_a_step_late>, Each<in_two_halves>, Each<in_shards>,
                   Each<models_averaged_every_period>, Each<models_drawn_together>,
                   Each<models_drawn_to_pairs>, Each<adaptive_sums>, Each<Adasum>,
                   Each<models_of_neighbours>, Each<halves_handed_on>, Each<outer_steps>,
                   Each<models_on_springs>, Each<models_of_active_and_passive>,
                   Each<drawn_together_until_a_switch>>;

/// Ranks agree on the way what goes together, and when.
template <template <class> class Each>
using each_gathering_strategy = testing::Types<Each<Horovod>, Each<gathered_by_arrival>>;

/// For worlds that differ from another in where memory lies.
template <template <class> class Each>
using a_few_dense_strategies = testing::Types<Each<canonical>, Each<fused_by_priority>,
                                              Each<servers_that_add>, Each<servers_that_update>>;

}  // namespace tutti::test::listed
