// The engine where messages have no tags and move in the order of a stream, over a library of host
// threads that buffers nothing. What would hang on a device hangs here, and tests see that it ends.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/device_training.hpp"
#include "support/errors.hpp"
#include "support/failing_queue.hpp"
#include "support/training.hpp"
#include "support/unbuffered_library.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/native.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"
#include "tutti/strategies/bsp.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/transport/recording.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

/// Takes steps whose gradients become ready in another order on each rank.
template <class Engine>
void take_shuffled_steps(Engine& engine, scattered_model<host_stream>& model, host_stream& compute,
                         int steps) {
  const std::size_t tensors = std::size(device_sizes);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t id = 0; id < tensors; ++id) {
      engine.wait(tensor_id(id), compute);
    }
    for (const tensor_id id : shuffled(tensors, engine.worker(), step)) {
      model.backward(index(id), engine.worker(), step);
      engine.ready(id, compute);
    }
  }
  engine.wait();
  compute.synchronize();
}

/// Returns each worker's parameters after all steps.
template <class Strategy>
std::vector<std::vector<float>> train_streamed(int ranks, engine_options<Strategy> options = {}) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
  run_streamed(ranks, [&](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    auto engine = make_engine<Strategy>(world, model.tensors(), device_optimizer(), options);
    take_shuffled_steps(engine, model, compute, device_steps);
    results[static_cast<std::size_t>(world.rank())] = model.parameters();
  });
  return results;
}

/// Expects the result of threads. Gradients have few digits, so that every sum is exact in any
/// order.
template <class Strategy>
void agrees(engine_options<Strategy> options = {}) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    const auto expected = train_scattered<Strategy, transport::in_process>(ranks, options);
    ASSERT_FALSE(expected.empty());
    for (const auto& each : train_streamed<Strategy>(ranks, options)) {
      EXPECT_EQ(each, expected) << ranks << " ranks";
    }
  }
}

template <class Collective>
using sums = compose<architecture::all_reduce<Collective>>;

}  // namespace

TEST(StreamOrderedStrategy, CanonicalInBFloat16) {
  agrees<compose<architecture::all_reduce<collective::canonical>, compression::bf16>>();
}
namespace {

/// Records which chunks have started, in order.
struct starts {
  using role = tutti::role::monitor;
  static constexpr bool observes = true;

  std::vector<std::uint32_t> chunks{};

  void record(event what, std::uint32_t which, seconds) {
    if (what == event::started) {
      chunks.push_back(which);
    }
  }
};

}  // namespace

/// A chunk that is enqueued has not been sent. A chunk that is ready later and needed first
/// overtakes those that wait for credit.
TEST(StreamOrderedStrategy, CreditIsHeldUntilTheStreamHasComeSoFar) {
  using strategy = compose<architecture::all_reduce<collective::ring>, schedule::by_priority>;
  engine_options<strategy> options;
  options.schedule.credit = 1;  // so that one chunk is sent at a time
  options.run.progress = progress::by_caller;
  std::atomic<bool> all_ready{false};
  run_streamed(2, [&](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    auto engine =
        make_engine<strategy>(world, model.tensors(), device_optimizer(), options, starts{});
    while (world.rank() == 1 && !all_ready) {
      std::this_thread::yield();
    }
    for (std::size_t id = std::size(device_sizes); id-- > 0;) {
      model.backward(id, world.rank(), 0);
      engine.ready(tensor_id(id), compute);
    }
    all_ready = true;
    engine.wait();
    EXPECT_EQ(engine.observed().chunks, (std::vector<std::uint32_t>{0, 4, 3, 2, 1}));
  });
}

