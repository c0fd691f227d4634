// Whatever goes wrong, every rank ends with the same error. One file, because all tests look at
// every rank by the same few lines.
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/deadlines.hpp"
#include "support/errors.hpp"
#include "support/extent.hpp"
#include "support/no_room_for_threads.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/schedule/at_most.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/transport/any_transport.hpp"
#include "tutti/transport/recording.hpp"

namespace tutti::test {
namespace {

template <class Condition>
void wait_for(Condition holds) {
  while (!holds()) {
    std::this_thread::yield();
  }
}

TEST(Failure, ARankThatDeclaresOtherTensorsIsNamedEverywhere) {
  const auto said = errors(4, [](transport::in_process& world) {
    std::vector<arena::declaration> declared{{"first", 8}, {"second", 16}};
    if (world.rank() == 2) {
      declared[1] = {"other", 17};
    }
    arena memory(declared);
    make_engine<compose<>>(world, memory.tensors(), optimizer_of());
  });
  for (const auto& each : said) {
    EXPECT_EQ(each,
              "tensor 1 is second (16 elements) on rank 0 and other (17 elements) on rank 2. Fix: "
              "declare the same model on every rank");
  }
}

TEST(Failure, OneTensorMoreIsNamedEverywhere) {
  const auto said = errors(3, [](transport::in_process& world) {
    std::vector<arena::declaration> declared{{"first", 8}, {"second", 16}};
    if (world.rank() == 1) {
      declared.push_back({"third", 1});
    }
    arena memory(declared);
    make_engine<compose<>>(world, memory.tensors(), optimizer_of());
  });
  for (const auto& each : said) {
    EXPECT_EQ(each,
              "tensor 2 is no tensor on rank 0 and third (1 elements) on rank 1. Fix: declare the "
              "same model on every rank");
  }
}

TEST(Failure, ServersWithoutAWorkerAreRefused) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(0);
    using strategy = compose<architecture::parameter_server<>>;
    engine_options<strategy> options;
    options.architecture.servers = 2;
    make_engine<strategy>(world, memory.tensors(), optimizer::sgd{}, options);
  });
  for (const auto& each : said) {
    EXPECT_EQ(each,
              "2 servers among 2 ranks leave no worker or no server. Fix: at least 1 of each");
  }
}

TEST(Failure, ARankThatThrowsEndsTheOthers) {
  const auto said = errors(3, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of());
    if (world.rank() == 1) {
      throw std::runtime_error("out of data");
    }
    for (std::size_t i = memory.tensors().size(); i-- > 0;) {
      engine.ready(tensor_id(i));
    }
    engine.wait();
  });
  EXPECT_EQ(said[1], "out of data");
  for (const int rank : {0, 2}) {
    const auto& words = said[static_cast<std::size_t>(rank)];
    EXPECT_NE(words.find("rank 1"), std::string::npos) << words;
  }
}

/// An optimizer that throws on rank 1, as if it had run out of memory.
struct breaks_down {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = true;

  int rank{};

  static std::size_t memory_per_element() { return 0; }

  template <class Self, class Visitor>
  static void describe(Self&, Visitor&&) {}

  template <class Queue>
  void apply(Queue&, std::span<float>, std::span<const float>, const chunk_context&) const {
    if (rank == 1) {
      throw std::runtime_error("out of room");
    }
  }
};

TEST(Failure, AnOptimizerThatThrowsEndsEveryRank) {
  using strategy = compose<architecture::all_reduce<>>;
  const auto said = errors(3, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<strategy>(world, memory.tensors(), breaks_down{world.rank()});
    for (std::size_t i = memory.tensors().size(); i-- > 0;) {
      engine.ready(tensor_id(i));
    }
    engine.wait();
    engine.average(0);
  });
  EXPECT_EQ(said[1], "out of room");
  EXPECT_EQ(said[0], "rank 1 failed: out of room");
  EXPECT_EQ(said[2], said[0]);
}

/// Adds so slowly that a rank which throws meanwhile could be gone, and checks whether it is.
struct slow_addition {
  using role = tutti::role::compression;
  static constexpr bool summable = true;
  static constexpr bool identity = true;

