// Tensors of two classes. Each class is planned as if the other were not there, and trained as by
// its own compressor alone.
#include "tutti/compression/select.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "support/errors.hpp"
#include "support/extent.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"

namespace tutti::test::selected {
namespace {

/// Chooses every nth tensor, so that neighbours are of different classes.
class every {
 public:
  struct options {
    std::size_t nth{2};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("nth", self.nth, "tensors from one that is chosen to the next");
    }
  };

  constexpr every() = default;
  explicit constexpr every(const options& values) : options_(values) {}
  constexpr bool operator()(const tensor_facts& tensor) const {
    return index(tensor.id) % options_.nth == 0;
  }

 private:
  options options_{};
};
static_assert(tensor_rule<every>);

using dense = architecture::all_reduce<collective::canonical>;
using lossy = compression::error_feedback<compression::fp16>;
using mixed = compression::select<every, lossy, compression::none>;
/// Error feedback around a selection, as users may write it. A compressor that loses nothing, or
/// has several rounds, is left as it is.
using around_both =
    compression::error_feedback<compression::select<every, compression::fp16, compression::none>>;
static_assert(compression_policy<around_both> && selects<around_both>);
static_assert(std::is_same_v<around_both::chosen, lossy> &&
              std::is_same_v<around_both::otherwise, compression::none>);
using low_rank_or_lossy = compression::error_feedback<
    compression::select<matrices, compression::power_sgd, compression::fp16>>;
static_assert(std::is_same_v<low_rank_or_lossy::chosen, compression::power_sgd> &&
              std::is_same_v<low_rank_or_lossy::otherwise, lossy>);

/// Computes the expected plan tensor by tensor. Each class is planned as a model of its own; only
/// the first forward index and the place in the flat space are those of the whole model.
void expect_classes_apart(const std::vector<tensor>& forward, const plan& made,
                          const std::vector<bool>& chosen, std::size_t most_bytes,
                          std::size_t most_in_chunk) {
  const std::size_t n = forward.size();
  std::vector<std::size_t> order;
  for (const bool first : {true, false}) {
    for (std::size_t id = n; id-- > 0;) {
      if ((chosen[id] == chosen[n - 1]) == first) {
        order.push_back(id);
      }
    }
  }
  std::vector<std::vector<std::size_t>> buckets;
  std::vector<std::size_t> first_of_id(n);
  std::size_t elements = 0;
  std::size_t held = 0;
  for (std::size_t place = 0; place < n; ++place) {
    const std::size_t id = order[place];
    first_of_id[id] = elements;
    elements += forward[id].elements;
    EXPECT_EQ(made.at(place), tensor_id(id));
    EXPECT_EQ(made.position(tensor_id(id)), place);
    EXPECT_EQ(made.first_element[place], first_of_id[id]);
    const bool of_new_class = place == 0 || chosen[id] != chosen[order[place - 1]];
    if (of_new_class || held >= most_bytes) {
      buckets.emplace_back();
      held = 0;
    }
    buckets.back().push_back(id);
    held += 4 * forward[id].elements;
  }
  std::ranges::sort(buckets, std::greater(), [](const auto& each) { return each.back(); });

  ASSERT_EQ(made.buckets.size(), buckets.size());
  std::size_t number = 0;
  for (std::size_t which = 0; which < buckets.size(); ++which) {
    const auto& ids = buckets[which];
    std::size_t left = 0;
    for (const std::size_t id : ids) {
      EXPECT_EQ(made.bucket_of[made.position(tensor_id(id))], which);
      left += forward[id].elements;
    }
    EXPECT_EQ(made.buckets[which].tensors, ids.size());
    EXPECT_EQ(made.buckets[which].elements, left);
    EXPECT_EQ(made.buckets[which].first_chunk, number);
    std::size_t next = first_of_id[ids.front()];
    do {
      ASSERT_LT(number, made.chunks.size());
      const chunk& piece = made.chunks[number++];
      EXPECT_EQ(piece.bucket, which);
      EXPECT_EQ(piece.chosen, chosen[ids.front()]);
      EXPECT_EQ(piece.first_element, next);
      EXPECT_EQ(piece.elements, std::min(left, most_in_chunk));
      std::size_t soonest = n;
      for (const std::size_t id : ids) {
        if (first_of_id[id] < next + piece.elements &&
            next < first_of_id[id] + forward[id].elements) {
          soonest = std::min(soonest, id);
        }
      }
      if (soonest != n) {
        EXPECT_EQ(piece.priority, soonest);
      }
      next += piece.elements;
      left -= piece.elements;
    } while (left > 0);
  }
  EXPECT_EQ(number, made.chunks.size());
}

TEST(Select, PlansEachClassAsIfItWereAlone) {
  std::mt19937 random(5);
  for (int round = 0; round < 2'000; ++round) {
    const std::size_t n = random() % 12;
    std::vector<tensor> forward;
    std::vector<bool> chosen;
    for (std::size_t i = 0; i < n; ++i) {
      forward.push_back(tensor::phantom("tensor", random() % 5 == 0 ? 0 : random() % 90));
      chosen.push_back(random() % 3 == 0);
    }
    const std::size_t most = 4 * (1 + random() % 120);
    const std::size_t cut = 1 + random() % 50;
    const plan made = make_plan(
        forward, fusion::up_to({.bytes = most}), partition::into({.elements = cut}), {},
        [](plan&) {}, {},
        [&](const tensor_facts& each) {
          return tensor_class{chosen[index(each.id)], false};
        });
    if (n > 0) {
      expect_classes_apart(forward, made, chosen, most, cut);
    }
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST(Select, HasALaunchForEachClassOfABucket) {
  using strategy = compose<dense, fusion::all, mixed>;
  transport::run_ranks(1, [](transport::in_process& world) {
    arena memory = model_of(0);
    const auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of());
    ASSERT_EQ(engine.planned().chunks.size(), 2u);
    // Of six tensors, 1, 3 and 5 are complete before 0 is.
    EXPECT_EQ(engine.planned().chunks[0].elements, 1u + 0u + 8u);
    EXPECT_EQ(engine.planned().chunks[1].elements, 37u + long_tensor + 513u);
    EXPECT_EQ(engine.planned().chunks[0].priority, 1u);
    EXPECT_EQ(engine.planned().chunks[1].priority, 0u);
  });
}

/// Returns one tensor's elements of an arena's parameters.
std::vector<float> values_of(const std::vector<float>& parameters, std::size_t id) {
  std::size_t begin = 0;
  for (std::size_t later = tensor_sizes().size(); --later > id;) {
    begin += tensor_sizes()[later];
  }
  const auto first = parameters.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(tensor_sizes()[id])};
}

constexpr int steps = 5;

/// The parameters of training with one compressor for all tensors.
struct alone {
  std::vector<float> lossily;
  std::vector<float> exactly;
};
const alone& trained_alone(int workers) {
  static const std::vector<alone> all = [] {
    std::vector<alone> made(6);
    for (int ranks = 1; ranks <= 5; ++ranks) {
      made[static_cast<std::size_t>(ranks)] = {
          train_on_threads<compose<dense, lossy>>(ranks, steps).parameters[0],
          train_on_threads<compose<dense>>(ranks, steps).parameters[0]};
    }
    return made;
  }();
  return all[static_cast<std::size_t>(workers)];
}

/// Elements that are summed in rank order have the same sums, whatever is sent beside them.
void expect_each_as_alone(const std::vector<float>& parameters, int workers, std::size_t nth) {
  const auto& [lossily, exactly] = trained_alone(workers);
  for (std::size_t id = 0; id < tensor_sizes().size(); ++id) {
    const auto& its = id % nth == 0 ? lossily : exactly;
    EXPECT_EQ(values_of(parameters, id), values_of(its, id)) << "tensor " << id;
  }
  EXPECT_NE(values_of(lossily, 2), values_of(exactly, 2)) << "or this shows nothing";
}

template <class Strategy>
void trains_each_as_alone(engine_options<Strategy> set) {
  for (int workers = 1; workers <= 5; ++workers) {
    for (const std::size_t nth : {2u, 3u}) {
      set.compression.rule.nth = nth;
      for (const auto& made : {train_on_threads<Strategy>(workers, steps, set),
                               train_in_simulation<Strategy>(workers, steps, set)}) {
        for (const auto& parameters : made.parameters) {
          expect_each_as_alone(parameters, workers, nth);
        }
      }
    }
  }
}

TEST(Select, TrainsEachAsItsCompressorAlone) {
  trains_each_as_alone<compose<dense, mixed>>({});
  trains_each_as_alone<compose<dense, mixed, fusion::all>>({});
  trains_each_as_alone<compose<dense, around_both>>({});
}
TEST(Select, TrainsInBucketsThatAreCut) {
  trains_each_as_alone<compose<dense, mixed, fusion::up_to, partition::into, schedule::in_order>>(
      {.fusion = {.bytes = 200}, .partition = {.bytes = 7'000}});
}
TEST(Select, TrainsInAWindow) {
  trains_each_as_alone<
      compose<dense, mixed, fusion::up_to, partition::into, schedule::by_priority>>(
      {.fusion = {.bytes = 40'000}, .partition = {.bytes = 5'000}, .schedule = {.credit = 1}});
}
TEST(Select, TrainsInLaunchesGatheredAtRunTime) {
  trains_each_as_alone<
      compose<dense, mixed, fusion::when_ready, partition::into, coordination::negotiated>>(
      {.fusion = {.bytes = 20'000, .cycle = 1e-5}, .partition = {.bytes = 9'000}});
}

/// Servers add payloads as the rank-ordered collective does.
using added = architecture::parameter_server<>;

TEST(Select, TrainsBesideServersThatAdd) {
  trains_each_as_alone<compose<added, mixed>>({});
  trains_each_as_alone<compose<added, mixed, fusion::up_to, partition::into>>(
      {.fusion = {.bytes = 200}, .partition = {.bytes = 7'000}, .architecture = {.servers = 3}});
}
TEST(Select, TrainsInAWindowBesideServersThatAdd) {
  trains_each_as_alone<
      compose<added, mixed, fusion::up_to, partition::into, schedule::by_priority>>(
      {.fusion = {.bytes = 40'000},
       .partition = {.bytes = 5'000},
       .schedule = {.credit = 1},
       .architecture = {.servers = 2}});
}

template <class Architecture>
using fused = compose<Architecture, mixed, fusion::up_to, partition::into>;

template <class Architecture>
engine_options<fused<Architecture>> fused_by(std::size_t bytes, std::size_t nth) {
  engine_options<fused<Architecture>> set;
  set.fusion.bytes = bytes;
  set.partition.bytes = bytes == 100 ? 50'000 : 7'000;
  set.compression.rule.nth = nth;
  set.run.deadline = 20;
  return set;
}

/// Trains some steps, from a checkpoint if `file` holds one, and writes the next checkpoint to it.
template <class Architecture, class Change>
std::vector<float> train_from(std::string& file, transport::in_process& world,
                              const engine_options<fused<Architecture>>& set, int first, int last,
                              Change change) {
  arena memory = model_of(world.rank());
  auto engine = make_engine<fused<Architecture>>(world, memory.tensors(), optimizer_of(), set);
  if (engine.serves()) {
    engine.serve();
    return {};
  }
  if (!file.empty()) {
    std::istringstream in(file);
    load(engine, in);
  }
  for (int step = first; step < last; ++step) {
    change(engine, step);
    take_step(engine, memory, step);
  }
  engine.wait();
  std::ostringstream out;
  save(engine, out);
  file = out.str();
  return {memory.parameters().begin(), memory.parameters().end()};
}

/// Residuals stay with their elements under another fusion, whether it is reached by a re-plan or a
/// checkpoint.
template <class Architecture>
void keeps_residuals() {
  const int servers = servers_in<fused<Architecture>>(fused_by<Architecture>(100, 3));
  for (int workers = 1; workers <= 5; ++workers) {
    transport::run_ranks(workers + servers, [workers](transport::in_process& world) {
      std::string replanned;
      const auto one = train_from<Architecture>(
          replanned, world, fused_by<Architecture>(100, 3), 0, steps, [](auto& engine, int step) {
            if (step == 2) {
              engine.replan(fused_by<Architecture>(40'000, 3));
            }
          });
      std::string resumed;
      const auto unchanged = [](auto&, int) {};
      train_from<Architecture>(resumed, world, fused_by<Architecture>(100, 3), 0, 2, unchanged);
      train_from<Architecture>(resumed, world, fused_by<Architecture>(40'000, 3), 2, steps,
                               unchanged);
      if (world.rank() < workers) {
        expect_each_as_alone(one, workers, 3);
        EXPECT_EQ(replanned, resumed) << "with all that is remembered";
      }
    });
  }
}
TEST(Select, KeepsResidualsUnderAnotherPlan) { keeps_residuals<dense>(); }
TEST(Select, KeepsResidualsBesideServersThatAdd) { keeps_residuals<added>(); }

/// Delayed means stay with their elements, too.
TEST(Select, KeepsLateMeansUnderAnotherPlan) {
  using late = architecture::delayed<dense>;
  for (int workers = 1; workers <= 3; ++workers) {
    transport::run_ranks(workers, [](transport::in_process& world) {
      const auto parameters = [&world](std::size_t bytes) {
        std::string file;
        return train_from<late>(file, world, fused_by<late>(100, 3), 0, steps,
                                [bytes](auto& engine, int step) {
                                  if (step == 2) {
                                    engine.replan(fused_by<late>(bytes, 3));
                                  }
                                });
      };
      EXPECT_EQ(parameters(40'000), parameters(100));
    });
  }
}

/// State is placed by class, so it has no place under a rule that chooses other tensors. The order
/// of all tensors may still be the same: under the second pair of rules all are chosen at first,
/// and then only the first one, which is the last in either order.
TEST(Select, CannotChooseOtherTensorsOnTheWay) {
  struct rules {
    std::size_t first;
    std::size_t second;
  };
  for (const rules nth : {rules{2, 3}, rules{1, tensor_sizes().size()}}) {
    for (const int workers : {1, 2, 4}) {
      const auto replanning = errors(workers, [nth](transport::in_process& world) {
        std::string file;
        train_from<dense>(file, world, fused_by<dense>(100, nth.first), 0, 3,
                          [nth](auto& engine, int step) {
                            if (step == 1) {
                              engine.replan(fused_by<dense>(100, nth.second));
                            }
                          });
      });
      for (const std::string& each : replanning) {
        EXPECT_NE(each.find("which tensors a compressor selects, and whether"), std::string::npos)
            << each;
      }
      const auto resuming = errors(workers, [nth](transport::in_process& world) {
        std::string file;
        const auto unchanged = [](auto&, int) {};
        train_from<dense>(file, world, fused_by<dense>(100, nth.first), 0, 1, unchanged);
        train_from<dense>(file, world, fused_by<dense>(100, nth.second), 1, 2, unchanged);
      });
      for (const std::string& each : resuming) {
        EXPECT_NE(
            each.find("the checkpoint was saved with a compressor that selects other tensors"),
            std::string::npos)
            << each;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::test::selected
