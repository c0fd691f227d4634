#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "support/one_of.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/by_arrival.hpp"
#include "tutti/fusion/by_group.hpp"
#include "tutti/fusion/by_modules.hpp"
#include "tutti/fusion/into_groups.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/fusion/of_small.hpp"
#include "tutti/fusion/sparse_merge.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/partition/over_servers.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/at_most.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"
#include "tutti/schedule/split_phase.hpp"

/// A pairwise covering array: any two choices of different factors that are legal together appear
/// together in one of its rows. A few engines run all rows, because choices that an engine cannot
/// tell apart are made at run time.
namespace tutti::test::covering {

enum factor : std::size_t { fusion, partition, schedule, coordination, summing, place, factors };
using row = std::array<std::size_t, factors>;

/// The number of choices of each factor, in the order of `factor`.
inline constexpr row choices{11, 3, 6, 4, 2, 4};

class some_fusion {
  using by_group = tutti::fusion::by_group<tutti::fusion::up_to, named<"*.bias">>;
  static constexpr std::size_t in_named_groups = 7;

 public:
  using role = tutti::role::fusion;
  using options = which_one;

  explicit some_fusion(const options& set) : set_(set) {}

  std::size_t group_of(const tensor_facts& tensor) const {
    return set_.which == in_named_groups ? by_group().group_of(tensor) : 0;
  }
  std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                      const profile& known) const {
    switch (set_.which) {
      case 0:
        return tutti::fusion::none().group_ends(backward, known);
      case 1:
        return tutti::fusion::up_to({.bytes = 2000}).group_ends(backward, known);
      case 2:
        return tutti::fusion::all().group_ends(backward, known);
      case 3:
        return tutti::fusion::into_groups({.groups = 2}).group_ends(backward, known);
      case 4:
        return tutti::fusion::by_modules({.bytes = 3000}).group_ends(backward, known);
      case 5:
        return tutti::fusion::of_small({.bytes = 200, .tensors = 2}).group_ends(backward, known);
      case 6:
        return tutti::fusion::merge_gradients().group_ends(backward, known);
      case in_named_groups:
        return by_group({.bytes = 2000}).group_ends(backward, known);
      default:
        return tutti::fusion::sparse_merge().group_ends(backward, known);
    }
  }

 private:
  options set_;
};
/// The first `planned_fusions` choices decide before training; the fusions after them decide at run
/// time.
inline constexpr std::size_t planned_fusions = 9;

class some_gathering {
  using when_ready = tutti::fusion::when_ready;
  using by_arrival = tutti::fusion::by_arrival;
  static constexpr when_ready::options in_cycles{.bytes = 2500, .cycle = 2e-5};
  static constexpr by_arrival::options in_order{.bytes = 2500, .first_bytes = 500};

 public:
  using role = tutti::role::fusion;
  using options = which_one;
  static constexpr bool at_run_time = true;

  explicit some_gathering(const options& set) : set_(set) {}

  std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                      const profile& known) const {
    return tutti::fusion::none().group_ends(backward, known);
  }
  std::size_t most_bytes(const plan& made) const {
    return set_.which == 0 ? when_ready(in_cycles).most_bytes(made)
                           : by_arrival(in_order).most_bytes(made);
  }

  class state {
    using any = std::variant<when_ready::state, by_arrival::state>;

   public:
    state(const plan& made, const options& set)
        : its_(set.which == 0 ? any(std::in_place_index<0>, made, in_cycles)
                              : any(std::in_place_index<1>, made, in_order)) {}

    std::size_t unsettled_steps() const {
      const auto* in_arrival = std::get_if<1>(&its_);
      return in_arrival == nullptr ? 0 : in_arrival->unsettled_steps();
    }
    seconds cycle() const {
      const auto* in_time = std::get_if<0>(&its_);
      return in_time == nullptr ? 0 : in_time->cycle();
    }
    void stage(std::uint32_t chunk) {
      std::visit([chunk](auto& each) { each.stage(chunk); }, its_);
    }
    std::span<const std::uint32_t> next() {
      return std::visit([](auto& each) { return each.next(); }, its_);
    }

   private:
    any its_;
  };

 private:
  options set_;
};

