// Checks that strategies/what-goes-together.md states what the rules say of every two policies,
// without making an engine. One file, because one table is made of all lists.
#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/unbuffered_library.hpp"
#include "tutti/architecture/adasum.hpp"
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
#include "tutti/architecture/selecting_all_gather.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/architecture/sharded_by_owners.hpp"
#include "tutti/architecture/sparse_regions.hpp"
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/architecture/streaming_diloco.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/collective/by_graph.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/excluding.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/hierarchical_copy.hpp"
#include "tutti/collective/rings.hpp"
#include "tutti/collective/shuffle.hpp"
#include "tutti/collective/sliced_ring.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/collective/torus.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/by_magnitude.hpp"
#include "tutti/compression/byteps_onebit.hpp"
#include "tutti/compression/byteps_randomk.hpp"
#include "tutti/compression/byteps_topk.hpp"
#include "tutti/compression/chain.hpp"
#include "tutti/compression/dense_below.hpp"
#include "tutti/compression/dithering.hpp"
#include "tutti/compression/e3m0.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fading_error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/fp8.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/natural.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/compression/random_k.hpp"
#include "tutti/compression/remembering_answers.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/signum.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/compression/top_k.hpp"
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
#include "tutti/fusion/of_small.hpp"
#include "tutti/fusion/sparse_merge.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/optimizer/adam.hpp"
#include "tutti/optimizer/clipped.hpp"
#include "tutti/optimizer/lamb.hpp"
#include "tutti/optimizer/lars.hpp"
#include "tutti/optimizer/loss_scaled.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/optimizer/one_bit_adam.hpp"
#include "tutti/optimizer/scaled_elsewhere.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/over_servers.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/at_most.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"
#include "tutti/schedule/split_phase.hpp"
#include "tutti/transport/any_transport.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/recording.hpp"
#include "tutti/transport/shaped.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

// ---- what the rules know and the library has no policy of

/// A compressor that needs whole buckets.
struct of_whole_buckets : compression::scaled_sign {
  static constexpr tutti::unit unit = tutti::unit::bucket;
};
/// A transport with the capabilities that `transport::mpi` asserts in its header, which would need
/// MPI's headers.
struct like_mpi : transport::any_transport {
  void all_reduce(tag, std::span<float>) {}
};
static_assert(has_all_reduce<like_mpi> && has_host_memory<like_mpi> &&
              !is_stream_ordered<like_mpi> && !has_virtual_time<like_mpi>);

// ---- the lists: the first of each is what a composition has that does not say

/// The policies of a role, with the name of each in the tables.
template <class... Each>
struct policies {
  std::string_view role;
  std::array<std::string_view, sizeof...(Each)> names;
};

constexpr policies<fusion::none, fusion::up_to, fusion::all, fusion::into_groups,
                   fusion::by_group<fusion::none, named<"*.bias">>, fusion::by_modules,
                   fusion::of_small, fusion::merge_gradients, fusion::sparse_merge,
                   fusion::by_arrival, fusion::when_ready>
    fusions{"fusion",
            {"none", "up_to", "all", "into_groups", "by_group", "by_modules", "of_small",
             "merge_gradients", "sparse_merge", "by_arrival", "when_ready"}};

constexpr policies<partition::none, partition::into, partition::over_servers> partitions{
    "partition", {"none", "into", "over_servers"}};

constexpr policies<schedule::as_ready, schedule::in_order, schedule::at_end, schedule::at_most,
                   schedule::by_priority, schedule::split_phase>
    schedules{"schedule",
              {"as_ready", "in_order", "at_end", "at_most", "by_priority", "split_phase"}};

constexpr policies<coordination::automatic, coordination::local, coordination::leader,
                   coordination::negotiated, coordination::learned>
    coordinations{"coordination", {"automatic", "local", "leader", "negotiated", "learned"}};

