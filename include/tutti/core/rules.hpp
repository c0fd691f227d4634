#pragma once

#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/memory.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/coordination/automatic.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/coordination.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/schedule.hpp"
#include "tutti/role/transport.hpp"

/// Which policies do not go together. Each rule has a condition, `holds`, which never fails to
/// compile, so that a table of legal compositions can be made of them. Its `check_…` fails to
/// compile with a sentence and a fix, and names the two policies. One file, because it is one list,
/// in which every pair of roles that can disagree is looked up.
namespace tutti::rule {

template <class Architecture, class Compression>
struct payloads_must_add {
  static constexpr bool holds = !Architecture::adds_payloads || facts::summable<Compression>;
};

template <class Architecture, class Compression>
struct votes_need_a_sign_each {
  static constexpr bool holds = !facts::counts_votes<Architecture> || casts_votes<Compression>;
};

template <class Architecture, class Compression>
struct payloads_must_merge {
  static constexpr bool holds = !facts::merges_payloads<Architecture> || merges<Compression>;
};

template <class Architecture, class Compression>
struct kept_magnitudes_select {
  static constexpr bool holds =
      !facts::keeps_magnitudes<Architecture> || reaches_a_magnitude<Compression>;
};

/// The compressor of parameters on their way from their owners to all other ranks.
template <class Architecture, class Compression>
struct answers_of_owners {
  using type = compression::none;
};
template <class Architecture, class Compression>
requires(facts::owns_parameters<Architecture>&& facts::encodes_means<
         Architecture>) struct answers_of_owners<Architecture, Compression> {
  using type = decltype(relay(std::declval<const Compression&>()));
};

template <class Architecture, class Compression>
struct rounded_parameters_are_remembered {
  using answers = typename answers_of_owners<Architecture, Compression>::type;
  static constexpr bool holds = facts::lossless<answers> || (remembers_residuals<answers> &&
                                                             !facts::forgets_residuals<answers>);
};

template <class Architecture, class Compression>
struct rounded_parameters_are_all_there {
  using answers = typename answers_of_owners<Architecture, Compression>::type;
  static constexpr bool holds =
      !clears_sent<answers> && !merges<answers> && !reaches_a_magnitude<answers>;
};

template <class Architecture, class Compression>
struct rounded_parameters_have_magnitudes {
  using answers = typename answers_of_owners<Architecture, Compression>::type;
  static constexpr bool holds = !facts::sends_set_values<answers>;
};

template <class Architecture, class Compression>
struct native_adds_floats {
  static constexpr bool native = [] {
    if constexpr (requires { typename Architecture::collective; }) {
      return facts::requires_native<typename Architecture::collective>;
    } else {
      return false;
    }
  }();
  static constexpr bool holds = !native || facts::identity<Compression>;
};

template <class Partition, class Compression>
struct buckets_stay_whole {
  static constexpr bool holds =
      facts::unit_of<Compression> != unit::bucket || std::is_same_v<Partition, partition::none>;
};

template <class Fusion, class Schedule, class Coordination, class Architecture>
struct gathering_needs_one_order {
  static constexpr bool holds =
      !facts::at_run_time<Fusion> ||
      (!Architecture::completes_alone && facts::delay<Architecture> == 0 &&
       !facts::splits_phases<Schedule> &&
       (Coordination::one_order || std::is_same_v<Coordination, coordination::automatic>));
};

template <class Fusion, class Schedule>
struct gathering_holds_no_credit {
  static constexpr bool holds = !facts::holds_groups<Fusion> || !Schedule::limits_in_flight;
};

template <class Fusion, class Architecture>
struct gathering_mixes_steps {
  static constexpr bool holds = !facts::at_run_time<Fusion> || !facts::turns_on_steps<Architecture>;
};

template <class Fusion, class Architecture>
struct gathering_moves_parts {
  static constexpr bool holds = !facts::at_run_time<Fusion> || !facts::updates_parts<Architecture>;
};

template <class Fusion, class Compression>
struct gathering_needs_smaller_units {
  static constexpr bool holds =
      !facts::at_run_time<Fusion> || facts::unit_of<Compression> != unit::bucket;
};

template <class Architecture, class Compression>
struct parameters_travel_whole {
  static constexpr bool holds =
      facts::carries_of<Architecture> != carries::parameters || facts::lossless<Compression>;
};

template <class Architecture, class Compression>
struct differences_have_magnitudes {
  static constexpr bool holds = (facts::carries_of<Architecture> != carries::difference &&
                                 !facts::exchanges_momenta<Architecture>) ||
                                !facts::sends_signs_alone<Compression>;
};

template <class Architecture, class Compression>
struct kept_gradients_are_undivided {
  static constexpr bool holds =
      !facts::divides_first<Architecture> || facts::memory_per_element<Compression> == 0;
};

template <class Architecture, class Compression>
struct residuals_are_sent {
  static constexpr bool holds = [] {
    if constexpr (facts::drops_gradients<Architecture> || facts::stops_compressing<Architecture>) {
      return !remembers_residuals<Compression>;
    } else if constexpr (facts::stops_encoding_means<Architecture>) {
      return !remembers_residuals<decltype(relay(std::declval<const Compression&>()))>;
    } else {
      return true;
    }
  }();
};

template <class Architecture, class Compression>
struct momenta_are_of_all_steps {
  static constexpr bool holds =
      !facts::compresses_at_times<Architecture> || !facts::keeps_momentum<Compression>;
};

template <class Architecture, class Compression>
struct compression_is_used {
  static constexpr bool holds =
      !facts::ignores_compression<Architecture> || facts::identity<Compression>;
};

template <class Partition, class Architecture>
struct weighed_tensors_stay_whole {
  static constexpr bool holds =
      !facts::weighs_tensors<Architecture> || std::is_same_v<Partition, partition::none>;
};

template <class Schedule, class Architecture, class Compression>
struct halves_need_an_exchange_of_two {
  static constexpr bool holds =
      !facts::splits_phases<Schedule> ||
      (facts::has_halves<Architecture> && !facts::in_rounds<Compression> && !selects<Compression>);
};

template <class Architecture, class Compression>
struct one_payload_for_all {
  static constexpr bool holds =
      (!facts::in_rounds<Compression> && !selects<Compression>) ||
      (facts::adds_in_rounds<Architecture> && facts::summable<Compression>);
};

template <class Architecture, class Optimizer>
struct owners_need_an_optimizer {
  static constexpr bool holds =
      !facts::updates_first<Architecture> || !facts::leaves_means<Optimizer>;
};

template <class Architecture, class Optimizer>
struct momenta_are_exchanged_by_both {
  static constexpr bool holds =
      facts::exchanges_momenta<Architecture> == exchanges_momenta<Optimizer>;
};

template <class Architecture, class Optimizer>
struct pieces_need_an_elementwise_optimizer {
  static constexpr bool holds =
      !facts::owns_parameters<Architecture> || facts::elementwise<Optimizer>;
};

template <class Coordination>
struct joins_are_negotiated {
  static constexpr bool holds = facts::joins<Coordination>;
};

template <class Architecture, class Optimizer, class State>
struct joined_ranks_send_zeros {
  static constexpr bool holds = facts::carries_of<Architecture> == carries::gradient &&
                                facts::delay<Architecture> == 0 && !facts::has_sends<State> &&
                                !facts::leaves_means<Optimizer>;
};

template <class Monitor, class Transport>
struct monitors_read_host_memory {
  static constexpr bool holds =
      !facts::reads_memory<Monitor> || !has_own_memory<typename Transport::queue_type>;
};

/// Whether the engine hands every worker's optimizer the mean of each tensor.
template <class Architecture>
constexpr bool makes_means = !facts::has_arrive<detail::state_of<Architecture>>;

template <class Architecture, class Monitor>
struct monitors_see_means {
  static constexpr bool holds = !facts::sees_means<Monitor> ||
                                (makes_means<Architecture> && facts::delay<Architecture> == 0 &&
                                 !facts::leaves_sums<Architecture>);
};

template <class Architecture, class Optimizer>
struct all_gradients_are_seen {
  static constexpr bool holds = !facts::needs_all_gradients<Optimizer> ||
                                (makes_means<Architecture> && facts::delay<Architecture> == 0);
};

template <class Optimizer, class Transport>
struct norms_are_added_on_the_host {
  static constexpr bool holds =
      !facts::needs_all_gradients<Optimizer> || !has_own_memory<typename Transport::queue_type>;
};

template <class Optimizer>
struct optimizers_travel_as_bytes {
  static constexpr bool holds = std::is_trivially_copyable_v<Optimizer>;
};

template <class Architecture, class Transport>
struct peers_must_be_addressable {
  static constexpr bool addresses = [] {
    if constexpr (requires { typename Architecture::collective; }) {
      return facts::requires_addressable_peers<typename Architecture::collective>;
    } else {
      return false;
    }
  }();
  static constexpr bool holds = !addresses || has_addressable_peers<Transport>;
};

template <class Architecture, class Transport>
struct native_needs_the_transport {
  static constexpr bool native = native_adds_floats<Architecture, Architecture>::native;
  static constexpr bool holds = !native || has_all_reduce<Transport>;
};

template <class Schedule, class Coordination, class Architecture, class Transport>
struct starts_need_one_order {
  static constexpr bool holds =
      (!facts::ordered_start<Architecture> && !is_stream_ordered<Transport>) ||
      Architecture::completes_alone || Schedule::static_order || Coordination::one_order ||
      std::is_same_v<Coordination, coordination::automatic>;
};

template <class Architecture, class Transport>
struct senders_must_be_known {
  static constexpr bool holds =
      !is_stream_ordered<Transport> || !facts::receives_from_any<Architecture>;
};

template <class Compression, class Transport>
struct lengths_must_be_known {
  static constexpr bool holds = !facts::variable_length<Compression> ||
                                has_virtual_time<Transport> ||
                                std::is_same_v<typename Transport::queue_type, inline_queue>;
};

// ---- the error messages

template <class Architecture, class Compression>
struct check_payloads_must_add {
  static_assert(payloads_must_add<Architecture, Compression>::holds,
                "tutti: this architecture adds encoded payloads in flight, but this compressor's "
                "payloads do not add. Fix: use architecture::replicated, all_gather or "
                "parameter_server, or a compressor that is summable.");
};
template <class Architecture, class Compression>
struct check_votes_need_a_sign_each {
  static_assert(
      votes_need_a_sign_each<Architecture, Compression>::holds,
      "tutti: this architecture counts votes, but this compressor's payload is not one sign per "
      "element. Fix: use compression::sign or signum, or architecture::replicated.");
};
template <class Architecture, class Compression>
struct check_payloads_must_merge {
  static_assert(payloads_must_merge<Architecture, Compression>::holds,
                "tutti: this architecture merges two payloads into one, but this compressor does "
                "not say how. Fix: use compression::top_k, or architecture::all_gather.");
};
template <class Architecture, class Compression>
struct check_kept_magnitudes_select {
  static_assert(kept_magnitudes_select<Architecture, Compression>::holds,
                "tutti: this architecture keeps a least magnitude of elements to send, but this "
                "compressor does not select by one. Fix: use "
                "error_feedback<compression::by_kth_magnitude>, or architecture::all_gather.");
};
template <class Architecture, class Compression>
struct check_rounded_parameters_are_remembered {
  static_assert(rounded_parameters_are_remembered<Architecture, Compression>::holds,
                "tutti: parameters that are rounded whenever they travel forget every small "
                "update. Fix: compression::remembering_answers<C> or error_feedback<C>, or "
                "push_only<C>, whose parameters travel as floats.");
};
template <class Architecture, class Compression>
struct check_rounded_parameters_are_all_there {
  static_assert(rounded_parameters_are_all_there<Architecture, Compression>::holds,
                "tutti: this compressor sends a selection of elements, and every parameter outside "
                "it would become 0. Fix: use a compressor that sends every element, or "
                "push_only<C>, whose parameters travel as floats.");
};
template <class Architecture, class Compression>
struct check_rounded_parameters_have_magnitudes {
  static_assert(rounded_parameters_have_magnitudes<Architecture, Compression>::holds,
                "tutti: this compressor sends only a few values, such as 1 and -1, and every "
                "parameter would become one of them. Fix: use a compressor that sends magnitudes, "
                "such as block_int8, or push_only<C>, whose parameters travel as floats.");
};
template <class Architecture, class Compression>
struct check_native_adds_floats {
  static_assert(native_adds_floats<Architecture, Compression>::holds,
                "tutti: the transport's own all-reduce adds floats, but this compressor sends "
                "something else. Fix: use collective::ring, or compression::none.");
};
template <class Partition, class Compression>
struct check_buckets_stay_whole {
  static_assert(buckets_stay_whole<Partition, Compression>::holds,
                "tutti: this compressor works on whole buckets, but this partition cuts them. Fix: "
                "use partition::none, or a compressor whose unit is smaller.");
};
template <class Fusion, class Schedule, class Coordination, class Architecture>
struct check_gathering_needs_one_order {
  static_assert(
      gathering_needs_one_order<Fusion, Schedule, Coordination, Architecture>::holds,
      "tutti: this fusion gathers chunks at run time, but in this strategy ranks or servers would "
      "gather different ones, or an exchange is done in several parts or ends a step later. Fix: "
      "use fusion::up_to, or "
      "coordination::leader or negotiated with an architecture that needs all ranks at once, and a "
      "schedule that leaves exchanges whole.");
};
template <class Fusion, class Schedule>
struct check_gathering_holds_no_credit {
  static_assert(gathering_holds_no_credit<Fusion, Schedule>::holds,
                "tutti: this fusion holds a group back until all of it can be sent, but this "
                "schedule limits what is in flight and counts what is held back. Fix: use "
                "schedule::as_ready, or fusion::when_ready.");
};
template <class Fusion, class Architecture>
struct check_gathering_mixes_steps {
  static_assert(
      gathering_mixes_steps<Fusion, Architecture>::holds,
      "tutti: this fusion may gather chunks of two steps at run time, but this architecture "
      "exchanges some steps differently from others. Fix: use fusion::up_to.");
};
template <class Fusion, class Architecture>
struct check_gathering_moves_parts {
  static_assert(gathering_moves_parts<Fusion, Architecture>::holds,
                "tutti: this fusion gathers different chunks in every step, but this architecture "
                "has each rank update its own part of every chunk. Fix: use fusion::up_to.");
};
template <class Fusion, class Compression>
struct check_gathering_needs_smaller_units {
  static_assert(
      gathering_needs_smaller_units<Fusion, Compression>::holds,
      "tutti: this compressor works on whole buckets, but this fusion gathers different ones in "
      "every step. Fix: use fusion::up_to, or a compressor whose unit is smaller.");
};
template <class Architecture, class Compression>
struct check_parameters_travel_whole {
  static_assert(parameters_travel_whole<Architecture, Compression>::holds,
                "tutti: this architecture sends parameters, but this compressor is lossy and would "
                "change them. Fix: use compression::none, or an architecture that carries "
                "gradients or differences.");
};
template <class Architecture, class Compression>
struct check_differences_have_magnitudes {
  static_assert(differences_have_magnitudes<Architecture, Compression>::holds,
                "tutti: this architecture sends changes of parameters, or momenta, but this "
                "compressor sends only their signs, so that each would have magnitude 1. Fix: use "
                "compression::scaled_sign, or an architecture that carries gradients.");
};
template <class Architecture, class Compression>
struct check_kept_gradients_are_undivided {
  static_assert(kept_gradients_are_undivided<Architecture, Compression>::holds,
                "tutti: this architecture divides gradients by the number of ranks before it "
                "encodes them, but this compressor's memory of them may outlast that number. Fix: "
                "use mean::after, or a compressor without memory.");
};
template <class Architecture, class Compression>
struct check_residuals_are_sent {
  static_assert(
      residuals_are_sent<Architecture, Compression>::holds,
      "tutti: this compressor sends later what it has left out, but this architecture drops late "
      "payloads or stops compressing at some step, so that it would be lost. Fix: use a compressor "
      "without error feedback, push_only<C> where only means stop being compressed, or an "
      "architecture that takes every payload and compresses to the end.");
};
template <class Architecture, class Compression>
struct check_momenta_are_of_all_steps {
  static_assert(momenta_are_of_all_steps<Architecture, Compression>::holds,
                "tutti: this compressor sends each rank's momentum, but this architecture sends "
                "plain gradients before or after some step, which would have no momentum. Fix: use "
                "an architecture that compresses in every step, or a compressor without a momentum "
                "and an optimizer with one.");
};
template <class Architecture, class Compression>
struct check_compression_is_used {
  static_assert(compression_is_used<Architecture, Compression>::holds,
                "tutti: this architecture sends floats as they are, so this compressor would do "
                "nothing. Fix: use compression::none, or an architecture that compresses, as "
                "architecture::replicated.");
};
template <class Partition, class Architecture>
struct check_weighed_tensors_stay_whole {
  static_assert(weighed_tensors_stay_whole<Partition, Architecture>::holds,
                "tutti: this architecture weighs every tensor as a whole, but this partition cuts "
                "tensors. Fix: use partition::none, or architecture::replicated.");
};
template <class Schedule, class Architecture, class Compression>
struct check_halves_need_an_exchange_of_two {
  static_assert(halves_need_an_exchange_of_two<Schedule, Architecture, Compression>::holds,
                "tutti: this schedule begins the second half of an exchange later, but this "
                "exchange has no two halves. Fix: use architecture::all_reduce with "
                "collective::ring or canonical, and a compressor of one payload.");
};
template <class Architecture, class Compression>
struct check_one_payload_for_all {
  static_assert(one_payload_for_all<Architecture, Compression>::holds,
                "tutti: this compressor sends several sums per tensor, or different payloads for "
                "different tensors, but this architecture handles one payload for all. Fix: use "
                "architecture::replicated or synchronous servers that add, and compressors that "
                "are summable, or one compressor of one payload.");
};
template <class Architecture, class Optimizer>
struct check_owners_need_an_optimizer {
  static_assert(owners_need_an_optimizer<Architecture, Optimizer>::holds,
                "tutti: this architecture updates the parameters itself, on their owner or before "
                "it sends them, but it was given no optimizer. Fix: pass one to make_engine.");
};
template <class Architecture, class Optimizer>
struct check_momenta_are_exchanged_by_both {
  static_assert(momenta_are_exchanged_by_both<Architecture, Optimizer>::holds,
                "tutti: exchanging momenta takes an architecture that sends them and an optimizer "
                "that makes them, but only one of these does. Fix: use "
                "architecture::momentum_exchange with optimizer::one_bit_adam, or neither.");
};
template <class Architecture, class Optimizer>
struct check_pieces_need_an_elementwise_optimizer {
  static_assert(pieces_need_an_elementwise_optimizer<Architecture, Optimizer>::holds,
                "tutti: this architecture updates pieces of tensors, on their owner, but this "
                "optimizer needs whole tensors. Fix: updated_by::workers, or an optimizer that is "
                "elementwise.");
};
template <class Coordination>
struct check_joins_are_negotiated {
  static_assert(
      joins_are_negotiated<Coordination>::holds,
      "tutti: engine.join() is for ranks with fewer batches than others, but this coordination "
      "expects equally many on every rank. Fix: use coordination::negotiated.");
};
template <class Architecture, class Optimizer, class State>
struct check_joined_ranks_send_zeros {
  static_assert(joined_ranks_send_zeros<Architecture, Optimizer, State>::holds,
                "tutti: a rank that has joined hands in zero gradients and follows their mean, but "
                "this engine leaves the mean to the caller, or its architecture sends something "
                "else. Fix: pass an optimizer to make_engine, and send gradients in every step.");
};
template <class Monitor, class Transport>
struct check_monitors_read_host_memory {
  static_assert(monitors_read_host_memory<Monitor, Transport>::holds,
                "tutti: this monitor reads gradients or parameters, but over this transport they "
                "lie on a device. Fix: use monitor::stragglers, counters or timeline, or "
                "transport::in_process or mpi in host memory.");
};
template <class Architecture, class Monitor>
struct check_monitors_see_means {
  static_assert(monitors_see_means<Architecture, Monitor>::holds,
                "tutti: this monitor compares each step's gradients with their mean, but this "
                "architecture leaves its workers none, only a sum, or the mean of the step before. "
                "Fix: use monitor::variance or consensus_distance, or an architecture such as "
                "architecture::replicated<>.");
};
template <class Architecture, class Optimizer>
struct check_all_gradients_are_seen {
  static_assert(all_gradients_are_seen<Architecture, Optimizer>::holds,
                "tutti: this optimizer needs the mean gradients of a whole step before it updates "
                "a tensor, but under this architecture they are updated one by one, elsewhere or a "
                "step late. Fix: use architecture::replicated or servers that add and leave "
                "updates to workers, or clip each worker's gradients before they are sent.");
};
template <class Optimizer, class Transport>
struct check_norms_are_added_on_the_host {
  static_assert(norms_are_added_on_the_host<Optimizer, Transport>::holds,
                "tutti: this optimizer adds up norms on the host, but over this transport "
                "gradients lie on a device. Fix: transport::in_process or mpi in host memory, or "
                "an optimizer that updates tensors one by one.");
};
template <class Optimizer>
struct check_optimizers_travel_as_bytes {
  static_assert(optimizers_travel_as_bytes<Optimizer>::holds,
                "tutti: an optimizer is sent to servers as bytes when its values change, but this "
                "one owns memory or is not trivially copyable. Fix: keep only numbers in it, "
                "and a std::array where there are several.");
};
template <class Architecture, class Transport>
struct check_peers_must_be_addressable {
  static_assert(peers_must_be_addressable<Architecture, Transport>::holds,
                "tutti: this collective reads its peers' memory, but this transport cannot. Fix: "
                "use collective::ring, or transport::in_process.");
};
template <class Architecture, class Transport>
struct check_native_needs_the_transport {
  static_assert(native_needs_the_transport<Architecture, Transport>::holds,
                "tutti: collective::native is the transport's own all-reduce, but this transport "
                "has none. Fix: use collective::ring, or transport::mpi.");
};

template <class Schedule, class Coordination, class Architecture, class Transport>
struct check_starts_need_one_order {
  static_assert(
      starts_need_one_order<Schedule, Coordination, Architecture, Transport>::holds,
      "tutti: this collective or transport matches messages by the order in which ranks start "
      "them, but by this coordination each rank starts them in an order of its own. Fix: leave the "
      "coordination out, or use coordination::leader, or schedule::in_order.");
};

template <class Architecture, class Transport>
struct check_senders_must_be_known {
  static_assert(
      senders_must_be_known<Architecture, Transport>::holds,
      "tutti: this architecture receives from whoever sends first, but this transport's "
      "messages carry no sender and match in one order. Fix: use architecture::replicated, "
      "or transport::mpi.");
};

template <class Compression, class Transport>
struct check_lengths_must_be_known {
  static_assert(
      lengths_must_be_known<Compression, Transport>::holds,
      "tutti: this compressor's payloads have a length that only its encoding tells, but this "
      "transport's host sends before its stream has encoded. Fix: use a compressor of a fixed "
      "length, such as block_int8, or transport::in_process or mpi in host memory.");
};

/// Compiles a compressor's verbs for a device's queue before anything else is compiled, so that a
/// user's policy which cannot work there fails with a few lines of errors, and not inside an
/// exchange.
template <class Compression, class Queue>
struct compiles_for_the_queue {
  static void verbs(const Compression& compression, Queue& queue, std::span<const float> gradient,
                    std::span<float> sum, const chunk_context& where) {
    if constexpr (facts::in_rounds<Compression>) {
      compression.encode(queue, 0, gradient, wire{}, where);
      compression.between(queue, 0, const_wire{}, where);
      compression.decode(queue, const_wire{}, sum, where, summed{});
    } else if constexpr (!facts::variable_length<Compression>) {  // else lengths_must_be_known
      tutti::encode(compression, queue, gradient, wire{}, where);
      tutti::accumulate(compression, queue, const_wire{}, sum, where);
    }
  }
  using needed = std::integral_constant<decltype(&verbs), &verbs>;
};
template <class Compression, class Queue>
requires(selects<Compression> &&
         !host_queue<Queue>) struct compiles_for_the_queue<Compression, Queue> {
  using needed = std::common_type<
      typename compiles_for_the_queue<typename Compression::chosen, Queue>::needed,
      typename compiles_for_the_queue<typename Compression::otherwise, Queue>::needed>;
};
template <class Compression, host_queue Queue>
struct compiles_for_the_queue<Compression, Queue> {
  using needed = void;
};

/// The role that a policy plays, or void if it states none.
template <class Policy>
struct role_of {
  using type = void;
};
template <class Policy>
requires requires { typename Policy::role; }
struct role_of<Policy> {
  using type = typename Policy::role;
};

/// Whether at most one of a composition's policies plays `Role`.
template <class Role, class... Policies>
struct one_policy_a_role {
  static constexpr bool holds =
      (0 + ... + (std::is_same_v<typename role_of<Policies>::type, Role> ? 1 : 0)) <= 1;
  static_assert(holds,
                "tutti: two policies play the same role. Fix: keep one, or combine them into one "
                "policy.");
};

/// Whether a policy says which role it plays.
template <class Policy>
struct policies_state_a_role {
  static constexpr bool holds = !std::is_same_v<typename role_of<Policy>::type, void>;
  static_assert(holds,
                "tutti: this policy does not say which role it plays. Fix: state one in it, as "
                "using role = tutti::role::compression.");
};

/// Whether a strategy has a policy of this one's role, if it states one. It would not use any
/// other.
template <class Policy>
struct strategies_have_the_role {
  using role = typename role_of<Policy>::type;
  static constexpr bool holds =
      std::is_same_v<role, void> || std::is_same_v<role, tutti::role::fusion> ||
      std::is_same_v<role, tutti::role::partition> || std::is_same_v<role, tutti::role::schedule> ||
      std::is_same_v<role, tutti::role::coordination> ||
      std::is_same_v<role, tutti::role::compression> ||
      std::is_same_v<role, tutti::role::architecture>;
  static_assert(holds,
                "tutti: a strategy has no policy of this role, so it would do nothing. Fix: name a "
                "collective in its architecture, as architecture::all_reduce<collective::ring>, "
                "and pass an optimizer, transport or monitor to make_engine.");
};

}  // namespace tutti::rule