  static inline std::atomic<int> models{0};
  static inline std::atomic<int> begun{0};
  static inline std::atomic<bool> added_to_what_is_gone{false};

  static std::size_t wire_bytes(std::size_t elements) { return elements * sizeof(float); }
  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out) const {
    queue.copy(out.data, gradient.data(), out.size);
  }
  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    kernels::add(queue, sum, in.as<float>());
  }
  template <class Queue>
  void fold(Queue& queue, wire into, const_wire from) const {
    ++begun;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (models == 2) {
      kernels::add(queue, into.as<float>(), from.as<float>());
    } else {
      added_to_what_is_gone = true;
    }
  }
};

enum class thrown { before_others_add, while_they_add };
/// Ranks that share memory add straight into each other's gradients. Rank 1 throws after it has
/// added its part.
void keeps_its_gradients(thrown when) {
  struct alive {
    alive() { ++slow_addition::models; }
    alive(const alive&) = delete;
    alive& operator=(const alive&) = delete;
    ~alive() { --slow_addition::models; }
  };
  std::atomic<bool> rank_0_is_ready{false};
  std::atomic<bool> rank_1_has_added{false};
  slow_addition::begun = 0;
  const auto said = errors(2, [&](transport::in_process& world) {
    const alive mine;
    arena memory(std::vector<arena::declaration>{{"a", 1000}});
    engine_options<compose<slow_addition>> options;
    options.run.progress = progress::by_caller;
    auto engine =
        make_engine<compose<slow_addition>>(world, memory.tensors(), optimizer::none{}, options);
    if (world.rank() == 1) {
      wait_for([&] { return rank_0_is_ready.load(); });
      engine.ready(tensor_id(0));
      rank_1_has_added = true;
      wait_for([when] { return when == thrown::before_others_add || slow_addition::begun == 2; });
      throw std::runtime_error("out of data");
    }
    engine.ready(tensor_id(0));
    rank_0_is_ready = true;
    wait_for([&] { return rank_1_has_added.load(); });
    sleep_for(when == thrown::before_others_add ? 0.02 : 0);
    engine.wait();
  });
  EXPECT_EQ(said[1], "out of data");
  EXPECT_NE(said[0].find("rank 1"), std::string::npos) << said[0];
  EXPECT_FALSE(slow_addition::added_to_what_is_gone);
}

/// Returns these two numbers of chunks as soon as a bucket is ready.
struct astray {
  using role = role::schedule;
  static constexpr bool limits_in_flight = false;
  static constexpr bool static_order = false;
  inline static std::array<std::uint32_t, 2> returned;

  struct state {
    state(const plan&, const no_options&) {}
    void ready(std::uint32_t) { left = returned.size(); }
    void released(std::uint32_t) {}
    std::optional<std::uint32_t> next() {
      return left == 0 ? std::nullopt : std::optional(returned[returned.size() - left--]);
    }
    std::size_t left = 0;
  };
};

/// The second number is of a chunk that is not ready, has been started, or does not exist.
TEST(Failure, AScheduleThatReturnsWhatCannotStartIsNamed) {
  for (const std::uint32_t wrong : {1U, 0U, 9U}) {
    astray::returned = {0, wrong};
    for (const auto& each : errors(2, [](transport::in_process& world) {
           arena memory(std::vector<arena::declaration>{{"first", 8}, {"second", 16}});
           auto engine = make_engine<compose<astray>>(world, memory.tensors(), optimizer_of());
           engine.ready(tensor_id{1});
           engine.wait(tensor_id{1});
         })) {
      EXPECT_NE(each.find(sentence({"a schedule's or coordination's next() returned chunk ", wrong,
                                    ", which is not "
                                    "ready, or has been started already. Fix: "})),
                std::string::npos)
          << each;
    }
  }
}

TEST(Failure, ARankThatThrowsKeepsItsGradientsWhileOthersAddToThem) {
  keeps_its_gradients(thrown::before_others_add);
  keeps_its_gradients(thrown::while_they_add);
}

