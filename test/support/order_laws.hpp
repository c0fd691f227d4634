#pragma once

#include <cstddef>
#include <gtest/gtest.h>
#include <tuple>
#include <type_traits>
#include <utility>

#include "support/order.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/model_averaging.hpp"
#include "tutti/architecture/pair_averaging.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/coordination/automatic.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine_types.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"
#include "tutti/schedule/split_phase.hpp"

/// No schedule over any of these architectures deadlocks, whoever decides the order of launches:
/// every legal pair of a schedule and an architecture, and within these every coordination with
/// each architecture, and with each schedule of at least four. A policy joins its list.
namespace tutti::test {

using ordered_architectures =
    std::tuple<architecture::all_reduce<>, architecture::all_gather,
               architecture::reduce_scatter_all_gather, architecture::majority_vote,
               architecture::parameter_server<>,
               architecture::parameter_server<consistency::asynchronous, updated_by::servers>,
               architecture::local_sgd<>, architecture::model_averaging<>,
               architecture::delayed<architecture::all_reduce<>>, architecture::pair_averaging>;
using ordered_coordinations = std::tuple<coordination::automatic, coordination::leader,
                                         coordination::negotiated, coordination::learned>;

/// A small model, cut in pieces of two elements.
template <class Schedule, class Coordination, class Architecture>
struct ordered {
  using compression =
      std::conditional_t<facts::counts_votes<Architecture>, compression::sign, compression::none>;
  using strategy = compose<Schedule, Coordination, Architecture, compression, partition::into>;

  static constexpr bool legal =
      rule::halves_need_an_exchange_of_two<Schedule, Architecture, compression>::holds;
  /// Ranks that decide alone wait for each other.
  static constexpr bool hangs_without_coordination =
      Schedule::limits_in_flight && !Architecture::completes_alone;

  static engine_options<strategy> options() {
    engine_options<strategy> set;
    set.partition.bytes = 8;
    if constexpr (Schedule::limits_in_flight) {
      set.schedule.credit = 1;  // one chunk at a time
    }
    if constexpr (has_servers<strategy>) {
      set.architecture.servers = 2;
    }
    return set;
  }
};

/// The number of architectures over which `Schedule` is legal; `Number` is its own, so that the
/// coordination changes from each pair to the next.
template <std::size_t Number, class Schedule>
int orders_hold() {
  const auto over = []<std::size_t Which>() {
    using choice =
        ordered<Schedule,
                std::tuple_element_t<(Number + Which) % std::tuple_size_v<ordered_coordinations>,
                                     ordered_coordinations>,
                std::tuple_element_t<Which, ordered_architectures>>;
    if constexpr (choice::legal) {
      SCOPED_TRACE(Which);
      using types = engine_types<typename choice::strategy, transport::simulated, optimizer::sgd,
                                 monitor::none>;
      if constexpr (types::coordination::one_order || Schedule::static_order) {
        keeps_one_order<typename choice::strategy>(choice::options());
      } else {
        never_deadlocks<typename choice::strategy>(choice::options());
      }
    }
    return choice::legal ? 1 : 0;
  };
  return [&]<std::size_t... Each>(std::index_sequence<Each...>) {
    return (0 + ... + over.template operator()<Each>());
  }
  (std::make_index_sequence<std::tuple_size_v<ordered_architectures>>());
}

/// The number of architectures over which `Schedule` hangs where every rank decides for itself.
template <class Schedule>
int orders_matter() {
  const auto over = []<class Architecture>(const Architecture*) {
    using choice = ordered<Schedule, coordination::local, Architecture>;
    if constexpr (choice::hangs_without_coordination) {
      hangs_without_a_leader<typename choice::strategy>(choice::options());
    }
    return choice::hangs_without_coordination ? 1 : 0;
  };
  return [&]<class... Each>(const std::tuple<Each...>*) {
    return (0 + ... + over(static_cast<const Each*>(nullptr)));
  }(static_cast<const ordered_architectures*>(nullptr));
}

}  // namespace tutti::test