constexpr policies<
    compression::none, compression::fp16, compression::bf16, compression::sign,
    compression::scaled_sign, compression::norm_scaled_sign, compression::block_sign,
    compression::block_int8, compression::fp8_e4m3, compression::fp8_e5m2, compression::e3m0,
    compression::natural, compression::signum, compression::one_bit, compression::two_bit,
    compression::byteps_onebit, compression::byteps_topk, compression::byteps_randomk,
    compression::dithering, compression::push_only<compression::two_bit>, compression::top_k,
    compression::random_k, compression::by_magnitude, compression::by_kth_magnitude,
    compression::qsgd, compression::chain<compression::top_k, compression::block_int8>,
    compression::power_sgd,
    compression::select<matrices, compression::power_sgd, compression::none>,
    compression::error_feedback<compression::fp16>, compression::error_feedback<compression::sign>,
    compression::error_feedback<compression::two_bit>,
    compression::error_feedback<compression::top_k>,
    compression::dense_below<compression::error_feedback<compression::top_k>>,
    compression::error_feedback<compression::byteps_topk>,
    compression::error_feedback<compression::byteps_randomk>,
    compression::error_feedback<compression::by_kth_magnitude>,
    compression::error_feedback<compression::qsgd>,
    compression::fading_error_feedback<compression::block_int8>,
    compression::momentum_correction<compression::error_feedback<compression::top_k>>,
    compression::remembering_answers<compression::block_int8>, of_whole_buckets>
    compressions{"compression",
                 {"none",
                  "fp16",
                  "bf16",
                  "sign",
                  "scaled_sign",
                  "norm_scaled_sign",
                  "block_sign",
                  "block_int8",
                  "fp8_e4m3",
                  "fp8_e5m2",
                  "e3m0",
                  "natural",
                  "signum",
                  "one_bit",
                  "two_bit",
                  "byteps_onebit",
                  "byteps_topk",
                  "byteps_randomk",
                  "dithering",
                  "push_only<two_bit>",
                  "top_k",
                  "random_k",
                  "by_magnitude",
                  "by_kth_magnitude",
                  "qsgd",
                  "chain<top_k, block_int8>",
                  "power_sgd",
                  "select<matrices, power_sgd, none>",
                  "error_feedback<fp16>",
                  "error_feedback<sign>",
                  "error_feedback<two_bit>",
                  "error_feedback<top_k>",
                  "dense_below<error_feedback<top_k>>",
                  "error_feedback<byteps_topk>",
                  "error_feedback<byteps_randomk>",
                  "error_feedback<by_kth_magnitude>",
                  "error_feedback<qsgd>",
                  "fading_error_feedback<block_int8>",
                  "momentum_correction<error_feedback<top_k>>",
                  "remembering_answers<block_int8>",
                  "of_whole_buckets (a test's)"}};

template <class Consistency, class UpdatedBy>
using servers = architecture::parameter_server<Consistency, UpdatedBy>;
using consistency::asynchronous;
using consistency::backup_workers;
using consistency::bounded_staleness;
using consistency::delay_compensated;
using consistency::synchronous;
constexpr policies<
    architecture::replicated<>, architecture::all_reduce<>,
    architecture::all_reduce<collective::ring, architecture::mean::before>,
    architecture::all_reduce<collective::ring, architecture::mean::none>, architecture::all_gather,
    architecture::reduce_scatter_all_gather, architecture::momentum_exchange,
    architecture::majority_vote, architecture::sparse_tree, architecture::sparse_regions,
    architecture::selecting_all_gather, architecture::adasum<>,
    architecture::adasum<carries::difference>, architecture::dense,
    servers<synchronous, updated_by::workers>, servers<synchronous, updated_by::servers>,
    servers<synchronous, updated_by::servers_by_push>, servers<asynchronous, updated_by::workers>,
    servers<asynchronous, updated_by::servers>, servers<bounded_staleness, updated_by::workers>,
    servers<bounded_staleness, updated_by::servers>, servers<backup_workers, updated_by::servers>,
    servers<delay_compensated, updated_by::servers>, architecture::sharded<>,
    architecture::sharded<collective::ring, architecture::gradients::given_back>,
    architecture::sharded_by_owners, architecture::pair_averaging, architecture::model_averaging<>,
    architecture::local_sgd<>, architecture::diloco<>, architecture::streaming_diloco<>,
    architecture::elastic_averaging<>, architecture::elastic_servers, architecture::gossip,
    architecture::push_sum, architecture::bipartite_averaging, architecture::delayed<>,
    architecture::switch_at<architecture::all_reduce<>, architecture::local_sgd<>>,
    architecture::switch_at<architecture::model_averaging<>, architecture::all_reduce<>>,
    architecture::independent>
    architectures{"architecture",
                  {"replicated",
                   "all_reduce",
                   "all_reduce<before>",
                   "all_reduce<none>",
                   "all_gather",
                   "reduce_scatter_all_gather",
                   "momentum_exchange",
                   "majority_vote",
                   "sparse_tree",
                   "sparse_regions",
                   "selecting_all_gather",
                   "adasum",
                   "adasum<difference>",
                   "dense",
                   "parameter_server<synchronous, workers>",
                   "parameter_server<synchronous, servers>",
                   "parameter_server<synchronous, servers_by_push>",
                   "parameter_server<asynchronous, workers>",
                   "parameter_server<asynchronous, servers>",
                   "parameter_server<bounded_staleness, workers>",
                   "parameter_server<bounded_staleness, servers>",
                   "parameter_server<backup_workers, servers>",
                   "parameter_server<delay_compensated, servers>",
                   "sharded",
                   "sharded<given_back>",
                   "sharded_by_owners",
                   "pair_averaging",
                   "model_averaging",
                   "local_sgd",
                   "diloco",
                   "streaming_diloco",
                   "elastic_averaging",
                   "elastic_servers",
                   "gossip",
                   "push_sum",
                   "bipartite_averaging",
                   "delayed",
                   "switch_at<all_reduce, local_sgd>",
                   "switch_at<model_averaging, all_reduce>",
                   "independent"}};