template <class Strategy>
void names_who_never_submitted(const std::string& owed,
                               const std::vector<arena::declaration>& forward = declarations()) {
  const auto said = errors(4, [&forward](transport::in_process& world) {
    arena memory = model_of(world.rank(), forward);
    engine_options<Strategy> options;
    options.run.deadline = 1;
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
    for (std::size_t i = memory.tensors().size(); i-- > 0;) {
      if (world.rank() != 2 || i != 4) {
        engine.ready(tensor_id(i));
      }
    }
    engine.wait();
    engine.average(0);
  });
  EXPECT_EQ(said, std::vector<std::string>(4, owed));
}
/// Rank 2 waits for nothing and must still learn of it.
TEST(Failure, WhoNeverSubmittedIsNamed) {
  const std::string owed = "rank 2 called average() and never submitted tensor4";
  names_who_never_submitted<compose<>>(owed);
  names_who_never_submitted<compose<architecture::all_reduce<>>>(owed);
}
/// No rank waits for a tensor without elements, but on the rank that did not submit it other
/// tensors are held back behind it.
TEST(Failure, WhoHoldsOthersBackIsNamed) {
  auto forward = declarations();
  forward[4].elements = 0;
  const std::string owed = "rank 2 never submitted tensor4";
  names_who_never_submitted<compose<schedule::by_priority>>(owed, forward);  // in rank 0's order
  names_who_never_submitted<compose<schedule::at_most>>(owed, forward);  // in the order of the plan
}

/// Worker 0 takes a step more than worker 1, whose engine has ended by then.
TEST(Failure, WhoEndsAStepEarlierIsNamed) {
  using strategy = compose<architecture::parameter_server<>, schedule::by_priority>;
  for (const int servers : {1, 2}) {
    const auto said = errors(2 + servers, [servers](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto options = impatient<strategy>(0.2, progress::by_caller);
      options.architecture.servers = servers;
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), options);
      if (engine.serves()) {
        engine.serve();
        return;
      }
      for (int step = 0; step < 3 - world.rank(); ++step) {
        take_step(engine, memory, step);
        engine.wait();
      }
    });
    EXPECT_TRUE(said[0].ends_with(", rank 1 has ended and nothing moves")) << said[0];
    EXPECT_EQ(said[1], "");
  }
}

TEST(Failure, NotANumberInASelectionEndsAllRanks) {
  const auto said = errors(3, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<compression::top_k>>(world, memory.tensors(), optimizer_of());
    backward(memory, world.rank(), 0);
    if (world.rank() == 1) {
      memory.tensors()[2].gradient[5] = std::numeric_limits<float>::quiet_NaN();
    }
    for (std::size_t i = memory.tensors().size(); i-- > 0;) {
      engine.ready(tensor_id(i));
    }
    engine.wait();
    engine.average(0);
  });
  for (const auto& each : said) {
    EXPECT_NE(each.find("element 5 of tensor2's gradient is not a number"), std::string::npos)
        << each;
  }
}

TEST(Failure, NotANumberBeyondTheModelKeepsItsWords) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine =
        make_engine<compose<architecture::all_reduce<>>>(world, memory.tensors(), optimizer_of());
    if (world.rank() == 1) {
      engine.fail(std::make_exception_ptr(no_magnitude(1'000'000'000'000)));
    }
    engine.average(0);
  });
  for (const auto& each : said) {
    EXPECT_NE(each.find("gradient element 1000000000000 is not a number"), std::string::npos)
        << each;
  }
}

TEST(Failure, ReadyTwiceIsRefused) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine =
        make_engine<compose<architecture::all_reduce<>>>(world, memory.tensors(), optimizer_of());
    engine.ready(tensor_id(0));
    engine.ready(tensor_id(0));
  });
  EXPECT_TRUE(said[0].find("tensor0 is ready again before its last gradient arrived") !=
                  std::string::npos ||
              said[1].find("tensor0 is ready again before its last gradient arrived") !=
                  std::string::npos)
      << said[0] << " / " << said[1];
}

