// The same strategies on the virtual clock: the same bits.
#include "support/oracle.hpp"

#include <gtest/gtest.h>

#include "support/equals_oracle.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::test {
namespace {

using architecture::all_reduce;
using architecture::parameter_server;

template <class Strategy>
void equals_oracle(engine_options<Strategy> options = {}) {
  expect_oracle_of([&](int workers, int steps) {
    return train_in_simulation<Strategy>(workers, steps, options);
  });
}

TEST(SimulatedOracle, Canonical) { equals_oracle<compose<all_reduce<collective::canonical>>>(); }
TEST(SimulatedOracle, CanonicalFusedByPriority) {
  equals_oracle<compose<all_reduce<collective::canonical>, fusion::up_to, partition::into,
                        schedule::by_priority>>(
      {.fusion = {.bytes = 3000}, .partition = {.bytes = 100'000}, .schedule = {.credit = 1}});
}
TEST(SimulatedOracle, StarAtTheEnd) {
  equals_oracle<compose<all_reduce<collective::star>, fusion::all, schedule::at_end>>();
}
TEST(SimulatedOracle, ServersThatAdd) {
  equals_oracle<compose<parameter_server<>, partition::into, schedule::by_priority>>(
      {.partition = {.bytes = 50'000}, .schedule = {.credit = 1}, .architecture = {.servers = 2}});
}
TEST(SimulatedOracle, ServersThatUpdate) {
  equals_oracle<compose<parameter_server<consistency::synchronous, updated_by::servers>>>();
}

}  // namespace
}  // namespace tutti::test
