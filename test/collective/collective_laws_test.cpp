#include "support/collective_laws.hpp"

#include <array>
#include <cstddef>
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "support/placed_worlds.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/archetypes.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::test {

/// A collective that uses more of its endpoint than the concepts promise does not compile here.
template <class Collective>
class CollectiveArchetype : public ::testing::Test {};
template <class Collective>
using itself = Collective;
TYPED_TEST_SUITE(CollectiveArchetype, each_collective<itself>);

TYPED_TEST(CollectiveArchetype, TheLeastEndpointIsEnough) {
  if constexpr (!group_collective<TypeParam>) {
    GTEST_SKIP() << "it takes its peers' memory";
  } else {
    archetype::queue queue;
    std::vector<std::byte> bytes(40);
    const reduction<archetype::fold> data{bytes.data(), 10, 4, {}, {}};
    run_queue coroutines;
    task all = TypeParam{}.all_reduce(archetype::endpoint(queue), data);
    all.start(coroutines);
    coroutines.drain();
    EXPECT_TRUE(all.done());
    const std::vector<int> alone{0};
    task some = TypeParam{}.all_reduce(archetype::endpoint(queue).group(alone), data);
    some.start(coroutines);
    coroutines.drain();
    EXPECT_TRUE(some.done());
  }
}

/// The sizes are such that this holds also for processes, of which there are five at most.
TEST(Graphs, OfEveryTopologyAddUpOnTwoNumbersOfRanks) {
  std::array<std::set<std::size_t>, names(collective::topology()).size()> met;
  for (const placement_of_ranks& hosts : placements()) {
    for (const std::size_t n : sizes_of_laws) {
      const std::size_t ranks = hosts.size();
      if (n > 0 && ranks > 1 && ranks <= 5 && (n != sizes_of_laws.back() || ranks == 5)) {
        const std::size_t turn = by_graphs_in_turn::turn_of(
            n, static_cast<int>(ranks), [&](int rank) { return hosts[at(rank)]; });
        met[turn % met.size()].insert(ranks);
      }
    }
  }
  for (std::size_t each = 0; each < met.size(); ++each) {
    EXPECT_GE(met[each].size(), 2U) << names(collective::topology())[each];
  }
}

using threads_world = placed_threads<transport::in_process>;
using host_streams_world =
    placed_threads<transport::basic_in_process<host_stream, transport::by_mailbox>>;

INSTANTIATE_TYPED_TEST_SUITE_P(InProcess, CollectiveLaw, collectives_on<threads_world>);
INSTANTIATE_TYPED_TEST_SUITE_P(HostStream, CollectiveLaw, collectives_on<host_streams_world>);
INSTANTIATE_TYPED_TEST_SUITE_P(StreamOrdered, CollectiveLaw, collectives_on<placed_streamed>);

}  // namespace tutti::test