TEST(Failure, LeavingWithGradientsOnTheirWayIsSaid) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine =
        make_engine<compose<architecture::all_reduce<>>>(world, memory.tensors(), optimizer_of());
    for (std::size_t i = memory.tensors().size(); i-- > 0 && world.rank() == 0;) {
      engine.ready(tensor_id(i));
    }
    if (world.rank() == 0) {
      engine.wait();
    } else {
      engine.ready(tensor_id(5));
    }
  });
  EXPECT_NE(said[0].find("rank 1 left while its gradients were still on their way"),
            std::string::npos)
      << said[0];
}

// ---- whose words are heard

/// A loop that catches an exception in the middle of a step hands it to the engine, and every rank
/// ends with its message.
template <class Strategy>
void its_own_words(progress who) {
  const auto said = errors(3, [who](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(),
                                        impatient<Strategy>(20, who));
    if (engine.serves()) {
      engine.serve();
      return;
    }
    try {
      for (std::size_t i = memory.tensors().size(); i-- > 0;) {
        if (world.rank() == 1 && i == 2) {
          throw std::runtime_error("out of data");
        }
        engine.ready(tensor_id(i));
      }
      engine.wait();
      engine.average(0);
    } catch (...) {
      engine.fail(std::current_exception());
      throw;
    }
  });
  EXPECT_EQ(said, (std::vector<std::string>{"rank 1 failed: out of data", "out of data",
                                            "rank 1 failed: out of data"}));
}
TEST(Failure, TheWordsGivenToAnEngineReachEveryRank) {
  for (const progress who : both) {
    its_own_words<compose<>>(who);
    its_own_words<compose<architecture::all_reduce<>>>(who);
    its_own_words<compose<schedule::by_priority>>(who);
    its_own_words<compose<architecture::parameter_server<>>>(who);
  }
}

/// Outside of a catch block std::current_exception() is empty.
TEST(Failure, NoExceptionIsSaidToBeNone) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of());
    if (world.rank() == 1) {
      engine.fail(std::current_exception());
    }
    engine.average(0);
  });
  const std::string none =
      "engine.fail was given no exception. Fix: call it in a catch block, with "
      "std::current_exception()";
  EXPECT_EQ(said, (std::vector<std::string>{"rank 1 failed: " + none, none}));
}

/// Any training rank throws at any moment, whether its loop catches or not, while the others are
/// anywhere in their steps.
template <class Strategy>
void ends_at_any_moment(progress who) {
  const unsigned seeds = all_of_a_product ? 24 : 8;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937 random(seed);
    const int throws = static_cast<int>(random() % 2);
    const int when = static_cast<int>(random() % 30);
    const bool catches = random() % 2 == 0;
    const auto said = errors(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(),
                                          impatient<Strategy>(30, who));
      if (engine.serves()) {
        engine.serve();
        return;
      }
      std::mt19937 own(seed * 3 + static_cast<unsigned>(world.rank()));
      try {
        for (int moment = 0; moment < 60; ++moment) {
          if (world.rank() == throws && moment == when) {
            throw std::runtime_error("out of data");
          }
          const std::size_t count = memory.tensors().size();
          const auto id = tensor_id(count - 1 - static_cast<std::size_t>(moment) % count);
          if (own() % 4 == 0) {
            std::this_thread::yield();
          }
          engine.wait(id);
          engine.ready(id);
        }
        engine.wait();
      } catch (...) {
        if (catches) {
          engine.fail(std::current_exception());
        }
        throw;
      }
    });
    const std::string name = "rank " + std::to_string(throws);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string& words = said[static_cast<std::size_t>(rank)];
      if (rank == throws) {
        EXPECT_EQ(words, "out of data") << "seed " << seed;
      } else {
        EXPECT_NE(words.find(name), std::string::npos)
            << "seed " << seed << ", rank " << rank << ": " << words;
      }
    }
  }
}
TEST(Failure, ARankThatThrowsAtAnyMomentEndsTheOthers) {
  for (const progress who : both) {
    ends_at_any_moment<compose<>>(who);
    ends_at_any_moment<compose<architecture::all_reduce<>>>(who);
    ends_at_any_moment<compose<schedule::by_priority>>(who);
    ends_at_any_moment<compose<architecture::parameter_server<>>>(who);
  }
}