template <class Collective>
using added_by = architecture::all_reduce<Collective>;
constexpr policies<added_by<collective::ring>, added_by<collective::sliced_ring<>>,
                   added_by<collective::rings>, added_by<collective::halving_doubling>,
                   added_by<collective::star>, added_by<collective::canonical>,
                   added_by<collective::by_graph>, added_by<collective::hierarchical<>>,
                   added_by<collective::hierarchical_copy>, added_by<collective::torus>,
                   added_by<collective::shuffle<collective::gather_at::hosts>>,
                   added_by<collective::excluding<collective::phase::reduce_scatter>>,
                   added_by<collective::addressable>, added_by<collective::native>>
    collectives{"collective",
                {"ring", "sliced_ring", "rings", "halving_doubling", "star", "canonical",
                 "by_graph", "hierarchical", "hierarchical_copy", "torus", "shuffle",
                 "excluding<reduce_scatter>", "addressable", "native"}};

constexpr policies<optimizer::sgd, optimizer::adam, optimizer::one_bit_adam, optimizer::none,
                   optimizer::lars, optimizer::lamb, optimizer::clipped<optimizer::sgd>,
                   optimizer::loss_scaled<optimizer::sgd>, optimizer::scaled_elsewhere>
    optimizers{"optimizer",
               {"sgd", "adam", "one_bit_adam", "none", "lars", "lamb", "clipped", "loss_scaled",
                "scaled_elsewhere"}};

/// Its memory belongs to a stream, as that of `transport::in_process_cuda`.
using like_in_process_cuda = transport::basic_in_process<host_stream, transport::by_mailbox>;
constexpr policies<transport::simulated, transport::in_process, like_in_process_cuda,
                   transport::shaped<transport::in_process>,
                   transport::recording<transport::in_process>, transport::any_transport, like_mpi,
                   streamed>
    transports{"transport",
               {"simulated", "in_process", "in_process_cuda", "shaped", "recording<in_process>",
                "any_transport", "mpi", "stream_ordered"}};

// ---- the rules

/// The roles that a rule asks about, one bit each. A collective is tested in the place of an
/// architecture, as `all_reduce` by it.
using places = unsigned;
constexpr places of_fusion = 1;
constexpr places of_partition = 2;
constexpr places of_schedule = 4;
constexpr places of_coordination = 8;
constexpr places of_compression = 16;
constexpr places of_architecture = 32;
constexpr places of_optimizer = 64;
constexpr places of_transport = 128;

struct verdict {
  bool holds{};
  const char* rule{};
  places asked{};
};

