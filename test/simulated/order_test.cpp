// Schedules that hold nothing back, over every architecture, and launches that are gathered as they
// become ready; and what those engines send.
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>

#include "support/byte_laws.hpp"
#include "support/order_laws.hpp"
#include "tutti/architecture/adasum.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"

namespace tutti::test {
namespace {

TEST(Order, AsReady) { EXPECT_EQ(orders_hold<schedule::as_ready>(), 44); }
TEST(Order, AtTheEnd) { EXPECT_EQ(orders_hold<schedule::at_end>(), 44); }
TEST(Order, InOrder) { EXPECT_EQ(orders_hold<schedule::in_order>(), 44); }
TEST(Order, OfBuckets) {
  never_deadlocks<compose<architecture::all_reduce<>, fusion::up_to>>({.fusion = {.bytes = 16}});
}
TEST(Order, GatheredAndNegotiated) {
  keeps_one_order<compose<coordination::negotiated, fusion::when_ready, architecture::all_gather>>(
      {.fusion = {.bytes = 40, .cycle = 1e-5},
       .coordination = {.by = coordination::identity::name, .cache = 2}});
}

// ---- what the same engines send

TEST(Bytes, OfAMean) {
  counts_as_stated<architecture::all_reduce<>>(bytes::around);
  counts_as_stated<architecture::delayed<architecture::all_reduce<>>>(bytes::around);
  counts_as_stated<architecture::reduce_scatter_all_gather>(bytes::to_owners);
  counts_as_stated<architecture::all_gather>(bytes::to_all);
  counts_as_stated<architecture::majority_vote>(bytes::votes);
  sends_as_stated<compose<architecture::adasum<>, coordination::local>>(
      {}, bytes::halved_and_doubled, counted_steps, SIZE_MAX);
}
TEST(Bytes, OfASelection) {
  sends_as_stated<compose<architecture::sparse_tree, compression::top_k, coordination::local>>(
      {.compression = {.density = 0.1}}, bytes::up_and_down_a_tree, counted_steps, SIZE_MAX);
}
TEST(Bytes, OfAMeanByEachCollective) {
  using strategy = compose<architecture::all_reduce<any_collective>, partition::into>;
  for (std::size_t i = 0; i < names(some_collective()).size(); ++i) {
    SCOPED_TRACE(names(some_collective())[i]);
    engine_options<strategy> options{.partition = {.bytes = 4 * counted_piece}};
    options.architecture.ranges[0].algorithm = some_collective(i);
    send_together<strategy>(options, [](std::size_t workers) { return 2 * (workers - 1); });
  }
}
TEST(Bytes, OfServers) {
  using architecture::parameter_server;
  using consistency::asynchronous;
  using consistency::synchronous;
  counts_as_stated<parameter_server<synchronous>>(bytes::once);
  counts_as_stated<parameter_server<synchronous, updated_by::servers>>(bytes::once);
  counts_as_stated<parameter_server<synchronous, updated_by::servers_by_push>>(bytes::once);
  counts_as_stated<parameter_server<asynchronous>>(bytes::once);
  counts_as_stated<parameter_server<asynchronous, updated_by::servers>>(bytes::once);
}
TEST(Bytes, OfModels) {
  counts_as_stated<architecture::model_averaging<>>(bytes::around);
  counts_as_stated<architecture::local_sgd<>>(bytes::around, counted_steps / 4);
  counts_as_stated<architecture::sharded<>>(bytes::around);
  counts_as_stated<architecture::independent>(bytes::none);
  using alone = ordered<schedule::as_ready, coordination::local, architecture::pair_averaging>;
  send_together<alone::strategy>(alone::options(), [](std::size_t workers) {
    return workers == 1 ? 0 : workers;  // each pulls one
  });
}
TEST(Bytes, OfOneAndThenAnother) {
  using strategy =
      compose<architecture::switch_at<architecture::all_reduce<>, architecture::local_sgd<>>,
              partition::into>;
  const engine_options<strategy> options{.architecture = {.step = 3}};
  sends_as_stated<strategy>(options, bytes::around, 2 + 2);  // the fourth and the eighth
}

}  // namespace
}  // namespace tutti::test