/// When a rank throws, a peer that computes still holds memory of it and gives it back when it next
/// calls the engine. The rank waits for that up to the deadline, which is longer than a failure
/// takes to settle.
TEST(Failure, ARankThatThrowsWaitsForPeersThatCompute) {
  using strategy = compose<architecture::all_reduce<collective::ring>>;
  std::atomic<bool> computes{false};
  const auto said = errors(2, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(),
                                        impatient<strategy>(60, progress::by_caller));
    if (world.rank() == 1) {
      computes.wait(false);
    }
    for (std::size_t i = memory.tensors().size(); i-- > 0;) {
      engine.ready(tensor_id(i));
    }
    if (world.rank() == 0) {
      computes = true;
      computes.notify_one();
      sleep_for(settle_time + 0.3);
    } else {
      throw std::runtime_error("out of data");
    }
    engine.wait();
  });
  EXPECT_EQ(said[0], "rank 1 left by an exception while its gradients were still on their way");
  EXPECT_EQ(said[1], "out of data");
}

template <class World>
constexpr bool gives_its_words = requires(World& world) {
  world.ends_by_exception();
};

/// When the other ranks begin the step that rank 1 does not.
enum class go_on { at_once, when_it_has_ended };

/// Rank 1 throws while nothing of its own is under way and the others wait for what it will not
/// hand in. A world that can tell of an exception reports the message; otherwise the engine reports
/// what it knows.
template <class World, class Wrap>
std::vector<std::string> throws_between_steps(go_on others, Wrap wrap) {
  std::atomic<int> ended{0};
  return errors(3, [&](transport::in_process& ours) {
    World world = wrap(ours);
    arena memory = model_of(ours.rank());
    const auto train = [&] {
      auto engine = make_engine<compose<architecture::all_reduce<>>>(
          world, memory.tensors(), optimizer_of(),
          impatient<compose<architecture::all_reduce<>>>(30, progress::by_caller));
      for (int step = 0; step < 2; ++step) {
        if (step == 1 && ours.rank() == 1) {
          throw std::runtime_error("out of data");
        }
        if (step == 1 && others == go_on::when_it_has_ended) {
          wait_for([&] { return ended > 0; });
        }
        for (std::size_t i = memory.tensors().size(); i-- > 0;) {
          engine.ready(tensor_id(i));
        }
        engine.wait();
      }
    };
    try {
      train();
    } catch (...) {
      ++ended;
      if (!gives_its_words<World> && ours.rank() == 1) {
        wait_for([&] { return ended == 3; });  // the engine is gone while its world still lives
      }
      throw;
    }
  });
}
/// A world that cannot be told of an exception.
struct without_words : transport::recording<transport::in_process> {
  using recording::recording;
  bool ends_by_exception() = delete;
};

/// What has been sent to a rank that has ended is given back, too, because the senders wait for it.
TEST(Failure, AThrowBetweenStepsIsHeardAtOnce) {
  for (const go_on others : {go_on::at_once, go_on::when_it_has_ended}) {
    const auto plain = throws_between_steps<transport::in_process&>(
        others, [](transport::in_process & world) -> auto& { return world; });
    EXPECT_EQ(plain, (std::vector<std::string>{"rank 1 failed: out of data", "out of data",
                                               "rank 1 failed: out of data"}));
    using recorded = transport::recording<transport::in_process>;
    const auto kept = throws_between_steps<recorded>(
        others, [](transport::in_process& world) { return recorded(world, 1000); });
    EXPECT_EQ(kept, plain);
    using any = transport::any_transport;
    const auto erased =
        throws_between_steps<any>(others, [](transport::in_process& world) { return any(world); });
    EXPECT_EQ(erased, plain);
    const auto wordless = throws_between_steps<without_words>(
        others, [](transport::in_process& world) { return without_words(world, 1000); });
    EXPECT_EQ(wordless, (std::vector<std::string>{"rank 1 left by an exception", "out of data",
                                                  "rank 1 left by an exception"}));
  }
}