/// One policy for each role, and what the rules say of them. The rules of a strategy look at the
/// architecture that is written. Those of its engine look at the architecture that the compressor
/// and the transport make of it.
template <class F, class P, class S, class C, class K, class A, class O, class T>
struct setting {
  using R = typename architecture::resolved<A, K, T>::type;

  template <places Role, class Policy>
  using with = setting<std::conditional_t<Role == of_fusion, Policy, F>,
                       std::conditional_t<Role == of_partition, Policy, P>,
                       std::conditional_t<Role == of_schedule, Policy, S>,
                       std::conditional_t<Role == of_coordination, Policy, C>,
                       std::conditional_t<Role == of_compression, Policy, K>,
                       std::conditional_t<Role == of_architecture, Policy, A>,
                       std::conditional_t<Role == of_optimizer, Policy, O>,
                       std::conditional_t<Role == of_transport, Policy, T>>;

  static constexpr verdict verdicts[] = {
      {rule::payloads_must_add<A, K>::holds, "payloads_must_add", of_architecture | of_compression},
      {rule::votes_need_a_sign_each<A, K>::holds, "votes_need_a_sign_each",
       of_architecture | of_compression},
      {rule::payloads_must_merge<A, K>::holds, "payloads_must_merge",
       of_architecture | of_compression},
      {rule::kept_magnitudes_select<A, K>::holds, "kept_magnitudes_select",
       of_architecture | of_compression},
      {rule::rounded_parameters_are_remembered<A, K>::holds, "rounded_parameters_are_remembered",
       of_architecture | of_compression},
      {rule::rounded_parameters_are_all_there<A, K>::holds, "rounded_parameters_are_all_there",
       of_architecture | of_compression},
      {rule::rounded_parameters_have_magnitudes<A, K>::holds, "rounded_parameters_have_magnitudes",
       of_architecture | of_compression},
      {rule::native_adds_floats<A, K>::holds, "native_adds_floats",
       of_architecture | of_compression},
      {rule::one_payload_for_all<A, K>::holds, "one_payload_for_all",
       of_architecture | of_compression},
      {rule::parameters_travel_whole<A, K>::holds, "parameters_travel_whole",
       of_architecture | of_compression},
      {rule::differences_have_magnitudes<A, K>::holds, "differences_have_magnitudes",
       of_architecture | of_compression},
      {rule::kept_gradients_are_undivided<A, K>::holds, "kept_gradients_are_undivided",
       of_architecture | of_compression},
      {rule::residuals_are_sent<A, K>::holds, "residuals_are_sent",
       of_architecture | of_compression},
      {rule::momenta_are_of_all_steps<A, K>::holds, "momenta_are_of_all_steps",
       of_architecture | of_compression},
      {rule::compression_is_used<A, K>::holds, "compression_is_used",
       of_architecture | of_compression},
      {rule::buckets_stay_whole<P, K>::holds, "buckets_stay_whole", of_partition | of_compression},
      {rule::weighed_tensors_stay_whole<P, A>::holds, "weighed_tensors_stay_whole",
       of_partition | of_architecture},
      {rule::gathering_needs_one_order<F, S, C, A>::holds, "gathering_needs_one_order",
       of_fusion | of_schedule | of_coordination | of_architecture},
      {rule::gathering_holds_no_credit<F, S>::holds, "gathering_holds_no_credit",
       of_fusion | of_schedule},
      {rule::gathering_mixes_steps<F, A>::holds, "gathering_mixes_steps",
       of_fusion | of_architecture},
      {rule::gathering_moves_parts<F, A>::holds, "gathering_moves_parts",
       of_fusion | of_architecture},
      {rule::gathering_needs_smaller_units<F, K>::holds, "gathering_needs_smaller_units",
       of_fusion | of_compression},
      {rule::halves_need_an_exchange_of_two<S, R, K>::holds, "halves_need_an_exchange_of_two",
       of_schedule | of_architecture | of_compression | of_transport},
      {rule::owners_need_an_optimizer<R, O>::holds, "owners_need_an_optimizer",
       of_architecture | of_optimizer},
      {rule::momenta_are_exchanged_by_both<R, O>::holds, "momenta_are_exchanged_by_both",
       of_architecture | of_optimizer},
      {rule::pieces_need_an_elementwise_optimizer<R, O>::holds,
       "pieces_need_an_elementwise_optimizer", of_architecture | of_optimizer},
      {rule::all_gradients_are_seen<R, O>::holds, "all_gradients_are_seen",
       of_architecture | of_optimizer},
      {rule::norms_are_added_on_the_host<O, T>::holds, "norms_are_added_on_the_host",
       of_optimizer | of_transport},
      {rule::peers_must_be_addressable<R, T>::holds, "peers_must_be_addressable",
       of_architecture | of_transport},
      {rule::native_needs_the_transport<R, T>::holds, "native_needs_the_transport",
       of_architecture | of_transport},
      {rule::starts_need_one_order<S, C, R, T>::holds, "starts_need_one_order",
       of_schedule | of_coordination | of_architecture | of_transport},
      {rule::senders_must_be_known<R, T>::holds, "senders_must_be_known",
       of_architecture | of_transport},
      {rule::lengths_must_be_known<K, T>::holds, "lengths_must_be_known",
       of_compression | of_transport},
  };
};
using usual =
    setting<fusion::none, partition::none, schedule::as_ready, coordination::automatic,
            compression::none, architecture::replicated<>, optimizer::sgd, transport::simulated>;

