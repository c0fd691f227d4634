#pragma once

#include <cstddef>
#include <gtest/gtest.h>
#include <tuple>
#include <type_traits>

#include "consumer/readme_policies.hpp"
#include "support/extent.hpp"
#include "support/one_of.hpp"
#include "support/order.hpp"
#include "tutti/architecture/adasum.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/bipartite_averaging.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/dense.hpp"
#include "tutti/architecture/diloco.hpp"
#include "tutti/architecture/elastic_averaging.hpp"
#include "tutti/architecture/elastic_servers.hpp"
#include "tutti/architecture/gossip.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/momentum_exchange.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/push_sum.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/selecting_all_gather.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/architecture/sharded_by_owners.hpp"
#include "tutti/architecture/sparse_regions.hpp"
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/architecture/streaming_diloco.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine_types.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/at_most.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"
#include "tutti/schedule/split_phase.hpp"

/// Laws: no schedule deadlocks over any of these architectures under any coordination, except where
/// every rank decides its order alone and must wait for the others. A new policy joins the list of
/// its role.
namespace tutti::test {

/// Each is run under every legal schedule with every coordination, but under newest_first, which
/// runs as by_priority does, with one coordination only.
using ordered_architectures =
    std::tuple<architecture::all_reduce<>, architecture::all_gather,
               architecture::reduce_scatter_all_gather, architecture::majority_vote,
               architecture::parameter_server<>,
               architecture::parameter_server<consistency::asynchronous, updated_by::servers>,
               architecture::parameter_server<consistency::bounded_staleness>,
               architecture::parameter_server<consistency::backup_workers, updated_by::servers>,
               architecture::local_sgd<>, architecture::model_averaging<>,
               architecture::delayed<architecture::all_reduce<>>, architecture::pair_averaging,
               architecture::sharded<>, architecture::gossip, architecture::push_sum,
               architecture::bipartite_averaging, architecture::elastic_servers>;
/// Each is run under by_priority with every coordination, under newest_first with one coordination,
/// and under the schedules that hold nothing back with `coordination::local` only, because each
/// further engine takes the compiler a second. Forms that exchange as another one does are left
/// out: adasum of differences, servers that correct gradients, shards whose gradients are lent.
/// test/lint/lists.py gives a reason for each architecture on neither list.
using sampled_architectures = std::tuple<
    architecture::adasum<>, architecture::dense, architecture::diloco<>,
    architecture::streaming_diloco<>, architecture::elastic_averaging<>, architecture::sparse_tree,
    architecture::sparse_regions, architecture::selecting_all_gather,
    architecture::sharded_by_owners, architecture::momentum_exchange, architecture::independent,
    architecture::parameter_server<consistency::asynchronous>,
    architecture::parameter_server<consistency::synchronous, updated_by::servers>,
    architecture::parameter_server<consistency::synchronous, updated_by::servers_by_push>>;

using agreed_coordinations =
    one_of_coordinations<coordination::leader, coordination::negotiated, coordination::learned>;
using free_schedules = one_of_schedules<schedule::as_ready, schedule::at_end, schedule::in_order>;

struct one_by_priority : schedule::by_priority {
  using options = no_options;
  struct state : schedule::by_priority::state {
    state(const plan& made, const no_options&)
        : schedule::by_priority::state(made, {.credit = 1}) {}  // one chunk at a time
  };
};
using limiting_schedules = one_of_schedules<one_by_priority, newest_first>;

/// Whether ranks that decide alone, each in an order of its own, wait for each other forever.
template <class Schedule, class Architecture>
constexpr bool hangs_alone =
    Schedule::limits_in_flight && !Schedule::static_order && !Architecture::completes_alone;

/// A compressor that the architecture can send with.
template <class Architecture>
using its_compression = std::conditional_t<
    facts::counts_votes<Architecture>, compression::sign,
    std::conditional_t<
        facts::merges_payloads<Architecture>, compression::top_k,
        std::conditional_t<facts::keeps_magnitudes<Architecture>,
                           compression::error_feedback<compression::by_kth_magnitude>,
                           compression::none>>>;

/// A strategy for a small model, cut into pieces of two elements where it may be cut. `Agreed` is a
/// coordination with one order for all ranks, or `coordination::local`, by which each rank decides
/// alone.
template <class Schedule, class Agreed, class Architecture>
struct ordered {
  static constexpr bool is_free = free_schedules::has<Schedule>;
  static constexpr bool limits = limiting_schedules::has<Schedule>;
  using compiled_schedule =
      std::conditional_t<is_free, free_schedules,
                         std::conditional_t<limits, limiting_schedules, Schedule>>;
  using compression = its_compression<Architecture>;
  using cut =
      std::conditional_t<facts::weighs_tensors<Architecture>, partition::none, partition::into>;
  using strategy = compose<compiled_schedule, Agreed, Architecture, compression, cut>;

  static constexpr bool legal =
      rule::halves_need_an_exchange_of_two<Schedule, Architecture, compression>::holds;
  /// The coordination that the engine chooses if the strategy names none.
  using by_default =
      typename engine_types<compose<Schedule, Architecture, compression, cut>, transport::simulated,
                            optimizer::sgd, monitor::none>::coordination;
  static_assert(std::is_same_v<by_default, coordination::leader> ||
                (std::is_same_v<by_default, coordination::local> &&
                 !hangs_alone<Schedule, Architecture>));