/// Hosts wait for no peer, so rank 0 may already have decided steps that a slow rank has yet to
/// begin.
TEST(StreamOrderedStrategy, ALeaderMayRunAhead) {
  using strategy = sums<collective::ring>;
  constexpr int ranks = 3;
  std::vector<std::vector<float>> parameters(ranks);
  std::vector<std::uint64_t> agendas(ranks);
  run_streamed(ranks, [&](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    auto engine = make_engine<strategy>(world, model.tensors(), device_optimizer());
    take_shuffled_steps(engine, model, compute, 1);
    for (int step = 0; step < 40; ++step) {  // takes the last step's mean as gradient again
      if (world.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
      for (const tensor_id id : shuffled(std::size(device_sizes), world.rank(), step)) {
        engine.wait(id, compute);
        engine.ready(id, compute);
      }
    }
    engine.wait();
    const auto rank = static_cast<std::size_t>(world.rank());
    parameters[rank] = model.parameters();
    agendas[rank] = engine.agenda();
  });
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    EXPECT_EQ(parameters[rank], parameters[0]);
    EXPECT_EQ(agendas[rank], agendas[0]);
  }
  EXPECT_FALSE(std::ranges::any_of(parameters[0], [](float x) { return std::isnan(x); }));
}

namespace {

/// In the first of two passes every tensor is absent but the one that the backward pass begins
/// with, and in the second pass only that one. The engine's and the model's stream have other work
/// before. Returns how many means are not a half.
int wrong_means_of_two_passes(std::chrono::milliseconds engines_work,
                              std::chrono::milliseconds models_work) {
  using strategy = sums<collective::ring>;
  const engine_options<strategy> twice{.run = {.accumulation = 2}};
  std::atomic<int> wrong{0};
  run_streamed(2, [&](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    auto engine = make_engine<strategy>(world, model.tensors(), optimizer::none{}, twice);
    constexpr std::size_t first = std::size(device_sizes) - 1;
    const auto write = [&](std::size_t id) {
      compute.run([its = model.tensors()[id].gradient, adds = id != first] {
        std::ranges::for_each(its, [=](float& each) { each = adds ? each + 1 : 1; });
      });
      engine.ready(tensor_id(id), compute);
    };
    world.queue().run([engines_work] { std::this_thread::sleep_for(engines_work); });
    compute.run([models_work] { std::this_thread::sleep_for(models_work); });
    for (std::size_t id = first + 1; id-- > 0;) {
      id == first ? write(id) : engine.absent(tensor_id(id), compute);
    }
    for (std::size_t id = first + 1; id-- > 0;) {
      id == first ? engine.absent(tensor_id(id)) : write(id);
    }
    engine.wait();
    for (const tensor& each : model.tensors()) {
      wrong += std::ranges::count(each.gradient, 0.5f) != std::ssize(each.gradient);
    }
  });
  return wrong;
}

}  // namespace

/// What the model's stream writes in the other pass is neither sent before it is there nor wiped
/// out by the zeros.
TEST(StreamOrderedStrategy, AbsentInOnePassKeepsWhatAStreamWritesInTheOther) {
  using std::chrono::milliseconds;
  EXPECT_EQ(wrong_means_of_two_passes(milliseconds(0), milliseconds(20)), 0);
  EXPECT_EQ(wrong_means_of_two_passes(milliseconds(20), milliseconds(0)), 0);
}

/// For floats, a replicated architecture uses the library's own sum.
TEST(StreamOrderedStrategy, ReplicatedIsTheLibrarysSum) {
  using dense =
      architecture::resolved<architecture::replicated<>, compression::none, streamed>::type;
  using halves =
      architecture::resolved<architecture::replicated<>, compression::bf16, streamed>::type;
  static_assert(std::is_same_v<dense, architecture::all_reduce<collective::native>>);
  static_assert(std::is_same_v<halves, architecture::all_reduce<collective::ring>>);
}

namespace {

template <class Strategy>
constexpr bool led =
    engine_types<Strategy, streamed, optimizer::sgd, monitor::none>::needs_one_order;

}  // namespace

/// Rank 0 leads only where ranks might start chunks in different orders.
TEST(StreamOrderedStrategy, RankZeroLeadsWhereOrdersMightDiffer) {
  static_assert(led<compose<schedule::as_ready>>);
  static_assert(led<compose<schedule::by_priority>>);
  static_assert(!led<compose<schedule::in_order>>);
  static_assert(!led<strategies::BSP>);
  using decides = engine_types<compose<architecture::all_reduce<>>, transport::in_process,
                               optimizer::sgd, monitor::none>;
  static_assert(!decides::needs_one_order);
}

