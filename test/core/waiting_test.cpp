// A rank that only takes its time is left alone; who owes something past the deadline is named.
#include <atomic>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/deadlines.hpp"
#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"

namespace tutti::test {
namespace {

/// Something arrives every third of a deadline, for three deadlines; nobody is late.
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

/// Rank 1 adds up sixteen passes: the others wait four deadlines for gradients of which nothing
/// arrives before the last pass. It hands in, so it computes.
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

/// Who owes and stands still is named by all, whether it answers (a thread of its own makes it) or
/// not, though it does come back.
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

/// An average is promised, too.
TEST(Waiting, NamesWhoNeverAverages) {
  std::atomic<bool> ended{false};
  const auto said = errors(2, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of(),
                                         impatient<compose<>>(0.2, progress::by_thread));
    while (world.rank() == 1 && !ended) {
      sleep_for(0.001);
    }
    try {
      engine.average(1);
    } catch (...) {
      ended = true;
      throw;
    }
  });
  for (const auto& each : said) {
    EXPECT_EQ(each, "rank 1 never called average()");
  }
}

/// A server has promised nothing and is promised nothing: it outlives five deadlines of work, and
/// as many of silence.
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
      sleep_for(until);
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

/// A rank that closes waits for as long as others go on: here a server, while its worker pauses.
TEST(Waiting, WhoClosesNeverExpires) {
  using strategy = compose<architecture::parameter_server<>>;
  for (const progress who : both) {
    const auto said = errors(2, [who](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(),
                                          impatient<strategy>(0.1, who));
      for (int step = 0; step < 2 && !engine.serves(); ++step) {
        for (std::size_t i = memory.tensors().size(); i-- > 0;) {
          engine.ready(tensor_id(i));
        }
        engine.wait();
        sleep_for(0.4);
      }
    });
    EXPECT_EQ(said, std::vector<std::string>(2));
  }
}

}  // namespace
}  // namespace tutti::test