  static engine_options<strategy> options() {
    engine_options<strategy> set;
    if constexpr (!facts::weighs_tensors<Architecture>) {
      set.partition.bytes = 8;
    }
    if constexpr (is_free) {
      set.schedule.which = free_schedules::place<Schedule>;
    }
    if constexpr (limits) {
      set.schedule.which = limiting_schedules::place<Schedule>;
    }
    if constexpr (facts::splits_phases<Schedule>) {
      set.schedule.gathers_at_once = 1;
    }
    if constexpr (has_servers<strategy>) {
      set.architecture.servers = 2;
    }
    if constexpr (requires { set.architecture.momentum; }) {
      set.architecture.period = 4;  // the default of DiLoCo is hundreds of steps
    }
    return set;
  }
};

namespace detail {

/// Returns the sum of `what(architecture)` over the architectures with which `Schedule` is legal.
template <class Schedule, class Architectures, class What>
int over_legal_architectures(What what) {
  const auto over = [&]<class Architecture>(const Architecture* its) {
    if constexpr (ordered<Schedule, coordination::local, Architecture>::legal) {
      SCOPED_TRACE(type_name<Architecture>());
      return what(its);
    } else {
      return 0;
    }
  };
  return [&]<class... Each>(const std::tuple<Each...>*) {
    return (0 + ... + over(static_cast<const Each*>(nullptr)));
  }(static_cast<const Architectures*>(nullptr));
}

}  // namespace detail

/// Checks one of the coordinations that agree on an order. With each of them, second halves have
/// another window: none, 1, 2.
template <class Schedule, class Architecture>
void keeps_order_agreed_by(std::size_t which) {
  using agreed = ordered<Schedule, agreed_coordinations, Architecture>;
  SCOPED_TRACE(which);
  auto options = agreed::options();
  options.coordination.which = which;
  if constexpr (facts::splits_phases<Schedule>) {
    options.schedule.gathers_at_once = which;
  }
  keeps_one_order<typename agreed::strategy>(options);
}

/// Checks ranks that each decide alone. Their order is one and the same where it follows from the
/// plan.
template <class Schedule, class Architecture>
void holds_alone() {
  using alone = ordered<Schedule, coordination::local, Architecture>;
  if constexpr (Schedule::static_order) {
    keeps_one_order<typename alone::strategy>(alone::options());
  } else {
    never_deadlocks<typename alone::strategy>(alone::options());
  }
}

/// How many coordinations an architecture is run with under a schedule.
enum class coordinations { all, one_each };

/// The number of pairs of a coordination and an architecture that orders_hold() checks.
constexpr int pairs(int all, int architectures) { return all_of_a_product ? all : architectures; }

/// Returns the number of pairs of a coordination and an architecture over which `Schedule` keeps
/// its order. With `one_each`, and where a part of each product is checked, each architecture is
/// run with one coordination, and successive architectures with different ones.
template <class Schedule, class Architectures = ordered_architectures>
int orders_hold(coordinations taken = coordinations::all) {
  std::size_t turn = free_schedules::place<Schedule>;
  const auto over = [&]<class Architecture>(const Architecture*) {
    constexpr std::size_t agree = agreed_coordinations::size;
    constexpr std::size_t all = agree + (hangs_alone<Schedule, Architecture> ? 0 : 1);
    ++turn;
    const auto has_its_turn = [&](std::size_t which) {
      return (all_of_a_product && taken == coordinations::all) || turn % all == which;
    };
    int met = 0;
    for (std::size_t which = 0; which < agree; ++which) {
      if (has_its_turn(which)) {
        keeps_order_agreed_by<Schedule, Architecture>(which);
        ++met;
      }
    }
    if constexpr (!hangs_alone<Schedule, Architecture>) {
      if (has_its_turn(agree)) {
        holds_alone<Schedule, Architecture>();
        ++met;
      }
    }
    return met;
  };
  return detail::over_legal_architectures<Schedule, Architectures>(over);
}

/// Returns the number of architectures over which `Schedule` never deadlocks although every rank
/// decides alone.
template <class Schedule, class Architectures>
int orders_hold_alone() {
  return detail::over_legal_architectures<Schedule, Architectures>(
      []<class Architecture>(const Architecture*) {
        static_assert(!hangs_alone<Schedule, Architecture>);
        holds_alone<Schedule, Architecture>();
        return 1;
      });
}

/// Returns the number of architectures over which `Schedule` hangs if every rank decides alone.
template <class Schedule, class Architectures = ordered_architectures>
int orders_matter() {
  return detail::over_legal_architectures<Schedule, Architectures>(
      []<class Architecture>(const Architecture*) {
        if constexpr (hangs_alone<Schedule, Architecture>) {
          using alone = ordered<Schedule, coordination::local, Architecture>;
          hangs_without_a_leader<typename alone::strategy>(alone::options());
        }
        return hangs_alone<Schedule, Architecture> ? 1 : 0;
      });
}

}  // namespace tutti::test