/// Rules that belong in no table, because they are about one policy alone, about how often a role
/// occurs, about a call, or about monitors.
const std::set<std::string> of_no_pair{"joined_ranks_send_zeros",  "joins_are_negotiated",
                                       "one_policy_a_role",        "optimizers_travel_as_bytes",
                                       "monitors_see_means",       "monitors_read_host_memory",
                                       "strategies_have_the_role", "policies_state_a_role"};

// ---- the tables

using namespace std::string_literals;

/// The names of the rules that a pair of policies breaks, of the rules that ask about both their
/// roles.
using cell = std::string;

struct table {
  std::string_view down{};
  std::string_view across{};
  std::vector<std::string_view> rows{};
  std::vector<std::string_view> columns{};
  std::vector<std::vector<cell>> cells{};
};

cell broken(std::span<const verdict> all, places both) {
  cell names;
  for (const verdict& each : all) {
    if (!each.holds && (each.asked & both) == both) {
      names += (names.empty() ? "" : ", ") + std::string(each.rule);
    }
  }
  return names;
}

/// Whether any rule asks about both roles. If none does, nothing needs to be compiled.
constexpr bool asked_together(places both) {
  return std::ranges::any_of(usual::verdicts,
                             [both](const verdict& each) { return (each.asked & both) == both; });
}

template <places Row, places Column, class... Rows, class... Columns>
table judge(const policies<Rows...>& down, const policies<Columns...>& across) {
  table made{down.role,
             across.role,
             {down.names.begin(), down.names.end()},
             {across.names.begin(), across.names.end()},
             std::vector<std::vector<cell>>(sizeof...(Rows))};
  if constexpr (asked_together(Row | Column)) {
    made.cells.clear();
    const auto row = [&made]<class Its>(const Its*) {
      made.cells.push_back(
          {broken(Its::template with<Column, Columns>::verdicts, Row | Column)...});
    };
    (row(static_cast<const usual::with<Row, Rows>*>(nullptr)), ...);
  }
  return made;
}

