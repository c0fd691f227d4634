// The oracle on real processes: bitwise where the sum is in rank order, within the rounding of a
// sum elsewhere.
#include "support/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <gtest/gtest.h>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/native.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

using architecture::all_reduce;
using architecture::parameter_server;

transport::mpi* world = nullptr;

/// This worker's parameters after `steps` steps; nothing on a server.
template <class Strategy>
std::vector<float> train(int steps, engine_options<Strategy> options) {
  arena memory = model_of(world->rank());
  auto engine = make_engine<Strategy>(*world, memory.tensors(), optimizer_of(), options);
  if (engine.serves()) {
    engine.serve();
    return {};
  }
  for (int step = 0; step < steps; ++step) {
    engine.wait();
    backward(memory, engine.worker(), step);
    for (const tensor_id id : shuffled(memory.tensors().size(), world->rank(), step)) {
      engine.ready(id);
    }
  }
  engine.wait();
  return {memory.parameters().begin(), memory.parameters().end()};
}

template <class Strategy>
void is_bitwise(engine_options<Strategy> options = {}) {
  const int servers = servers_in<Strategy>(options);
  if (world->size() <= servers) {
    GTEST_SKIP() << servers << " servers leave no worker";
  }
  const auto result = train<Strategy>(20, options);
  if (world->rank() < world->size() - servers) {
    EXPECT_EQ(result, trained(world->size() - servers, 20));
  }
}

/// One step: |x - x'| is at most the learning rate times the rounding of the mean.
template <class Strategy>
void is_within_a_rounding() {
  const auto result = train<Strategy>(1, {});
  const auto expected = trained(world->size(), 1);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double magnitude = std::abs(static_cast<double>(expected[i]));
    for (int rank = 0; rank < world->size(); ++rank) {
      magnitude += std::abs(static_cast<double>(gradient(rank, 0, i)));
    }
    ASSERT_NEAR(static_cast<double>(result[i]), static_cast<double>(expected[i]),
                (world->size() + 1) * std::ldexp(1.0, -23) * magnitude);
  }
}

TEST(MpiOracle, Canonical) { is_bitwise<compose<all_reduce<collective::canonical>>>(); }
TEST(MpiOracle, CanonicalFusedByPriority) {
  is_bitwise<compose<all_reduce<collective::canonical>, fusion::up_to, partition::into,
                     schedule::by_priority>>(
      {.fusion = {.bytes = 3000}, .partition = {.bytes = 100'000}, .schedule = {.credit = 1}});
}
TEST(MpiOracle, GatheredAsNegotiated) {
  using strategy = compose<all_reduce<collective::canonical>, fusion::when_ready,
                           coordination::negotiated, partition::into, schedule::by_priority>;
  is_bitwise<strategy>({.fusion = {.bytes = 100'000, .cycle = 1e-4},
                        .partition = {.bytes = 50'000},
                        .coordination = {.by = coordination::identity::name, .cache = 3}});
}
TEST(MpiOracle, GatheredAsLearned) {
  is_bitwise<compose<all_reduce<collective::canonical>, fusion::when_ready, coordination::learned>>(
      {.fusion = {.bytes = 3000, .cycle = 0}});
}
TEST(MpiOracle, ServersThatAdd) {
  is_bitwise<compose<parameter_server<>, partition::into, schedule::by_priority>>(
      {.partition = {.bytes = 50'000}, .schedule = {.credit = 1}});
}
TEST(MpiOracle, ServersThatUpdate) {
  is_bitwise<compose<parameter_server<consistency::synchronous, updated_by::servers>>>(
      {.architecture = {.servers = 2}});
}
TEST(MpiOracle, Ring) { is_within_a_rounding<compose<all_reduce<>>>(); }
TEST(MpiOracle, NativeInOrder) {
  is_within_a_rounding<compose<all_reduce<collective::native>, schedule::in_order>>();
}
TEST(MpiOracle, NativeLed) { is_within_a_rounding<compose<all_reduce<collective::native>>>(); }

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_over(tutti::test::world, argc, argv);
}
