// A rank that is only slow is left alone; a rank that owes something past the deadline is named.
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <gtest/gtest.h>
#include <ios>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "support/deadlines.hpp"
#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/watch.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

/// Something arrives every third of a deadline, for three deadlines, so no rank is late.
TEST(Waiting, GoesOnWhileSomethingMoves) {
  for (const progress who : both) {
    const auto said = errors(2, [who](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of(),
                                           impatient<compose<>>(0.3, who));
      for (int step = 0; step < 2; ++step) {
        for (std::size_t i = memory.tensors().size(); i-- > 0;) {
          if (world.rank() == 1) {
            sleep_for(0.1);
          }
          engine.wait(tensor_id(i));
          engine.ready(tensor_id(i));
        }
        engine.wait();
      }
    });
    EXPECT_EQ(said, std::vector<std::string>(2));
  }
}

/// Returns both ranks' errors for one chunk that `Collective` adds up.
template <class Collective>
std::vector<std::string> said_of_one_chunk(seconds deadline, progress who) {
  using strategy = compose<architecture::all_reduce<Collective>>;
  return errors(2, [=](transport::in_process& world) {
    arena memory = model_of(world.rank(), {{"weight", 10}});
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(),
                                        impatient<strategy>(deadline, who));
    engine.ready(tensor_id(0));
    engine.wait();
  });
}

/// Adds up a chunk that both ranks have handed in by 250 messages, thirty in a deadline.
struct in_many_messages : collective::ring {
  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold>) const {
    const std::span<const std::byte> out;
    const std::span<std::byte> into;
    for (int message = 0; message < 250; ++message) {
      co_await self.exchange(1 - self.rank(), out, 1 - self.rank(), into);
      sleep_for(0.003);
    }
  }
};
/// Nothing else happens meanwhile, so only the messages can tell a waiting rank to go on.
TEST(Waiting, GoesOnWhileMessagesCome) {
  for (const progress who : both) {
    EXPECT_EQ(said_of_one_chunk<in_many_messages>(0.1, who), std::vector<std::string>(2));
  }
}

/// Rank 1 adds up sixteen passes, so the others wait four deadlines for gradients of which nothing
/// arrives before the last pass. Rank 1 hands in gradients all the time, which shows that it
/// computes.
TEST(Waiting, GoesOnWhileWhoOwesHandsIn) {
  using strategy = compose<architecture::all_reduce<>>;
  for (const progress who : both) {
    const auto said = errors(3, [who](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto options = impatient<strategy>(0.25, who);
      options.run.accumulation = 16;
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), options);
      for (int pass = 0; pass < 16; ++pass) {
        if (world.rank() == 1) {
          sleep_for(0.0625);
        }
        for (std::size_t i = memory.tensors().size(); i-- > 0;) {
          engine.ready(tensor_id(i));
        }
      }
      engine.wait();
    });
    EXPECT_EQ(said, std::vector<std::string>(3));
  }
}

/// A rank that owes a tensor and stands still is named by all, whether or not it answers (a thread
/// of its own would), although it does continue later.
TEST(Waiting, NamesWhoOwesAndStandsStill) {
  using strategy = compose<architecture::all_reduce<>>;
  for (const progress who : both) {
    std::atomic<int> ended{0};
    const auto said = errors(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(),
                                          impatient<strategy>(0.2, who));
      while (world.rank() == 1 && ended < 2) {
        sleep_for(0.001);
      }
      try {
        for (std::size_t i = memory.tensors().size(); i-- > 0;) {
          engine.ready(tensor_id(i));
        }
        engine.wait();
      } catch (...) {
        ++ended;
        throw;
      }
    });
    for (const auto& each : said) {
      EXPECT_EQ(each, who == progress::by_caller ? "rank 1 does not answer"
                                                 : "rank 1 never submitted tensor5");
    }
  }
}

/// Expects every rank to say of worker 1, which begins `act` only once the other has failed, what
/// it owes.
template <class Strategy, class Act>
void names_who_never_calls(const std::string& owed, Act act) {
  std::atomic<bool> ended{false};
  const engine_options<Strategy> set = impatient<Strategy>(0.5, progress::by_thread);
  const auto said = errors(2 + servers_in<Strategy>(set), [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    while (world.rank() == 1 && !ended) {
      sleep_for(0.001);
    }
    try {
      act(engine);
    } catch (...) {
      ended = true;
      throw;
    }
  });
  for (const auto& each : said) {
    EXPECT_EQ(each, "rank 1 " + owed);
  }
}
/// So is a rank that never calls what all workers have to call.
TEST(Waiting, NamesWhoNeverAverages) {
  names_who_never_calls<compose<>>("never called average()",
                                   [](auto& engine) { engine.average(1); });
}
TEST(Waiting, NamesWhoNeverSaves) {
  names_who_never_calls<compose<architecture::parameter_server<>>>(
      "has not called save(), or has not come as far in it", [](auto& engine) {
        std::ostringstream file;
        save(engine, file);
      });
}