std::vector<table> judge_all() {
  const auto with_architecture_as = [](const auto& combining) {
    return std::vector<table>{judge<of_architecture, of_compression>(combining, compressions),
                              judge<of_architecture, of_fusion>(combining, fusions),
                              judge<of_architecture, of_partition>(combining, partitions),
                              judge<of_architecture, of_schedule>(combining, schedules),
                              judge<of_architecture, of_coordination>(combining, coordinations),
                              judge<of_architecture, of_optimizer>(combining, optimizers),
                              judge<of_architecture, of_transport>(combining, transports)};
  };
  std::vector<table> made = with_architecture_as(architectures);
  std::ranges::move(with_architecture_as(collectives), std::back_inserter(made));
  const table others[] = {judge<of_fusion, of_partition>(fusions, partitions),
                          judge<of_fusion, of_schedule>(fusions, schedules),
                          judge<of_fusion, of_coordination>(fusions, coordinations),
                          judge<of_fusion, of_compression>(fusions, compressions),
                          judge<of_fusion, of_optimizer>(fusions, optimizers),
                          judge<of_fusion, of_transport>(fusions, transports),
                          judge<of_partition, of_schedule>(partitions, schedules),
                          judge<of_partition, of_coordination>(partitions, coordinations),
                          judge<of_partition, of_compression>(partitions, compressions),
                          judge<of_partition, of_optimizer>(partitions, optimizers),
                          judge<of_partition, of_transport>(partitions, transports),
                          judge<of_schedule, of_coordination>(schedules, coordinations),
                          judge<of_schedule, of_compression>(schedules, compressions),
                          judge<of_schedule, of_optimizer>(schedules, optimizers),
                          judge<of_schedule, of_transport>(schedules, transports),
                          judge<of_coordination, of_compression>(coordinations, compressions),
                          judge<of_coordination, of_optimizer>(coordinations, optimizers),
                          judge<of_coordination, of_transport>(coordinations, transports),
                          judge<of_compression, of_optimizer>(compressions, optimizers),
                          judge<of_compression, of_transport>(compressions, transports),
                          judge<of_optimizer, of_transport>(optimizers, transports)};
  made.insert(made.end(), std::begin(others), std::end(others));
  return made;
}

/// Merges the lines of a table whose answers are equal, and leaves out those that are legal
/// throughout.
using lines = std::vector<std::pair<std::string, std::vector<cell>>>;
lines merged(const std::vector<std::string_view>& names,
             const std::vector<std::vector<cell>>& all) {
  lines some;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::all_of(all[i], &cell::empty)) {
      continue;
    }
    const auto same = std::ranges::find(some, all[i], &lines::value_type::second);
    const std::string name = "`" + std::string(names[i]) + "`";
    if (same == some.end()) {
      some.emplace_back(name, all[i]);
    } else {
      same->first += ", " + name;
    }
  }
  return some;
}

std::vector<std::vector<cell>> transposed(const lines& rows, std::size_t columns) {
  std::vector<std::vector<cell>> made(columns);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < columns; ++i) {
      made[i].push_back(row.second[i]);
    }
  }
  return made;
}

/// Returns the table as Markdown, or nothing if all pairs are legal.
std::string markdown(const table& its) {
  const lines rows = merged(its.rows, its.cells);
  if (rows.empty()) {
    return "";
  }
  const lines columns = merged(its.columns, transposed(rows, its.columns.size()));
  std::string text = "## " + std::string(its.down) + " and " + std::string(its.across) + "\n\n| |";
  std::string rule = "\n|---|";
  for (const auto& [name, answers] : columns) {
    text += " " + name + " |";
    rule += "---|";
  }
  text += rule;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    text += "\n| " + rows[row].first + " |";
    for (const auto& [name, answers] : columns) {
      text += " " + (answers[row].empty() ? "legal" : answers[row]) + " |";
    }
  }
  return text + "\n\n";
}

// ---- the files