/// Says that all ranks start chunks in one order, and keeps none.
struct unled : coordination::local {
  static constexpr bool one_order = true;
};
/// Without a leader two ranks start chunks in two orders, and messages match that do not belong
/// together. The library reports that, and the ranks end before any deadline.
TEST(StreamOrderedStrategy, WithoutALeaderTheWrongMessagesMatch) {
  using strategy = compose<architecture::all_reduce<collective::ring>, unled>;
  const auto said = errors<streams>(2, [](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    engine_options<strategy> options;
    auto engine = make_engine<strategy>(world, model.tensors(), device_optimizer(), options);
    const std::size_t last = std::size(device_sizes) - 1;
    for (std::size_t i = 0; i <= last; ++i) {
      const std::size_t id = world.rank() == 0 ? i : last - i;
      model.backward(id, world.rank(), 0);
      engine.ready(tensor_id(id), compute);
    }
    engine.wait();
  });
  for (const auto& each : said) {
    EXPECT_NE(each.find("bytes where rank"), std::string::npos) << each;
    EXPECT_EQ(each.find("never submitted"), std::string::npos) << each;
  }
}

TEST(StreamOrderedStrategy, WhoNeverSubmittedIsNamed) {
  using strategy = sums<collective::ring>;
  const auto said = errors<streams>(4, [](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    engine_options<strategy> options;
    options.run.deadline = 1;
    auto engine = make_engine<strategy>(world, model.tensors(), device_optimizer(), options);
    for (std::size_t id = std::size(device_sizes); id-- > 0;) {
      model.backward(id, world.rank(), 0);
      if (world.rank() != 2 || id != 2) {
        engine.ready(tensor_id(id), compute);
      }
    }
    engine.wait();
    engine.average(0);  // rank 2 waits for nothing and must still learn of it
  });
  for (const auto& each : said) {
    EXPECT_EQ(each, "rank 2 never submitted t2");
  }
}

