#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/listed.hpp"
#include "support/oracle.hpp"
#include "support/payload_oracle.hpp"
#include "support/replica_oracle.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/bipartite_averaging.hpp"
#include "tutti/architecture/diloco.hpp"
#include "tutti/architecture/elastic_averaging.hpp"
#include "tutti/architecture/gossip.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/architecture/push_sum.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/tutti.hpp"

/// The strategies of strategies.hpp whose ranks keep models of their own.
namespace tutti::test::listed {

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

/// Models that move not at all, a little, or all the way to their mean.
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

/// Ranks take turns. Each moves half-way to the current model of its partner, and then takes its
/// step.
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

/// Each model becomes a third of each of three neighbours, or the mean over an exponential
/// topology.
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

/// Push-sum: ranks hand on half of their model. Where receivers are random, some get more than one
/// half, so that their weights are not 1.
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

/// Three local steps, then one outer step with momentum by how far all models have moved on
/// average.
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

/// Elastic averaging of models and a centre in every other step.
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

/// Ranks take turns. An active rank and its passive partner both become their mean, and the active
/// rank then takes its step. A passive rank takes its step from what it has become.
struct models_of_active_and_passive
    : with_defaults<compose<architecture::bipartite_averaging, fusion::up_to, partition::into>> {
  static constexpr bool takes_turns = true;
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 3000}, .partition = {.bytes = 20'000}}};
  }
  static expected_payloads expected(int workers, int steps) {
    std::vector<float> averaged;  // the models that passive ranks continue from
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

/// Models that are drawn together loosely, until a switch to all-reduce makes them equal.
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

}  // namespace tutti::test::listed