class some_partition {
 public:
  using role = tutti::role::partition;
  using options = which_one;

  explicit some_partition(const options& set) : set_(set) {}

  some_partition among(int owners) const {
    some_partition its = *this;
    its.over_ = over_.among(owners);
    return its;
  }
  std::vector<std::size_t> piece_ends(std::size_t elements) const {
    switch (set_.which) {
      case 0:
        return tutti::partition::none().piece_ends(elements);
      case 1:
        return tutti::partition::into({.bytes = 1000}).piece_ends(elements);
      default:
        return over_.piece_ends(elements);
    }
  }

 private:
  options set_;
  tutti::partition::over_servers over_{{.bound = 100}};
};

using free_schedules =
    one_of_schedules<tutti::schedule::as_ready, tutti::schedule::at_end, tutti::schedule::in_order>;
using tutti::schedule::at_most;
using tutti::schedule::by_priority;
using tutti::schedule::split_phase;

using tutti::coordination::local;
using agreed = one_of_coordinations<tutti::coordination::leader, tutti::coordination::negotiated,
                                    tutti::coordination::learned>;

using canonical = architecture::all_reduce<collective::canonical>;
using servers_that_add = architecture::parameter_server<>;
using servers_that_update =
    architecture::parameter_server<consistency::synchronous, updated_by::servers>;

/// Choices of `place`.
enum : std::size_t { on_threads, on_the_virtual_clock, on_shaped_threads, between_processes };

// ---- what is legal

template <class Fusion, class Schedule, class Coordination, class Architecture>
constexpr bool is_legal =
    rule::gathering_needs_one_order<Fusion, Schedule, Coordination, Architecture>::holds&&
        rule::gathering_holds_no_credit<Fusion, Schedule>::holds&&
            rule::halves_need_an_exchange_of_two<Schedule, Architecture,
                                                 compression::none>::holds &&
    // Ranks that wait for credit, each in an order of its own, would wait for each other forever.
    (Coordination::one_order || !Schedule::limits_in_flight || Schedule::static_order ||
     Architecture::completes_alone);

namespace detail {

using kinds_of_fusion =
    std::tuple<some_fusion, tutti::fusion::when_ready, tutti::fusion::by_arrival>;
using kinds_of_schedule = std::tuple<free_schedules, at_most, by_priority, split_phase>;
using kinds_of_coordination = std::tuple<local, agreed>;
using kinds_of_summing = std::tuple<canonical, servers_that_update>;

/// Returns the kind of each factor's choice. Choices of one kind run in one engine.
constexpr row kinds_in(const row& of) {
  return {of[fusion] < planned_fusions ? 0 : of[fusion] - planned_fusions + 1,
          0,
          of[schedule] < 3 ? 0 : of[schedule] - 2,
          of[coordination] != 0,
          of[summing],
          of[place]};
}

template <std::size_t... Each>
constexpr auto all_legal(std::index_sequence<Each...>) {
  return std::array{is_legal<std::tuple_element_t<Each / 16, kinds_of_fusion>,
                             std::tuple_element_t<Each / 4 % 4, kinds_of_schedule>,
                             std::tuple_element_t<Each / 2 % 2, kinds_of_coordination>,
                             std::tuple_element_t<Each % 2, kinds_of_summing>>...};
}

}  // namespace detail

constexpr bool legal(const row& of) {
  constexpr auto known = detail::all_legal(std::make_index_sequence<48>());
  const row kinds = detail::kinds_in(of);
  return known[16 * kinds[fusion] + 4 * kinds[schedule] + 2 * kinds[coordination] + kinds[summing]];
}

// ---- what is compiled

template <std::size_t Place, class Fusion, class Schedule, class Coordination,
          class Architecture = canonical>
struct engine_of {
  using strategy = compose<Fusion, some_partition, Schedule, Coordination, Architecture>;
  static constexpr std::size_t where = Place;