/// A rank that neither answers nor leaves, as a process that was stopped.
TEST(StreamOrderedStrategy, ALostPeerIsNamedWithinTheDeadline) {
  using strategy = strategies::Horovod;
  std::atomic<int> ended{0};
  std::vector<double> seconds_waited(3);
  const auto said = errors<streams>(3, [&](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    engine_options<strategy> options;
    options.run.deadline = 0.4;
    options.run.progress = progress::by_caller;
    auto engine = make_engine<strategy>(world, model.tensors(), device_optimizer(), options);
    take_shuffled_steps(engine, model, compute, 1);
    if (world.rank() == 1) {
      while (ended < 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      engine.wait();
      engine.average(0);
      return;
    }
    for (std::size_t id = std::size(device_sizes); id-- > 0;) {
      engine.wait(tensor_id(id), compute);
      model.backward(id, world.rank(), 1);
      engine.ready(tensor_id(id), compute);
    }
    const seconds begin = world.now();
    try {
      engine.wait();
    } catch (...) {
      seconds_waited[static_cast<std::size_t>(world.rank())] = world.now() - begin;
      ++ended;
      throw;
    }
    ++ended;
  });
  for (const auto& each : said) {
    EXPECT_EQ(each, "rank 1 does not answer");
  }
  EXPECT_LT(*std::ranges::max_element(seconds_waited), 20);
}

TEST(StreamOrderedStrategy, ARankThatThrowsEndsTheOthers) {
  using strategy = sums<collective::ring>;
  const auto said = errors<streams>(3, [](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    auto engine = make_engine<strategy>(world, model.tensors(), device_optimizer());
    take_shuffled_steps(engine, model, compute, 2);
    if (world.rank() == 1) {
      throw std::runtime_error("out of data");
    }
    take_shuffled_steps(engine, model, compute, 1);
  });
  EXPECT_EQ(said[1], "out of data");
  for (const int rank : {0, 2}) {
    const auto& words = said[static_cast<std::size_t>(rank)];
    EXPECT_NE(words.find("rank 1"), std::string::npos) << words;
  }
}

/// What is sent to a rank that has ended is given back, although its world still lives.
TEST(StreamOrderedStrategy, ARankThatHasEndedHoldsUpNobody) {
  std::atomic<int> ended{0};
  const auto said = errors<streams>(2, [&](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    engine_options<strategies::Horovod> options;
    options.run.progress = progress::by_caller;
    options.run.deadline = 2;
    try {
      auto engine =
          make_engine<strategies::Horovod>(world, model.tensors(), device_optimizer(), options);
      if (world.rank() == 0) {
        throw std::runtime_error("out of data");
      }
      while (ended == 0) {
        std::this_thread::yield();
      }
      engine.average(0);
    } catch (...) {
      ++ended;
      while (ended < 2) {
        std::this_thread::yield();
      }
      throw;
    }
  });
  EXPECT_EQ(said, (std::vector<std::string>{"out of data", "rank 0 left by an exception"}));
}

/// Rank 1's device is lost in the middle of a step, and then its loop throws. The engine's
/// destructor must not throw again.
TEST(StreamOrderedStrategy, ALostDeviceLeavesTheEnginesEndInPeace) {
  using device = failing<host_stream>;
  unbuffered_job shared(2);
  const auto said = errors(2, [&](transport::in_process& carrier) {
    transport::stream_ordered<unbuffered_library_on<device>, transport::in_process> world(carrier,
                                                                                          shared);
    device compute;
    scattered_model<device> model(compute);
    auto engine = make_engine<compose<architecture::all_reduce<>>>(world, model.tensors(),
                                                                   device_optimizer());
    for (std::size_t id = 0; id < std::size(device_sizes); ++id) {
      if (world.rank() == 1 && id == 2) {
        world.queue().fail();
        throw std::runtime_error("out of data");
      }
      model.backward(id, world.rank(), 0);
      engine.ready(tensor_id(id), compute);
    }
    engine.wait();
    compute.synchronize();
  });
  EXPECT_EQ(said[1], "out of data");
  EXPECT_NE(said[0].find("rank 1"), std::string::npos) << said[0];
}

/// The library's sum accepts different lengths on its ranks, so plans are compared before.
TEST(StreamOrderedStrategy, OtherTensorsAreNamedBeforeAnythingMoves) {
  const auto said = errors<streams>(3, [](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    auto tensors = model.tensors();
    if (world.rank() == 2) {
      tensors.pop_back();
    }
    make_engine<strategies::Horovod>(world, tensors, device_optimizer());
  });
  for (const auto& each : said) {
    EXPECT_NE(each.find("no tensor on rank 2"), std::string::npos) << each;
  }
}

TEST(StreamOrderedStrategy, WhatIsRecordedIsInTheOrderOfAStreamToo) {
  using strategy = sums<collective::ring>;
  const auto expected = train_streamed<strategy>(3);
  run_streamed(3, [&](streamed& inner) {
    transport::recording<streamed> world(inner, 10'000);
    host_stream compute;
    scattered_model<host_stream> model(compute);
    auto engine = make_engine<strategy>(world, model.tensors(), device_optimizer());
    take_shuffled_steps(engine, model, compute, device_steps);
    EXPECT_EQ(model.parameters(), expected[static_cast<std::size_t>(world.rank())]);
    EXPECT_FALSE(world.log().empty());
    EXPECT_EQ(world.missed(), 0U);
  });
}

TEST(StreamOrderedStrategy, ScalarsAreAveragedOnTheHost) {
  run_streamed(4, [](streamed& world) {
    host_stream compute;
    scattered_model<host_stream> model(compute);
    auto engine = make_engine<strategies::Horovod>(world, model.tensors(), device_optimizer());
    EXPECT_EQ(engine.average(world.rank() + 1.0), 2.5);
  });
}

}  // namespace tutti::test