/// A worker that goes on without a checkpoint still takes part in the others' next average.
TEST(Waiting, KeepsNobodyWaitingWhoseFileCannotBeWritten) {
  using strategy = compose<architecture::parameter_server<>>;
  const auto said = errors(3, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of());
    if (engine.serves()) {
      engine.serve();
      return;
    }
    std::ostringstream file;
    if (world.rank() == 1) {
      file.setstate(std::ios::failbit);
      EXPECT_THROW(save(engine, file), usage_error);
    } else {
      save(engine, file);
    }
    EXPECT_EQ(engine.average(3 + 2 * world.rank()), 4);
  });
  EXPECT_EQ(said, std::vector<std::string>(3));
}

/// Waits for a message that is never sent.
struct for_ever : collective::ring {
  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    co_await self.receive(1 - self.rank(), data.all());
  }
};
/// No rank owes anything, so none is named.
TEST(Waiting, NamesNobodyWhereAllHaveHandedIn) {
  for (const progress who : both) {
    EXPECT_EQ(said_of_one_chunk<for_ever>(0.3, who),
              std::vector<std::string>(2, "every rank submitted chunk 0 and nothing moves"));
  }
}

TEST(Waiting, NamesNobodyWhereRanksWaitForDifferentThings) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    const auto set = impatient<compose<>>(0.2, progress::by_caller);
    auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of(), set);
    if (world.rank() == 0) {
      engine.average(1);
    } else {
      engine.replan(set);
    }
  });
  EXPECT_EQ(said,
            std::vector<std::string>(2,
                                     "every rank answers but none makes progress: they wait in "
                                     "different calls (rank 0 in average(), rank 1 in replan()). "
                                     "Fix: make the same ones, in one order, on every rank"));
}

/// A server owes nothing and is owed nothing. It survives five deadlines of work and as many of
/// silence, or more where only the server itself looks at the time, between naps.
template <class Strategy>
void a_server_never_expires(progress who) {
  const auto said = errors(3, [who](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(),
                                        impatient<Strategy>(0.1, who));
    if (engine.serves()) {
      engine.serve();
      return;
    }
    const seconds begin = world.now();
    for (const seconds until : {0.5, 0.0}) {
      do {
        for (std::size_t i = memory.tensors().size(); i-- > 0;) {
          engine.ready(tensor_id(i));
        }
        engine.wait();
      } while (engine.average(world.now() - begin) < until);
      sleep_for(who == progress::by_caller ? 4 * until : until);
    }
  });
  EXPECT_EQ(said, std::vector<std::string>(3));
}
TEST(Waiting, AServerNeverExpires) {
  for (const progress who : both) {
    a_server_never_expires<compose<architecture::parameter_server<>>>(who);
    a_server_never_expires<
        compose<architecture::parameter_server<consistency::asynchronous, updated_by::servers>>>(
        who);
  }
}

/// A rank that closes waits for as long as others continue. Here that is a server whose worker
/// pauses, with no thread that answers for the worker for longer than a napping server takes to
/// look at the time.
TEST(Waiting, WhoClosesNeverExpires) {
  using strategy = compose<architecture::parameter_server<>>;
  for (const progress who : both) {
    const auto said = errors(2, [who](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(),
                                          impatient<strategy>(0.1, who));
      for (int step = 0; step < 2 && !engine.serves(); ++step) {
        take_step(engine, memory, step);
        engine.wait();
        sleep_for(who == progress::by_caller ? 2 : 0.4);
      }
    });
    EXPECT_EQ(said, std::vector<std::string>(2));
  }
}

/// Worker 1 waits three deadlines for worker 2, because staleness is bounded, and asks worker 0,
/// which has ended in good order. Worker 0 is not named, whether its thread has ended or does
/// something else, and it delays the end of no rank.
TEST(Waiting, GoesOnWhereWhoIsAskedHasLeft) {
  using strategy =
      compose<architecture::parameter_server<consistency::bounded_staleness, updated_by::servers>>;
  for (const progress who : both) {
    for (const bool thread_stays : {false, true}) {
      std::atomic<int> ended{0};
      const auto said = errors(4, [&](transport::in_process& world) {
        arena memory = model_of(world.rank());
        const auto train = [&](int steps) {
          auto options = impatient<strategy>(0.1, who);
          options.architecture.consistency.staleness = 1;
          auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), options);
          if (engine.serves()) {
            engine.serve();
            return;
          }
          if (world.rank() == 2) {
            sleep_for(0.4);
          }
          for (int step = 0; step < steps; ++step) {
            take_step(engine, memory, step);
          }
          engine.wait();
        };
        train(world.rank() == 0 ? 1 : 3);
        ++ended;
        while (world.rank() == 0 && thread_stays && ended < 4) {
          sleep_for(0.001);
        }
      });
      EXPECT_EQ(said, std::vector<std::string>(4));
    }
  }
}

// ---- questions of ranks that wait