  template <class Policy, class Kinds>
  static constexpr std::size_t kind = [] {
    return []<class... Each>(const std::tuple<Each...>*) {
      return place_among<Policy, Each...>;
    }(static_cast<const Kinds*>(nullptr));
  }();

  static constexpr bool runs(const row& of) {
    row kinds = detail::kinds_in(of);
    // One policy, `some_gathering`, has both fusions that decide at run time.
    kinds[fusion] = kinds[fusion] != 0;
    return kinds == row{std::is_same_v<Fusion, some_gathering>,
                        0,
                        kind<Schedule, detail::kinds_of_schedule>,
                        kind<Coordination, detail::kinds_of_coordination>,
                        has_servers<strategy>,
                        Place};
  }

  static engine_options<strategy> options(const row& of) {
    engine_options<strategy> set;
    set.run.deadline = 30;
    set.partition.which = of[partition];
    set.fusion.which = of[fusion] % planned_fusions;
    if constexpr (std::is_same_v<Schedule, free_schedules>) {
      set.schedule.which = of[schedule];
    } else if constexpr (std::is_same_v<Schedule, by_priority>) {
      set.schedule.credit = 1500;
    }
    if constexpr (std::is_same_v<Coordination, agreed>) {
      set.coordination.which = of[coordination] - 1;
    }
    if constexpr (has_servers<strategy>) {
      set.architecture.servers = 2;
    }
    return set;
  }
};

/// Every two kinds of different factors that are legal together are in one of these engines.
using engines =
    std::tuple<engine_of<on_threads, some_gathering, free_schedules, agreed>,
               engine_of<on_threads, some_fusion, at_most, local>,
               engine_of<on_threads, some_fusion, by_priority, agreed>,
               engine_of<on_threads, some_fusion, split_phase, agreed>,
               engine_of<on_threads, some_fusion, by_priority, local, servers_that_update>,
               engine_of<on_the_virtual_clock, some_fusion, free_schedules, local>,
               engine_of<on_the_virtual_clock, some_gathering, free_schedules, agreed>,
               engine_of<on_the_virtual_clock, some_fusion, by_priority, agreed>,
               engine_of<on_the_virtual_clock, some_fusion, split_phase, local>,
               engine_of<on_the_virtual_clock, some_fusion, at_most, agreed, servers_that_update>,
               engine_of<on_shaped_threads, some_gathering, free_schedules, agreed>,
               engine_of<on_shaped_threads, some_fusion, at_most, agreed>,
               engine_of<on_shaped_threads, some_gathering, by_priority, agreed>,
               engine_of<on_shaped_threads, some_fusion, split_phase, local>,
               engine_of<on_shaped_threads, some_fusion, free_schedules, local, servers_that_add>,
               engine_of<between_processes, some_gathering, free_schedules, agreed>,
               engine_of<between_processes, some_gathering, at_most, agreed>,
               engine_of<between_processes, some_fusion, split_phase, local>,
               engine_of<between_processes, some_fusion, by_priority, local, servers_that_update>>;

/// Returns how many engines run a row: one or none.
constexpr int engines_that_run(const row& of) {
  return [&of]<class... Each>(const std::tuple<Each...>*) {
    return (0 + ... + (Each::runs(of) ? 1 : 0));
  }(static_cast<const engines*>(nullptr));
}

// ---- the array

inline constexpr std::size_t base = 11;  // the most choices of a factor

/// Returns choices of two factors as a number of four digits to the base of `base`.
constexpr std::size_t pair_of(std::size_t one, std::size_t its, std::size_t other,
                              std::size_t others) {
  return ((one * base + other) * base + its) * base + others;
}
inline constexpr std::size_t most_pairs = factors * base * base * base;

/// Calls `visit(pair)` with each pair of choices in a row.
template <class Visit>
void each_pair(const row& of, Visit visit) {
  for (std::size_t one = 0; one < factors; ++one) {
    for (std::size_t other = one + 1; other < factors; ++other) {
      visit(pair_of(one, of[one], other, of[other]));
    }
  }
}

