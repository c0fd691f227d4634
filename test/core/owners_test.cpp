// Ownership at its limits: chunks without elements, fewer elements than owners, ranks without a
// gradient, and ranks without further batches. Results are compared with plain counts and with sums
// in double.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/dealt.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

using shares = architecture::sharded<collective::canonical>;
using means = architecture::reduce_scatter_all_gather;

// ---- parts of a chunk

/// However a model is cut, every element has one owner, and a chunk's parts follow the order of the
/// ranks. No part is longer than the chunk's length divided by the ranks, rounded up. Over all
/// chunks, each rank owns as much of the model as it would if the model were one chunk.
TEST(Owners, OfPartsOwnAsMuchAsEachOther) {
  std::mt19937 random(1);
  for (const std::size_t most : {0U, 1U, 3U, 7U, 64U, 1000U}) {
    for (int model = 0; model < 20; ++model) {
      std::vector<chunk> cut(random() % 40);
      std::size_t elements = 0;
      for (chunk& each : cut) {
        each.first_element = elements;
        each.elements = random() % (most + 1);
        elements += each.elements;
      }
      for (const std::size_t p : {1U, 2U, 3U, 4U, 5U, 8U}) {
        std::vector<std::size_t> owned(p);
        std::size_t next = 0;
        for (const chunk& each : cut) {
          for (std::size_t rank = 0; rank < p; ++rank) {
            const chunk part = each.part(p, rank);
            ASSERT_EQ(part.first_element, next) << "rank " << rank << " of " << p;
            ASSERT_EQ(part.elements, dealt(each.first_element, each.elements, rank, p));
            ASSERT_LE(part.elements, (each.elements + p - 1) / p);
            owned[rank] += part.elements;
            next += part.elements;
          }
          ASSERT_EQ(next, each.first_element + each.elements);
        }
        for (std::size_t rank = 0; rank < p; ++rank) {
          ASSERT_EQ(owned[rank], elements / p + (rank < elements % p ? 1 : 0)) << p << " ranks";
        }
      }
    }
  }
}

// ---- training

constexpr int steps = 6;
constexpr std::size_t sizes[] = {0, 1, 3, 2, 0, 7};

/// What ranks lack: some gradients of a step, or some batches.
struct lacks {
  bool some = false;
  bool batches = false;

  bool gradient(int rank, int step, std::size_t id) const {
    return some && rank % 2 == 1 && id == static_cast<std::size_t>(step) % std::size(sizes);
  }
  int of_batches(int rank) const { return batches ? std::max(0, steps - 2 * rank) : steps; }
};

/// Returns whole numbers, so that sums and means of 1, 2 and 4 ranks are exact.
float gradient_of(int rank, int step, std::size_t id, std::size_t i) {
  return static_cast<float>((7 * rank + 3 * step + 5 * static_cast<int>(id + i)) % 9 - 4);
}

double expected_of(int ranks, lacks of, std::size_t id, std::size_t i) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int step = 0; step < of.of_batches(rank); ++step) {
      sum += of.gradient(rank, step, id) ? 0.0 : gradient_of(rank, step, id, i);
    }
  }
  return -sum / ranks;
}

/// Each tensor is a chunk.
template <class Strategy>
void trains(int workers, engine_options<Strategy> set, lacks of) {
  transport::run_ranks(workers + servers_in<Strategy>(set), [&](transport::in_process& world) {
    std::vector<arena::declaration> declared;
    for (const std::size_t each : sizes) {
      declared.push_back({"t" + std::to_string(declared.size()), each});
    }
    arena memory(declared);
    auto engine =
        make_engine<Strategy>(world, memory.tensors(), optimizer::sgd{.learning_rate = 1.0f}, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    EXPECT_EQ(engine.planned().chunks.size(), std::size(sizes));
    for (int step = 0; step < of.of_batches(world.rank()); ++step) {
      for (std::size_t id = std::size(sizes); id-- > 0;) {
        engine.wait(tensor_id(id));
        if (of.gradient(world.rank(), step, id)) {
          engine.absent(tensor_id(id));
          continue;
        }
        const auto gradient = memory.tensors()[id].gradient;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          gradient[i] = gradient_of(world.rank(), step, id, i);
        }
        engine.ready(tensor_id(id));
      }
    }
    if constexpr (facts::joins<typename strategy_of<Strategy>::coordination>) {
      engine.join();
    }
    engine.wait();
    for (std::size_t id = 0; id < std::size(sizes); ++id) {
      const auto got = memory.tensors()[id].parameter;
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i], expected_of(workers, of, id, i),
                    std::has_single_bit(static_cast<unsigned>(workers)) ? 0 : 1e-5)
            << "rank " << world.rank() << " of " << workers << ", tensor " << id;
      }
    }
  });
}

