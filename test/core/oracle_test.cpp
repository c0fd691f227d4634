// Parameters after twenty steps are bitwise those of one process that adds in rank order.
#include "support/oracle.hpp"

#include <gtest/gtest.h>

#include "support/equals_oracle.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"

namespace tutti::test {
namespace {

using architecture::all_reduce;
using architecture::parameter_server;

template <class Strategy>
void equals_oracle(engine_options<Strategy> options = {}) {
  expect_oracle_of(
      [&](int workers, int steps) { return train_on_threads<Strategy>(workers, steps, options); });
}

TEST(Oracle, Canonical) { equals_oracle<compose<all_reduce<collective::canonical>>>(); }
TEST(Oracle, CanonicalOfEverythingAtTheEnd) {
  equals_oracle<compose<all_reduce<collective::canonical>, fusion::all, schedule::at_end>>();
}
TEST(Oracle, CanonicalMergedInOrder) {
  equals_oracle<compose<all_reduce<collective::canonical>, fusion::merge_gradients, partition::into,
                        schedule::in_order>>({.partition = {.bytes = 4000}});
}
TEST(Oracle, CanonicalFusedByPriorityWithAWindowOfOneChunk) {
  equals_oracle<compose<all_reduce<collective::canonical>, fusion::up_to, partition::into,
                        schedule::by_priority>>(
      {.fusion = {.bytes = 3000}, .partition = {.bytes = 100'000}, .schedule = {.credit = 1}});
}
TEST(Oracle, AddressableByPriority) {
  equals_oracle<
      compose<all_reduce<collective::addressable>, partition::into, schedule::by_priority>>(
      {.partition = {.bytes = 30'000}});
}
TEST(Oracle, Star) { equals_oracle<compose<all_reduce<collective::star>, fusion::up_to>>(); }
TEST(Oracle, TheDefaults) { equals_oracle<compose<>>(); }
TEST(Oracle, ServersThatAdd) {
  for (const int servers : {1, 2, 3}) {
    equals_oracle<compose<parameter_server<>, partition::into, schedule::by_priority>>(
        {.partition = {.bytes = 50'000},
         .schedule = {.credit = 1},
         .architecture = {.servers = servers}});
  }
}
TEST(Oracle, ServersThatUpdate) {
  using updating = parameter_server<consistency::synchronous, updated_by::servers>;
  for (const int servers : {1, 3}) {
    equals_oracle<compose<updating, fusion::up_to>>(
        {.fusion = {.bytes = 2000}, .architecture = {.servers = servers}});
  }
}

/// Tensors that are no neighbours in memory must be packed, and come out the same.
TEST(Oracle, ScatteredMemory) {
  using strategy = compose<all_reduce<collective::canonical>, fusion::all, partition::into>;
  const int workers = 3;
  transport::run_ranks(workers, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    std::vector<std::vector<float>> parameters;
    std::vector<std::vector<float>> gradients;
    std::vector<tensor> tensors;
    for (const auto& each : memory.tensors()) {
      parameters.emplace_back(each.parameter.begin(), each.parameter.end());
      gradients.emplace_back(each.elements);
      tensors.emplace_back(each.name, parameters.back(), gradients.back());
    }
    auto engine =
        make_engine<strategy>(world, tensors, optimizer_of(), {.partition = {.bytes = 7000}});
    for (int step = 0; step < oracle_steps; ++step) {
      engine.wait();
      backward(memory, world.rank(), step);
      for (std::size_t i = tensors.size(); i-- > 0;) {
        std::ranges::copy(memory.tensors()[i].gradient, gradients[i].begin());
        engine.ready(tensor_id(i));
      }
    }
    engine.wait();
    std::vector<float> flat;
    for (std::size_t i = tensors.size(); i-- > 0;) {
      flat.insert(flat.end(), parameters[i].begin(), parameters[i].end());
    }
    EXPECT_EQ(flat, trained(workers, oracle_steps));
  });
}

}  // namespace
}  // namespace tutti::test