/// Returns all rows that the rules allow.
inline const std::vector<row>& all_rows() {
  static const std::vector<row> all = [] {
    std::vector<row> rows;
    row each{};
    while (each[fusion] < choices[fusion]) {
      if (legal(each)) {
        rows.push_back(each);
      }
      std::size_t digit = factors - 1;
      while (++each[digit] == choices[digit] && digit > 0) {
        each[digit--] = 0;
      }
    }
    return rows;
  }();
  return all;
}

/// Returns for each pair of choices whether some legal row has it.
inline const std::vector<bool>& legal_pairs() {
  static const std::vector<bool> all = [] {
    std::vector<bool> some(most_pairs);
    for (const row& of : all_rows()) {
      each_pair(of, [&some](std::size_t both) { some[both] = true; });
    }
    return some;
  }();
  return all;
}

/// Returns the legal pairs that none of these rows has.
inline std::vector<bool> missing_in(const std::vector<row>& some) {
  std::vector<bool> missing = legal_pairs();
  for (const row& of : some) {
    each_pair(of, [&missing](std::size_t both) { missing[both] = false; });
  }
  return missing;
}

inline std::vector<row> without(std::vector<row> rows, std::size_t one) {
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(one));
  return rows;
}

/// Chooses rows greedily: always the one with the most new pairs, until no compiled row has a new
/// one. Then removes rows that later ones have made superfluous.
inline std::vector<row> made_rows() {
  std::vector<row> compiled = all_rows();
  std::erase_if(compiled, [](const row& of) { return engines_that_run(of) == 0; });
  std::vector<row> made;
  std::vector<bool> missing = missing_in({});
  for (row best{};;) {
    int most = 0;
    for (const row& of : compiled) {
      int news = 0;
      each_pair(of, [&](std::size_t both) { news += missing[both] ? 1 : 0; });
      if (news > most) {
        most = news;
        best = of;
      }
    }
    if (most == 0) {
      break;
    }
    made.push_back(best);
    each_pair(best, [&missing](std::size_t both) { missing[both] = false; });
  }
  for (std::size_t i = made.size(); i-- > 0;) {
    if (missing_in(without(made, i)) == missing_in(made)) {
      made = without(made, i);
    }
  }
  return made;
}
inline const std::vector<row>& rows() {
  static const std::vector<row> all = made_rows();
  return all;
}

// ---- training

inline constexpr int workers = 3;
inline constexpr int steps = 100;

/// Tensors of no elements, one, an odd number, and more than fit into a bucket or a piece.
inline const std::vector<arena::declaration>& model() {
  static const std::vector<arena::declaration> forward{{"stem.weight", 37},  {"stem.bias", 1},
                                                       {"body.weight", 701}, {"body.bias", 0},
                                                       {"head.weight", 513}, {"head.bias", 8}};
  return forward;
}

/// Expects every row of these places to end with the bits of one process that adds in rank order.
/// Calls `train(engine, options)` and returns the number of rows.
template <std::size_t... Places, class Train>
int rows_that_train(Train train) {
  std::size_t elements = 0;
  for (const auto& each : model()) {
    elements += each.elements;
  }
  const std::vector<float> expected = trained(workers, steps, {}, gradient, elements);
  int counted = 0;
  for (const row& of : rows()) {
    const auto by = [&]<class Engine>(const Engine*) {
      if constexpr (((Engine::where == Places) || ...)) {
        if (Engine::runs(of)) {
          const outcome result = train(static_cast<const Engine*>(nullptr), Engine::options(of));
          for (const auto& parameters : result.parameters) {
            EXPECT_TRUE(parameters == expected) << testing::PrintToString(of);
          }
          ++counted;
        }
      }
    };
    [&]<class... Each>(const std::tuple<Each...>*) {
      (by(static_cast<const Each*>(nullptr)), ...);
    }(static_cast<const engines*>(nullptr));
  }
  return counted;
}

}  // namespace tutti::test::covering