/// An engine with only as much as a question needs.
struct idle_engine : engine_base<transport::simulated> {
  explicit idle_engine(transport::simulated& world)
      : engine_base(std::type_identity<idle_engine>(), world, {}, {}, buffers::none, 0) {}
  bool open_posts() { return false; }
  bool carry_out() { return false; }
  bool has_decided() const { return false; }
  void describe(const chunk_step&, control_message& answer) { answer.tensor = no_tensor; }
  void release_waiters() {}
};

task hear(transport::simulated& world, control_message& question) {
  const auto mail = co_await world.receive_any(channel::control);
  std::memcpy(&question, mail.bytes().data(), sizeof question);
}
task answer(transport::simulated& world, control_message question) {
  question.what = control_message::kind::answer;
  co_await world.send(0, tag{channel::control, 0, 0}, std::as_bytes(std::span(&question, 1)));
}

constexpr chunk_step first_chunk{1, 10};
constexpr chunk_step second_chunk{2, 10};
constexpr chunk_step third_chunk{3, 10};

/// Asks in seconds 0 and 1, before a question is read, and in second 3. Checks its state after each
/// answer.
task asking_rank(transport::simulated& world) {
  idle_engine engine(world);
  watch<transport::simulated> its(world, engine);
  its.start();
  its.ask(first_chunk, 0);
  co_await world.sleep(1);
  its.ask(second_chunk, 0);
  co_await world.sleep(2);
  its.ask(third_chunk, 0);
  co_await world.sleep(2);
  EXPECT_EQ(its.silent(), "rank 1 does not answer");
  co_await world.sleep(2);
  EXPECT_EQ(its.silent(), "");
  EXPECT_TRUE(its.everybody_answered());
  co_await its.stop();
  EXPECT_TRUE(its.at_rest());
}

/// Reads a question two seconds late, and answers it after it has read the next.
task late_rank(transport::simulated& world) {
  control_message first;
  control_message next;
  co_await world.sleep(2);
  co_await hear(world, first);
  EXPECT_EQ(first.about, first_chunk);
  co_await hear(world, next);
  EXPECT_EQ(next.about, third_chunk);
  co_await world.sleep(1);
  co_await answer(world, first);
  co_await world.sleep(2);
  co_await answer(world, next);
}

/// Asks a question that only a server answers. Once all have answered, no rank is named until
/// nothing has moved between two answers.
task asks_beside_who_has_left(transport::simulated& world) {
  idle_engine engine(world);
  watch<transport::simulated> its(world, engine);
  its.start();
  for (const char* const sentence :
       {"", "every other rank submitted chunk 1, rank 1 has ended and nothing moves"}) {
    its.ask(first_chunk, 0);
    co_await world.sleep(1);
    EXPECT_EQ(its.silent(), "");
    EXPECT_TRUE(its.everybody_answered());
    EXPECT_EQ(its.verdict({}), sentence);
  }
  for (const char* const sentence : {"", "", "rank 1 has ended and no other rank makes progress"}) {
    its.ask({no_chunk, 0}, 0);
    co_await world.sleep(1);
    EXPECT_EQ(its.verdict({}), sentence);
  }
  co_await world.sleep(9);
  co_await its.stop();
}
/// Receives the question, which a rank that has ended would not, so that the simulated run ends.
task has_left(transport::simulated& world) {
  co_await world.sleep(9);
  co_await world.receive_any(channel::control);
}
task serves_workers(transport::simulated& world) {
  idle_engine engine(world);
  watch<transport::simulated> its(world, engine);
  its.start();
  its.excuse(1);
  co_await world.sleep(9);
  co_await its.stop();
}

/// Worker 1 has ended and the server has heard of it, so worker 0 does not take worker 1 for dead.
TEST(Waiting, AServerExcusesWhoHasEnded) {
  transport::run_simulated(3, transport::link{1e9, 1e-6}, [](transport::simulated& world) {
    return world.rank() == 0   ? asks_beside_who_has_left(world)
           : world.rank() == 1 ? has_left(world)
                               : serves_workers(world);
  });
}

/// A silent server is named before a worker that may have ended.
TEST(Waiting, ASilentServerComesFirst) {
  transport::run_simulated(3, transport::link{1e9, 1e-6}, [](transport::simulated& world) -> task {
    if (world.rank() == 0) {
      idle_engine engine(world);
      watch<transport::simulated> its(world, engine);
      its.start();
      its.ask(first_chunk, 0);
      co_await world.sleep(1);
      EXPECT_EQ(its.silent(), "rank 2 does not answer");
      co_await world.sleep(2);
      co_await its.stop();
    } else {
      co_await world.sleep(2);
      co_await world.receive_any(channel::control);
    }
  });
}

/// A question that a peer has yet to read stays unchanged, and a late answer does not count for a
/// later question.
TEST(Waiting, ALateAnswerBelongsToItsQuestion) {
  transport::run_simulated(2, transport::link{1e9, 1e-6}, [](transport::simulated& world) {
    return world.rank() == 0 ? asking_rank(world) : late_rank(world);
  });
}

}  // namespace
}  // namespace tutti::test
