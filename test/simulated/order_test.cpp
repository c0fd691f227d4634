// Schedules that hold nothing back, over every architecture, launches that are gathered as they
// become ready, and the bytes of these engines. The bytes of others are in bytes_test.cpp.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>

#include "support/byte_laws.hpp"
#include "support/order_laws.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"

namespace tutti::test {
namespace {

TEST(Order, AsReady) { EXPECT_EQ(orders_hold<schedule::as_ready>(), pairs(68, 17)); }
TEST(Order, AtTheEnd) { EXPECT_EQ(orders_hold<schedule::at_end>(), pairs(68, 17)); }
TEST(Order, InOrder) { EXPECT_EQ(orders_hold<schedule::in_order>(), pairs(68, 17)); }
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
  counts_as_stated<architecture::reduce_scatter_all_gather>(bytes::to_owners_of_parts);
  counts_as_stated<architecture::all_gather>(bytes::to_all);
  counts_as_stated<architecture::majority_vote>(bytes::votes);
}
TEST(Bytes, OfServers) {
  using architecture::parameter_server;
  using consistency::asynchronous;
  using consistency::backup_workers;
  using consistency::bounded_staleness;
  using consistency::synchronous;
  counts_as_stated<parameter_server<synchronous>>(bytes::once);
  counts_as_stated<parameter_server<synchronous, updated_by::servers>>(bytes::once);
  counts_as_stated<parameter_server<synchronous, updated_by::servers_by_push>>(bytes::once);
  counts_as_stated<parameter_server<asynchronous>>(bytes::once);
  counts_as_stated<parameter_server<asynchronous, updated_by::servers>>(bytes::once);
  counts_as_stated<parameter_server<bounded_staleness>>(bytes::once);
  counts_as_stated<parameter_server<backup_workers, updated_by::servers>>(bytes::once);
}
std::uint64_t to_both_neighbours(std::size_t, std::size_t workers, std::size_t n) {
  return 4 * n * std::min<std::size_t>(workers - 1, 2);
}
std::uint64_t to_another(std::size_t, std::size_t workers, std::size_t n) {
  return workers == 1 ? 0 : 4 * n;
}
TEST(Bytes, OfModels) {
  counts_as_stated<architecture::model_averaging<>>(bytes::around);
  counts_as_stated<architecture::local_sgd<>>(bytes::around, counted_steps / 4);
  counts_as_stated<architecture::sharded<>>(bytes::around_parts);
  counts_as_stated<architecture::gossip>(to_both_neighbours);
  counts_as_stated<architecture::push_sum>(to_another);
  counts_as_stated<architecture::elastic_servers>(bytes::once);
  using alone = ordered<schedule::as_ready, coordination::local, architecture::pair_averaging>;
  send_together<alone::strategy>(alone::options(), [](std::size_t workers) {
    return workers == 1 ? 0 : workers;  // each worker pulls one model
  });
  using pairs = ordered<schedule::as_ready, coordination::local, architecture::bipartite_averaging>;
  send_together<pairs::strategy>(pairs::options(), [](std::size_t workers) {
    return workers == 1 ? 0 : 2 * ((workers + 1) / 2);  // those of active ranks, and as much back
  });
}

}  // namespace
}  // namespace tutti::test
