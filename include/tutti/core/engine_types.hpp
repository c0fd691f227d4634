#pragma once

#include <type_traits>
#include <utility>

#include "tutti/architecture/replicated.hpp"
#include "tutti/coordination/automatic.hpp"
#include "tutti/coordination/choice.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/schedule.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// The types on which a chunk's exchange depends. Strategies that differ elsewhere only, as in
/// fusion or schedule, share the code that is compiled for it.
template <class Architecture, class Compression, class Transport, class Optimizer,
          bool SplitsPhases>
struct exchange_types {
  using architecture = Architecture;
  using compression = Compression;
  using relay = decltype(tutti::relay(std::declval<const Compression&>()));
  using transport = Transport;
  using optimizer = Optimizer;
  /// Whether an exchange waits for the schedule between its halves.
  static constexpr bool splits_phases = SplitsPhases;
};

/// The types that follow from a strategy once its transport, optimizer and monitor are known.
template <class Strategy, class Transport, class Optimizer, class Monitor>
struct engine_types {
  using strategy = strategy_of<Strategy>;
  using options = engine_options<Strategy>;
  using transport = Transport;
  using optimizer = Optimizer;
  using monitor = Monitor;
  using schedule = typename strategy::schedule;
  using compression = typename strategy::compression;
  using architecture = typename tutti::architecture::resolved<typename strategy::architecture,
                                                              compression, Transport>::type;
  using exchange = exchange_types<architecture, compression, Transport, Optimizer,
                                  facts::splits_phases<schedule>>;
  using relay = typename exchange::relay;

  /// Whether time is virtual on every rank, so that no call may block.
  static constexpr bool virtual_time = !may_be_in_real_time<Transport>;

  /// Ranks deadlock if each fills its window of credit with other chunks than its peers do. They
  /// also deadlock if they start exchanges in different orders where a collective, or a transport
  /// whose messages carry no tags, needs one order. Rank 0 therefore leads, unless the order
  /// follows from the plan or the strategy names a coordination. It also leads where a fusion must
  /// gather the same chunks on all ranks.
  static constexpr bool starts_in_order =
      facts::ordered_start<architecture> || is_stream_ordered<Transport>;
  static constexpr bool needs_one_order = !architecture::completes_alone &&
                                          !schedule::static_order &&
                                          (schedule::limits_in_flight || starts_in_order);

  using choice = tutti::coordination::choice<schedule, typename strategy::fusion>;
  using coordination = std::conditional_t<
      std::is_same_v<typename strategy::coordination, tutti::coordination::automatic>,
      std::conditional_t<needs_one_order || choice::gathers, tutti::coordination::leader,
                         tutti::coordination::local>,
      typename strategy::coordination>;
  /// Whether launches may wait for a timer.
  static constexpr bool ticks = choice::has_cycle || facts::keeps_time<coordination>;
};

/// Checks that an engine's transport, optimizer and monitor go with its strategy.
template <class Types, class Architecture = typename Types::architecture,
          class Compression = typename Types::compression,
          class Optimizer = typename Types::optimizer, class Transport = typename Types::transport,
          class Monitor = typename Types::monitor>
struct engine_rules
    : private rule::check_halves_need_an_exchange_of_two<typename Types::schedule, Architecture,
                                                         Compression>,
      private rule::check_owners_need_an_optimizer<Architecture, Optimizer>,
      private rule::check_momenta_are_exchanged_by_both<Architecture, Optimizer>,
      private rule::check_pieces_need_an_elementwise_optimizer<Architecture, Optimizer>,
      private rule::check_optimizers_travel_as_bytes<Optimizer>,
      private rule::check_all_gradients_are_seen<Architecture, Optimizer>,
      private rule::check_norms_are_added_on_the_host<Optimizer, Transport>,
      private rule::check_monitors_see_means<Architecture, Monitor>,
      private rule::check_monitors_read_host_memory<Monitor, Transport>,
      private rule::check_peers_must_be_addressable<Architecture, Transport>,
      private rule::check_native_needs_the_transport<Architecture, Transport>,
      private rule::check_starts_need_one_order<typename Types::schedule,
                                                typename Types::strategy::coordination,
                                                Architecture, Transport>,
      private rule::check_senders_must_be_known<Architecture, Transport>,
      private rule::check_lengths_must_be_known<Compression, Transport> {};

}  // namespace tutti