const std::filesystem::path& root() {
  static const auto path =
      std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  return path;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns the name and the sentence of each rule of a header.
std::map<std::string, std::string> sentences(const std::string& text) {
  constexpr std::string_view asserted = "static_assert(";
  std::map<std::string, std::string> found;
  for (auto at = text.find(asserted); at != text.npos; at = text.find(asserted, at + 1)) {
    const auto word = text.rfind("struct ", at) + std::string_view("struct ").size();
    std::string name = text.substr(word, text.find(' ', word) - word);
    constexpr std::string_view check = "check_";
    name.erase(0, name.starts_with(check) ? check.size() : 0);
    const auto end = text.find(");", at);
    std::string sentence;
    for (auto open = text.find('"', at); open < end;) {
      const auto close = text.find('"', open + 1);
      sentence += text.substr(open + 1, close - open - 1);
      open = text.find('"', close + 1);
    }
    constexpr std::string_view from = "tutti: ";
    sentence.erase(0, sentence.starts_with(from) ? from.size() : 0);
    found[name] = sentence;
  }
  return found;
}

/// Returns the policies of `role` that a header asserts.
std::vector<std::string> proven(const std::string& text, std::string_view role) {
  std::vector<std::string> names;
  for (const std::string& proof :
       {"static_assert(" + std::string(role) + "_policy<", "&& " + std::string(role) + "_policy<",
        "static_assert(run_time_fusion<"s}) {
    for (auto at = text.find(proof); at != text.npos; at = text.find(proof, at + 1)) {
      const auto begin = at + proof.size();
      names.push_back(text.substr(begin, text.find_first_of("<>", begin) - begin));
    }
  }
  return names;
}

constexpr std::string_view beginning = R"(# What goes together

Whether any two policies of different roles compose, by the rules of `include/tutti/core/rules.hpp`, with the default policy in every other role and the transport `simulated`. A cell is `legal` or names the rules that refuse the pair. `test/strategies/legal_test.cpp` generates this file and compares it; do not edit it.

Policies with the same answers share a row or column. A policy that is missing from a table composes with every policy of the other role. A collective stands for `architecture::all_reduce` with it. `replicated` becomes another architecture by compressor and transport; over `in_process` it is an all-reduce that reads the peers' memory.

)";

TEST(Legal, TheTableIsWhatTheRulesSay) {
  const std::map<std::string, std::string> stated =
      sentences(read(root() / "include/tutti/core/rules.hpp"));
  std::string text(beginning);
  std::string free;
  for (const table& each : judge_all()) {
    const std::string some = markdown(each);
    if (some.empty()) {
      free +=
          (free.empty() ? "" : "; ") + std::string(each.down) + " and " + std::string(each.across);
    }
    text += some;
  }
  const std::string tables = text;
  text += "## Legal throughout\n\n" + free +
          ".\n\n## The rules\n\n`test/compile_fail/RULE.cpp` is a program that breaks the rule. "
          "Some rules are "
          "not about pairs: `joins_are_negotiated` and `joined_ranks_send_zeros` apply where "
          "`engine.join()` is called, `one_policy_a_role` to a composition, "
          "`optimizers_travel_as_bytes` to an optimizer, and `monitors_see_means` and "
          "`monitors_read_host_memory` to a monitor.\n\n"
          "| rule | says |\n|---|---|\n";
  for (const auto& [name, sentence] : stated) {
    text += "| " + name + " | " + sentence + " |\n";
    EXPECT_NE(tables.find(name) != std::string::npos, of_no_pair.contains(name))
        << name << " refuses no pair. Fix: add it to `setting` here, or a policy that breaks it to "
        << "its list";
  }
  EXPECT_EQ(stated.size(), std::size(usual::verdicts) + of_no_pair.size());
  const auto file = root() / "strategies/what-goes-together.md";
  if (read(file) != text) {
    const auto made = std::filesystem::absolute("what-goes-together.md");
    std::ofstream(made) << text;
    ADD_FAILURE() << file << " is not what the rules say now. Fix: cp " << made << " " << file;
  }
}

/// A policy that its header asserts is in its role's list.
TEST(Legal, TheTableHasEveryPolicy) {
  const auto lacks = [](const auto& listed, const std::string& name) {
    return std::ranges::none_of(listed.names, [&name](std::string_view each) {
      return each.substr(0, each.find_first_of("< ")) == name;
    });
  };
  const auto all_of = [&](const auto& listed) {
    const auto folder = root() / "include/tutti" / listed.role;
    const std::vector<std::string> none;
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      for (const std::string& name :
           entry.is_regular_file() ? proven(read(entry.path()), listed.role) : none) {
        ++found;
        EXPECT_FALSE(lacks(listed, name))
            << entry.path() << ": " << name << " is not in the table. Fix: add it to its list here";
      }
    }
    EXPECT_GT(found, 1) << folder;
    EXPECT_FALSE(listed.names.back().empty()) << "a " << listed.role << " has no name here";
  };
  all_of(fusions);
  all_of(partitions);
  all_of(schedules);
  all_of(coordinations);
  all_of(compressions);
  all_of(architectures);
  all_of(collectives);
  all_of(optimizers);
  all_of(transports);
}

}  // namespace
}  // namespace tutti::test