/// The engine has begun and listens when its thread cannot be started. What has been sent to it is
/// given back.
TEST(Failure, AProgressThreadThatCannotBeStartedEndsAllRanks) {
  std::atomic<int> ended{0};
  const auto said = errors(2, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    const progress who = world.rank() == 0 ? progress::by_thread : progress::by_caller;
    const auto begin = [&] {
      return make_engine<compose<>>(world, memory.tensors(), optimizer_of(),
                                    impatient<compose<>>(2, who));
    };
    try {
      if (world.rank() == 0) {
        const no_room_for_threads here;
        begin();
      } else {
        auto engine = begin();
        wait_for([&] { return ended == 1; });
        engine.average(0);
      }
    } catch (...) {
      ++ended;
      wait_for([&] { return ended == 2; });
      throw;
    }
  });
  const std::string why =
      "the engine could not start a thread: Resource temporarily unavailable. Fix: set "
      "run.progress = progress::by_caller, or allow a process more threads (ulimit -u, ulimit -s)";
  EXPECT_EQ(said, (std::vector<std::string>{why, "rank 0 failed: " + why}));
}

/// A monitor whose sums are empty in every step.
struct idle_sums {
  using role = tutti::role::monitor;
  static constexpr bool observes = true;
  void record(event, std::uint32_t, seconds) {}
  std::span<double> sums() { return counted; }
  void summed(std::span<const double>) {}
  std::array<double, 1> counted{};
};
static_assert(monitor_policy<idle_sums>);

/// The coroutine that adds up a monitor's sums waits for the end of a next step, which never comes.
/// No rank may wait for that coroutine.
TEST(Failure, SumsThatNoStepEndsForHoldUpNobody) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine =
        make_engine<compose<>>(world, memory.tensors(), optimizer_of(),
                               impatient<compose<>>(0.2, progress::by_caller), idle_sums());
    take_step(engine, memory, 0);
    engine.wait();
    if (world.rank() == 1) {
      throw std::runtime_error("out of data");
    }
    take_step(engine, memory, 1);
    engine.wait();
  });
  EXPECT_EQ(said, (std::vector<std::string>{"rank 1 failed: out of data", "out of data"}));
}

/// The failure is also reported where no coroutine awaits anything.
template <class World, class... More>
void says_that_it_has_failed(More... more) {
  transport::run_ranks(1, [&](transport::in_process& world) {
    World around(world, more...);
    EXPECT_FALSE(around.failure());
    around.abort("out of data");
    around.poll();
    ASSERT_TRUE(around.failure());
    EXPECT_EQ(what(around.failure()), "out of data");
  });
}
TEST(Failure, AWorldAroundAnotherSaysThatItHasFailed) {
  says_that_it_has_failed<transport::recording<transport::in_process>>(std::size_t{10});
  says_that_it_has_failed<transport::any_transport>();
}

/// The other ranks have thrown already, but only because of rank 1.
TEST(Failure, RunRanksThrowsWhatBeganIt) {
  std::atomic<int> ended{0};
  const auto run = [&] {
    transport::run_ranks(3, [&](transport::in_process& world) {
      if (world.rank() == 1) {
        world.abort("rank 1 is about to fail");
        while (ended < 2) {
          std::this_thread::yield();
        }
        sleep_for(0.01);
        throw std::runtime_error("out of data");
      }
      struct tell {
        std::atomic<int>& ended;
        ~tell() { ++ended; }
      } at_the_end{ended};
      arena memory = model_of(world.rank());
      make_engine<compose<>>(world, memory.tensors(), optimizer_of());
    });
  };
  try {
    run();
    FAIL() << "nothing was thrown";
  } catch (const std::exception& failed) {
    EXPECT_STREQ(failed.what(), "out of data");
  }
}

/// Runs two workers and a server, and worker 1 throws.
task train_or_serve(transport::simulated& world, std::string& said) {
  try {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<architecture::parameter_server<>>>(world, memory.tensors(),
                                                                         optimizer_of());
    co_await engine.started();
    if (engine.serves()) {
      co_await engine.served();
      co_return;
    }
    if (world.rank() == 1) {
      co_await world.sleep(1);  // while the server serves
      throw std::runtime_error("out of data");
    }
    double mine = 0;
    co_await engine.averaged(mine);
  } catch (const std::exception& failed) {
    said = failed.what();
    throw;
  }
}
TEST(Failure, AServerThatIsAwaitedFailsWithItsWorkers) {
  std::vector<std::string> said(3);
  EXPECT_THROW(transport::run_simulated(3, transport::link{1.25e9, 50e-6},
                                        [&](transport::simulated& world) {
                                          return train_or_serve(
                                              world, said[static_cast<std::size_t>(world.rank())]);
                                        }),
               std::runtime_error);
  EXPECT_EQ(said, (std::vector<std::string>{"rank 1 failed: out of data", "out of data",
                                            "rank 1 failed: out of data"}));
}

