#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "tutti/architecture/replicated.hpp"
#include "tutti/base/options.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/coordination/automatic.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/coordination.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/role/partition.hpp"
#include "tutti/role/schedule.hpp"
#include "tutti/schedule/as_ready.hpp"

namespace tutti {

/// A communication strategy: six policies that go together. Written by means of `compose`, which
/// takes policies in any order, so that two compositions of the same policies are one type.
template <fusion_policy Fusion, partition_policy Partition, schedule_policy Schedule,
          coordination_policy Coordination, compression_policy Compression,
          architecture_policy Architecture>
struct strategy
    : private rule::check_payloads_must_add<Architecture, Compression>,
      private rule::check_votes_need_a_sign_each<Architecture, Compression>,
      private rule::check_payloads_must_merge<Architecture, Compression>,
      private rule::check_kept_magnitudes_select<Architecture, Compression>,
      private rule::check_rounded_parameters_are_remembered<Architecture, Compression>,
      private rule::check_rounded_parameters_are_all_there<Architecture, Compression>,
      private rule::check_rounded_parameters_have_magnitudes<Architecture, Compression>,
      private rule::check_native_adds_floats<Architecture, Compression>,
      private rule::check_one_payload_for_all<Architecture, Compression>,
      private rule::check_parameters_travel_whole<Architecture, Compression>,
      private rule::check_differences_have_magnitudes<Architecture, Compression>,
      private rule::check_kept_gradients_are_undivided<Architecture, Compression>,
      private rule::check_residuals_are_sent<Architecture, Compression>,
      private rule::check_momenta_are_of_all_steps<Architecture, Compression>,
      private rule::check_compression_is_used<Architecture, Compression>,
      private rule::check_buckets_stay_whole<Partition, Compression>,
      private rule::check_weighed_tensors_stay_whole<Partition, Architecture>,
      private rule::check_gathering_needs_one_order<Fusion, Schedule, Coordination, Architecture>,
      private rule::check_gathering_holds_no_credit<Fusion, Schedule>,
      private rule::check_gathering_mixes_steps<Fusion, Architecture>,
      private rule::check_gathering_moves_parts<Fusion, Architecture>,
      private rule::check_gathering_needs_smaller_units<Fusion, Compression> {
  using fusion = Fusion;
  using partition = Partition;
  using schedule = Schedule;
  using coordination = Coordination;
  using compression = Compression;
  using architecture = Architecture;
};

namespace detail {

template <class Role, class Default, class... Policies>
struct pick {
  using type = Default;
};
template <class Role, class Default, class First, class... Rest>
struct pick<Role, Default, First, Rest...>
    : std::conditional_t<std::is_same_v<typename rule::role_of<First>::type, Role>,
                         std::type_identity<First>, pick<Role, Default, Rest...>> {};

template <class... Policies>
struct composition : private rule::one_policy_a_role<role::fusion, Policies...>,
                     private rule::one_policy_a_role<role::partition, Policies...>,
                     private rule::one_policy_a_role<role::schedule, Policies...>,
                     private rule::one_policy_a_role<role::coordination, Policies...>,
                     private rule::one_policy_a_role<role::compression, Policies...>,
                     private rule::one_policy_a_role<role::architecture, Policies...> {
  // Instantiates each policy's rules, whose own assertion is then the only error.
  static_assert(((sizeof(rule::policies_state_a_role<Policies>) > 0) && ...));
  static_assert(((sizeof(rule::strategies_have_the_role<Policies>) > 0) && ...));

  using type = strategy<
      typename pick<role::fusion, tutti::fusion::none, Policies...>::type,
      typename pick<role::partition, tutti::partition::none, Policies...>::type,
      typename pick<role::schedule, tutti::schedule::as_ready, Policies...>::type,
      typename pick<role::coordination, tutti::coordination::automatic, Policies...>::type,
      typename pick<role::compression, tutti::compression::none, Policies...>::type,
      typename pick<role::architecture, tutti::architecture::replicated<>, Policies...>::type>;
};

template <class S>
struct strategy_of {
  using type = S;
};
template <class S>
requires requires { typename S::strategy; }
struct strategy_of<S> {
  using type = typename S::strategy;
};

}  // namespace detail

/// The strategy made of these policies, given in any order. A role that none of them plays has its
/// default policy.
template <class... Policies>
using compose = typename detail::composition<Policies...>::type;

/// The composition behind a named strategy. Of a composition, the composition itself.
template <class S>
using strategy_of = typename detail::strategy_of<S>::type;

/// The options of a strategy's six policies.
template <class Strategy>
struct policy_options {
  options_of<typename Strategy::fusion> fusion{};
  options_of<typename Strategy::partition> partition{};
  options_of<typename Strategy::schedule> schedule{};
  options_of<typename Strategy::coordination> coordination{};
  options_of<typename Strategy::compression> compression{};
  options_of<typename Strategy::architecture> architecture{};

  /// Calls `visit(role, options)` for each policy, with the role's name.
  template <class Self, class Visitor>
  static void each(Self& self, Visitor&& visit) {
    visit(std::string_view("fusion"), self.fusion);
    visit(std::string_view("partition"), self.partition);
    visit(std::string_view("schedule"), self.schedule);
    visit(std::string_view("coordination"), self.coordination);
    visit(std::string_view("compression"), self.compression);
    visit(std::string_view("architecture"), self.architecture);
  }
};

/// The default options of a named strategy, or, if it states none, those of its policies.
template <class S>
constexpr policy_options<strategy_of<S>> default_options() {
  if constexpr (requires { S::defaults(); }) {
    return S::defaults();
  } else {
    return {};
  }
}

}  // namespace tutti
