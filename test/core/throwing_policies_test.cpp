// A user's policy throws where nobody calls it directly, and every rank hears its words.
#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/schedule/split_phase.hpp"

namespace tutti::test {
namespace {

/// Whether this thread is rank 1, whose policies throw. They ask when they are made, because the
/// progress thread may call them.
thread_local bool is_rank_1 = false;

void throw_if(bool throws) {
  if (throws) {
    throw std::runtime_error("out of ideas");
  }
}

/// Returns each rank's error where rank 1's policy throws.
template <class Strategy, class Monitor = monitor::none>
std::vector<std::string> errors_of(engine_options<Strategy> set = {}) {
  return errors(3, [&](transport::in_process& world) {
    is_rank_1 = world.rank() == 1;
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer::sgd(), set, Monitor());
    for (std::size_t i = memory.tensors().size(); i-- > 0;) {
      engine.ready(tensor_id(i));
    }
    engine.wait();
    engine.average(0);
  });
}

void expect_the_words(const std::vector<std::string>& said) {
  EXPECT_EQ(said[1], "out of ideas");
  EXPECT_EQ(said[0], "rank 1 failed: out of ideas");
  EXPECT_EQ(said[2], said[0]);
}

struct throws_when_half_done : schedule::split_phase {
  struct second_half : schedule::split_phase::second_half {
    using schedule::split_phase::second_half::second_half;
    void half_done() {
      throw_if(throws);
      schedule::split_phase::second_half::half_done();
    }
    bool throws = is_rank_1;
  };
};

struct throws_when_next : schedule::split_phase {
  struct second_half : schedule::split_phase::second_half {
    using schedule::split_phase::second_half::second_half;
    std::optional<std::uint32_t> next() {
      const auto it = schedule::split_phase::second_half::next();
      throw_if(it && throws);
      return it;
    }
    bool throws = is_rank_1;
  };
};

TEST(ThrowingPolicies, BetweenTheHalvesOfAnExchange) {
  for (const progress by : {progress::by_caller, progress::by_thread}) {
    using half_done = compose<throws_when_half_done, architecture::all_reduce<collective::ring>>;
    expect_the_words(errors_of<half_done>({.run = {.progress = by}}));
    using next = compose<throws_when_next, architecture::all_reduce<collective::ring>>;
    expect_the_words(errors_of<next>({.run = {.progress = by}}));
  }
}

/// Its values are described several times while an engine is made.
struct throws_when_described : optimizer::sgd {
  static inline thread_local int calls_left = 0;

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    if (calls_left-- == 0) {
      throw_if(is_rank_1);
    }
    optimizer::sgd::describe(self, visit);
  }
};

TEST(ThrowingPolicies, WhileAnEngineIsMade) {
  for (const int calls : {0, 1, 2}) {
    const auto said = errors(2, [calls](transport::in_process& world) {
      is_rank_1 = world.rank() == 1;
      throws_when_described::calls_left = calls;
      arena memory = model_of(world.rank());
      make_engine<compose<>>(world, memory.tensors(), throws_when_described());
    });
    EXPECT_EQ(said[1], "out of ideas") << "after " << calls << " calls";
    EXPECT_EQ(said[0], "rank 1 failed: out of ideas") << "after " << calls << " calls";
  }
}

/// Throws on the thread that waits.
template <event When>
struct throws_at {
  using role = role::monitor;
  static constexpr bool observes = true;

  void record(event what, std::uint32_t, seconds) { throw_if(throws && what == When); }

  bool throws = is_rank_1;
};

TEST(ThrowingPolicies, WhileATrainerWaits) {
  engine_options<compose<>> set;
  set.run.progress = progress::by_caller;  // else no wait may be needed
  expect_the_words(errors_of<compose<>, throws_at<event::wait_begins>>(set));
  expect_the_words(errors_of<compose<>, throws_at<event::wait_ends>>(set));
}

struct throws_when_closing : coordination::leader {
  template <class Choice>
  struct state : coordination::leader::state<Choice> {
    using coordination::leader::state<Choice>::state;
    bool expects_words() const {
      throw_if(throws);
      return coordination::leader::state<Choice>::expects_words();
    }
    bool throws = is_rank_1;
  };
};

/// The others may have ended by then, and a destructor cannot throw, so that its words are printed.
TEST(ThrowingPolicies, WhileAnEngineEnds) {
  testing::internal::CaptureStderr();
  errors_of<compose<throws_when_closing>>();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tutti: rank 1 failed: out of ideas\n");
}

/// It is told of the only step when rank 0 has all ranks' counts, mostly after the last wait.
struct throws_when_summed {
  using role = role::monitor;
  static constexpr bool observes = true;

  void record(event, std::uint32_t, seconds) {}
  std::span<double> sums() { return counted; }
  void summed(std::span<const double>) { throw_if(throws); }

  std::array<double, 1> counted{};
  bool throws = is_rank_1;
};

/// The words are thrown or, if nothing is called any more that could throw them, printed.
TEST(ThrowingPolicies, WhileAMonitorHearsOfTheLastStep) {
  for (const auto by : {progress::by_caller, progress::by_thread}) {
    testing::internal::CaptureStderr();
    const auto said = errors(3, [by](transport::in_process& world) {
      is_rank_1 = world.rank() == 1;
      arena memory = model_of(world.rank());
      engine_options<compose<>> set;
      set.run.progress = by;
      auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer::sgd(), set,
                                           throws_when_summed());
      take_step(engine, memory, 0);
      engine.wait();
    });
    const std::string printed = testing::internal::GetCapturedStderr();
    EXPECT_EQ(printed, said[1].empty() ? "tutti: rank 1 failed: out of ideas\n" : "");
    EXPECT_EQ(said[1], printed.empty() ? "out of ideas" : "");
  }
}

}  // namespace
}  // namespace tutti::test