/// Throws on one rank when it allocates its memory.
struct finds_no_room : breaks_down {
  int unlucky{};
  void (*says)(const char*){};

  std::size_t memory_per_element() const {
    if (rank == unlucky) {
      says("out of room");
    }
    return 0;
  }
};

template <class Error>
[[noreturn]] void throws(const char* words) {
  throw Error(words);
}

/// All ranks hear of it, even if they have sent their plans to that rank by then.
void is_heard_at_once(void (*says)(const char*)) {
  for (int unlucky = 0; unlucky < 3; ++unlucky) {
    std::atomic<int> ended{0};
    const auto said = errors(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      try {
        make_engine<compose<>>(world, memory.tensors(),
                               finds_no_room{{world.rank()}, unlucky, says},
                               impatient<compose<>>(2, progress::by_caller));
      } catch (...) {
        ++ended;
        if (world.rank() == unlucky) {
          wait_for([&] { return ended == 3; });  // before the thread that runs this rank has heard
        }
        throw;
      }
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(said[static_cast<std::size_t>(rank)],
                rank == unlucky ? "out of room"
                                : "rank " + std::to_string(unlucky) + " failed: out of room");
    }
  }
}
TEST(Failure, ARankThatCannotStartIsHeardAtOnce) {
  is_heard_at_once(throws<std::runtime_error>);
  is_heard_at_once(throws<usage_error>);
}

/// A device that refuses every call from some moment on, as CUDA does after an illegal address.
struct breakable : host_loops<breakable> {
  struct event {
    const breakable* of{};
  };

  void look() const {
    if (broken) {
      throw std::runtime_error("an illegal memory access was encountered");
    }
  }
  event record() {
    look();
    return {this};
  }
  void wait(event) { look(); }
  static bool passed(event when) {
    if (when.of != nullptr) {
      when.of->look();
    }
    return true;
  }
  void synchronize() { look(); }
  template <class Work>
  void run(Work work) {
    look();
    work();
  }

  std::atomic<bool> broken{false};
};

/// Rank 1's device breaks when so many tensors have been handed in. It breaks in the trainer's own
/// calls or, after the last tensor, in the thread that drives the loop. A window of credit makes
/// the loop look at events, too.
void a_device_breaks(progress who, std::size_t handed_in) {
  using breakable_ranks = transport::basic_in_process<breakable, transport::by_mailbox>;
  using strategy = compose<architecture::all_reduce<>, schedule::by_priority>;
  std::atomic<bool> breaks{false};
  const auto said = errors<threads<breakable_ranks>>(2, [&](breakable_ranks& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(),
                                        impatient<strategy>(20, who));
    const std::size_t tensors = memory.tensors().size();
    for (std::size_t done = 0; done < tensors; ++done) {
      if (done == handed_in && world.rank() == 1) {
        breaks = world.queue().broken = true;
      }
      while (done == tensors - 1 && world.rank() == 0 && !breaks) {
        std::this_thread::yield();
      }
      engine.ready(tensor_id(tensors - 1 - done));
    }
    if (handed_in == tensors && world.rank() == 1) {
      breaks = world.queue().broken = true;
    }
    engine.wait();
    engine.average(0);
  });
  EXPECT_EQ(said[1], "an illegal memory access was encountered");
  EXPECT_NE(said[0].find("rank 1"), std::string::npos) << said[0];
}
TEST(Failure, ADeviceThatBreaksEndsEveryRank) {
  for (const progress who : both) {
    a_device_breaks(who, tensor_sizes().size() / 2);
    a_device_breaks(who, tensor_sizes().size());
  }
}

}  // namespace
}  // namespace tutti::test
