// What each policy concept requires: the smallest policy of each role that is accepted, and one by
// one the optional verbs, which must have the documented signature if they are there.
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <span>
#include <vector>

#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/coordination.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/partition.hpp"
#include "tutti/role/schedule.hpp"

namespace tutti::test {

namespace {

// ---- the least that is accepted

/// An architecture whose state has the verbs of `More` as well.
template <class More>
struct architecture_with {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;

  template <class World>
  struct state : More {
    state(World&, const no_options&) {}
    std::size_t workspace_bytes(std::size_t) const;
    task exchange(typename World::endpoint, const typename World::launch&);
  };
};
struct nothing {};
static_assert(architecture_policy<architecture_with<nothing>>);

struct fusion {
  using role = tutti::role::fusion;
  std::vector<std::size_t> group_ends(std::span<const tensor_facts>, const profile&) const;
};
static_assert(fusion_policy<fusion>);

struct partition {
  using role = tutti::role::partition;
  std::vector<std::size_t> piece_ends(std::size_t) const;
};
static_assert(partition_policy<partition>);

struct schedule {
  using role = tutti::role::schedule;
  static constexpr bool limits_in_flight = false;
  static constexpr bool static_order = false;
  struct state {
    state(const plan&, const no_options&);
    void ready(std::uint32_t);
    void released(std::uint32_t);
    std::optional<std::uint32_t> next();
  };
};
static_assert(schedule_policy<schedule>);

struct coordination {
  using role = tutti::role::coordination;
  static constexpr bool one_order = false;
  template <class Choice>
  struct state {
    state(const plan&, std::span<const tensor>, tutti::coordination::ranks, const no_options&,
          Choice);
    void ready(std::uint32_t, seconds);
    void hear(int, std::span<const std::uint32_t>, seconds);
    void released(std::uint32_t, seconds);
    std::optional<seconds> due() const;
    void tick(seconds);
    template <class Say>
    void speak(Say);
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady, std::size_t);
    template <class IsReady>
    std::optional<std::uint32_t> stuck(IsReady) const;
    bool expects_words() const;
  };
};
static_assert(coordination_policy<coordination>);

struct collective {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = false;
  static constexpr bool ordered_start = false;
  std::size_t scratch_bytes(std::size_t, std::size_t, int) const;
  template <class Endpoint, class Fold>
  task all_reduce(Endpoint, reduction<Fold>) const;
};
static_assert(collective_policy<collective>);

struct compression {
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  std::size_t wire_bytes(std::size_t) const;
  template <class Queue>
  void encode(Queue&, std::span<const float>, wire) const;
  template <class Queue>
  void accumulate(Queue&, const_wire, std::span<float>) const;
};
static_assert(compression_policy<compression>);

struct monitor {
  using role = tutti::role::monitor;
  static constexpr bool observes = true;
  void record(event, std::uint32_t, seconds);
};
static_assert(monitor_policy<monitor>);

struct optimizer {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = true;
  std::size_t memory_per_element() const;
  template <class Queue>
  void apply(Queue&, std::span<float>, std::span<const float>, const chunk_context&) const;
  template <class Self, class Visitor>
  static void describe(Self&, Visitor&&);
};
static_assert(optimizer_policy<optimizer>);

// ---- an architecture's state: every verb as it is documented, and each of them otherwise

static_assert(architecture_policy<architecture_with<archetype::optional_verbs>>);

template <class... Verbs>
constexpr int refused_of = (0 + ... + !architecture_policy<architecture_with<Verbs>>);

struct sends_where_nothing_arrives {
  bool sends(std::uint64_t) const;
};
struct sends_by_number {
  int sends(std::uint64_t) const;
  void arrive(std::size_t, std::uint64_t);
};
struct sends_and_changes {
  bool sends(std::uint64_t);
  void arrive(std::size_t, std::uint64_t);
};
struct outgoing_of_whole_numbers {
  void outgoing(const chunk&, std::span<int>);
};
struct incoming_without_buffer {
  void incoming(const chunk&);
};
struct average_in_double {
  double average() const;
};
struct depart_by_name {
  void depart(const char*, std::uint64_t);
};
struct arrive_without_step {
  template <class Position>
  void arrive(Position);
};
struct serve_at_once {
  template <class Endpoint, class Message>
  void serve(Endpoint, Message);
};
class resume_for_itself {
  void resume(std::uint64_t);
};
struct memory_alone {
  std::span<float> memories();
};
struct memories_as_arrays {
  std::vector<std::vector<float>> memories();
};
struct floats_of_a_step {
  std::size_t optimizer_floats(std::uint64_t) const;
};
struct undo_step_by_number {
  void undo_step(std::uint64_t, std::uint64_t);
};
struct finish_without_rest {
  task finish();
};
static_assert(
    refused_of<sends_where_nothing_arrives, sends_by_number, sends_and_changes,
               outgoing_of_whole_numbers, incoming_without_buffer, average_in_double,
               depart_by_name, arrive_without_step, serve_at_once, resume_for_itself, memory_alone,
               memories_as_arrays, floats_of_a_step, undo_step_by_number, finish_without_rest> ==
    15);

struct no_exchange {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  template <class World>
  struct state {
    state(World&, const no_options&);
    std::size_t workspace_bytes(std::size_t) const;
  };
};
struct no_workspace : no_exchange {
  template <class World>
  struct state {
    state(World&, const no_options&);
    task exchange(typename World::endpoint, const typename World::launch&);
  };
};
struct state_of_other_options : no_exchange {
  template <class World>
  struct state : no_workspace::state<World> {
    explicit state(World&);
    std::size_t workspace_bytes(const chunk&) const;
  };
};
struct no_state : no_exchange {
  template <class World>
  using state = typename World::none;
};
static_assert(!architecture_policy<no_exchange> && !architecture_policy<no_workspace> &&
              !architecture_policy<state_of_other_options> && !architecture_policy<no_state>);

// ---- what an architecture says before there is a state

template <class State>
struct listening : architecture_with<State> {
  static bool listens(const no_options&, int, int);
};
struct listening_to_options : architecture_with<archetype::optional_verbs> {
  static bool listens(const no_options&);
};
struct workers_of_all : architecture_with<nothing> {
  static int workers(int);
};
struct places_by_rank : architecture_with<nothing> {
  static void place(plan&, int);
};
static_assert(architecture_policy<listening<archetype::optional_verbs>> &&
              !architecture_policy<listening<nothing>>);
static_assert(!architecture_policy<listening_to_options> && !architecture_policy<workers_of_all> &&
              !architecture_policy<places_by_rank>);

// ---- other roles

struct limits : schedule {
  static constexpr bool limits_in_flight = true;
};
struct window : limits {
  struct state : schedule::state, archetype::window {
    using schedule::state::state;
  };
};
struct halves : schedule {
  using second_half = archetype::second_half;
};
struct halves_without_end : schedule {
  struct second_half {
    second_half(const plan&, const no_options&);
    void half_done();
    std::optional<std::uint32_t> next();
  };
};
struct plans : schedule {
  static no_options planned(const no_options&, const plan&, const profile&);
};
struct plans_blindly : schedule {
  static no_options planned(const no_options&);
};
static_assert(schedule_policy<plans> && !schedule_policy<plans_blindly>);
static_assert(schedule_policy<window> && !schedule_policy<limits>);
static_assert(schedule_policy<halves> && !schedule_policy<halves_without_end>);

struct lets_join : coordination {
  static constexpr bool joins = true;
};
struct hears_of_joins : lets_join {
  template <class Choice>
  struct state : coordination::state<Choice>, archetype::joining {
    using coordination::state<Choice>::state;
  };
};
struct never_ticks : coordination {
  template <class Choice>
  struct state : coordination::state<Choice> {
    using coordination::state<Choice>::state;
    void tick() {}
  };
};
struct of_a_plan_alone : coordination {
  template <class Choice>
  struct state : coordination::state<Choice> {
    explicit state(const plan&);
  };
};
static_assert(coordination_policy<hears_of_joins> && !coordination_policy<lets_join>);
static_assert(!coordination_policy<never_ticks> && !coordination_policy<of_a_plan_alone>);

struct decides_late : fusion {
  static constexpr bool at_run_time = true;
};
struct gathers : decides_late, archetype::run_time_fusion {};
static_assert(run_time_fusion<gathers> && !fusion_policy<decides_late>);

template <class More>
struct gathers_with : decides_late {
  struct state : More {
    state(const plan&, const no_options&);
    void stage(std::uint32_t);
    std::span<const std::uint32_t> next();
  };
  std::size_t most_bytes(const plan&) const;
};
struct cycles {
  seconds cycle() const;
};
struct cycles_and_changes {
  seconds cycle();
};
struct settles {
  std::size_t unsettled_steps() const;
};
struct settles_and_changes {
  std::size_t unsettled_steps();
};
static_assert(run_time_fusion<gathers_with<nothing>> && !facts::has_cycle<gathers_with<nothing>>);
static_assert(run_time_fusion<gathers_with<cycles>> && facts::has_cycle<gathers_with<cycles>> &&
              !fusion_policy<gathers_with<cycles_and_changes>>);
static_assert(run_time_fusion<gathers_with<settles>> &&
              !fusion_policy<gathers_with<settles_and_changes>>);

struct sorts : fusion {
  std::size_t group_of(const tensor_facts&) const;
};
struct sorts_and_changes : fusion {
  std::size_t group_of(const tensor_facts&);
};
struct sorts_by_number : fusion {
  std::size_t group_of(std::uint32_t) const;
};
static_assert(fusion_policy<sorts> && !fusion_policy<sorts_and_changes> &&
              !fusion_policy<sorts_by_number>);

struct among_owners : partition {
  among_owners among(int) const;
};
struct among_nobody : partition {
  among_nobody among() const;
};
static_assert(partition_policy<among_owners> && !partition_policy<among_nobody>);

struct routes : collective {
  template <class Piece>
  std::uint64_t route_of(const Piece&) const;
};
struct routes_by_number : collective {
  std::uint64_t route_of(std::uint32_t) const;
};
static_assert(collective_policy<routes> && facts::has_routes<routes>);
static_assert(!collective_policy<routes_by_number> && !facts::has_routes<collective>);

struct scratch_by_type : compression {
  std::size_t scratch_bytes() const;
};
struct scratch_by_elements : compression {
  template <class Elements>
  std::size_t scratch_bytes(Elements) const;
};
static_assert(compression_policy<scratch_by_elements> && !compression_policy<scratch_by_type>);

struct changes_itself : compression {
  template <class Queue>
  void encode(Queue&, std::span<const float>, wire);
};
struct encodes_doubles : compression {
  template <class Queue>
  void encode(Queue&, std::span<const double>, wire) const;
};
struct accumulates_nowhere : compression {
  template <class Queue>
  void accumulate(Queue&, const_wire) const;
};
static_assert(!compression_policy<changes_itself> && !compression_policy<encodes_doubles> &&
              !compression_policy<accumulates_nowhere>);

struct adds : compression {
  static constexpr bool summable = true;
  static constexpr std::size_t wire_bytes(std::size_t n) { return 4 * n; }
  template <class Queue>
  void fold(Queue&, wire, const_wire) const;
};
struct adds_behind_a_header : adds {
  static constexpr std::size_t wire_bytes(std::size_t n) { return 4 + 4 * n; }
};
struct adds_two_a_byte : adds {
  static constexpr std::size_t wire_bytes(std::size_t n) { return (n + 1) / 2; }
};
static_assert(compression_policy<adds> && !compression_policy<adds_behind_a_header> &&
              !compression_policy<adds_two_a_byte>);

struct sums_alone : monitor {
  std::span<double> sums();
};
struct adds_up : sums_alone {
  void summed(std::span<const double>);
};
static_assert(monitor_policy<adds_up> && !monitor_policy<sums_alone>);

// ---- an optimizer

struct optimizer_of_nothing {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = true;
  std::size_t memory_per_element() const;
  template <class Self, class Visitor>
  static void describe(Self&, Visitor&&);
};
struct applies_without_a_place : optimizer_of_nothing {
  template <class Queue>
  void apply(Queue&, std::span<float>, std::span<const float>) const;
};
struct changes_as_it_applies : optimizer_of_nothing {
  template <class Queue>
  void apply(Queue&, std::span<float>, std::span<const float>, const chunk_context&);
};
struct remembers_by_number : optimizer {
  std::size_t memory_per_element(int) const;
};
struct waits_for_all : optimizer {
  static constexpr bool needs_all_gradients = true;
};
struct begins_without_their_sum : waits_for_all {
  float begin_step();
};
struct begins_with_their_sum : waits_for_all {
  float begin_step(double squares);
};
static_assert(!optimizer_policy<optimizer_of_nothing> && !optimizer_policy<remembers_by_number> &&
              !optimizer_policy<applies_without_a_place> &&
              !optimizer_policy<changes_as_it_applies>);
static_assert(optimizer_policy<begins_with_their_sum> && !optimizer_policy<waits_for_all> &&
              !optimizer_policy<begins_without_their_sum>);

struct checks : optimizer {
  void expect_values() const;
};
struct checks_and_changes : optimizer {
  void expect_values();
};
struct restores : begins_with_their_sum {
  bool restores_residuals() const;
};
struct restores_and_changes : begins_with_their_sum {
  bool restores_residuals();
};
static_assert(optimizer_policy<checks> && !optimizer_policy<checks_and_changes>);
static_assert(optimizer_policy<restores> && !optimizer_policy<restores_and_changes>);

/// The assertions above are the test; this makes it appear in lists of tests.
TEST(Concepts, ask_for_the_verbs_of_what_a_policy_makes) {
  EXPECT_TRUE(architecture_policy<architecture_with<nothing>>);
}

}  // namespace

}  // namespace tutti::test