template <class Architecture>
class OwnersInTraining : public testing::Test {};
using owning = testing::Types<shares, means>;
TYPED_TEST_SUITE(OwnersInTraining, owning, );

TYPED_TEST(OwnersInTraining, have_fewer_elements_than_they_are) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    trains<compose<TypeParam>>(ranks, {}, {});
  }
}
TYPED_TEST(OwnersInTraining, take_an_absent_gradient_for_zero) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    trains<compose<TypeParam>>(ranks, {}, {.some = true});
  }
}
TYPED_TEST(OwnersInTraining, own_on_when_they_have_joined) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    trains<compose<TypeParam, coordination::negotiated>>(ranks, {},
                                                         {.some = true, .batches = true});
  }
}

/// Keeps two floats of its own for each element of its parts, under an optimizer that keeps none.
struct remembers_more : shares {
  template <class World>
  struct state : shares::state<World> {
    state(World& world, const options& set) : shares::state<World>(world, set) {
      for (const chunk& each : world.planned().chunks) {
        kept.emplace_back(2 * each.part(at(world.size()), at(world.rank())).elements);
      }
    }
    std::vector<std::span<float>> memories() { return {kept.begin(), kept.end()}; }
    std::vector<std::vector<float>> kept;
  };
};

/// Calls `visit(value, number)` with a number for each float of this rank's parts, which is that of
/// its element and row.
template <class Engine, class Visit>
void for_each_kept(Engine& engine, Visit visit) {
  const auto memories = engine.memories();
  const plan& made = engine.planned();
  for (std::size_t i = 0; i < made.chunks.size(); ++i) {
    const std::span<float> its = memories[memories.size() - made.chunks.size() + i];
    const chunk mine = made.chunks[i].part(at(engine.workers()), at(engine.worker()));
    ASSERT_EQ(its.size(), 2 * mine.elements);
    for (std::size_t j = 0; j < its.size(); ++j) {
      const std::size_t row = j / mine.elements;
      visit(its[j], static_cast<float>(100 * row + mine.first_element + j % mine.elements));
    }
  }
}

TEST(Owners, TakeWithThemWhateverAnArchitectureRemembersOfTheirParts) {
  using strategy = compose<remembers_more, fusion::up_to, partition::into>;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      arena memory(std::vector<arena::declaration>{{"a", 37}, {"b", 0}, {"c", 1}, {"d", 30}});
      engine_options<strategy> set;
      set.fusion.bytes = 100;
      set.partition.bytes = 64;
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer::sgd{}, set);
      for_each_kept(engine, [](float& kept, float number) { kept = number; });
      set.fusion.bytes = 1000;
      set.partition.bytes = 40;
      engine.replan(set);
      for_each_kept(engine, [](float kept, float number) { EXPECT_EQ(kept, number); });
    });
  }
}

/// Chunks without elements have an owner, and a server without chunks ends with the others.
TEST(Owners, OfWholeChunksMayBeMoreThanChunks) {
  using strategy = compose<architecture::parameter_server<>>;
  for (const int servers : {1, 3, 7}) {
    engine_options<strategy> set;
    set.architecture.servers = servers;
    trains<strategy>(2, set, {.some = true});
  }
}

}  // namespace
}  // namespace tutti::test
