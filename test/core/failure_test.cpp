// Whatever goes wrong, every rank ends, and with the same sentence.
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::test {
namespace {

TEST(Failure, ARankThatDeclaresOtherTensorsIsNamedEverywhere) {
  const auto said = errors(4, [](transport::in_process& world) {
    std::vector<arena::declaration> declared{{"first", 8}, {"second", 16}};
    if (world.rank() == 2) {
      declared[1] = {"other", 17};
    }
    arena memory(declared);
    make_engine<compose<>>(world, memory.tensors());
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
    make_engine<compose<>>(world, memory.tensors());
  });
  for (const auto& each : said) {
    EXPECT_EQ(each,
              "tensor 2 is no tensor on rank 0 and third (1 elements) on rank 1. Fix: declare the "
              "same model on every rank");
  }
}

TEST(Failure, OtherOptionsAreNamedToo) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(0);
    using strategy = compose<architecture::parameter_server<>>;
    static_cast<void>(world);
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

/// Runs out of what it needs, on rank 1.
struct breaks_down {
  using role = tutti::role::optimizer;
  static constexpr std::size_t memory_per_element = 0;

  int rank{};

  template <class Self, class Visitor>
  static void describe(Self&, Visitor&&) {}

  template <class Queue>
  void apply(Queue&, std::span<float>, std::span<const float>, const site&) const {
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

template <class Strategy>
void names_who_never_submitted() {
  const auto said = errors(4, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    engine_options<Strategy> options;
    options.run.deadline = 1;
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
    for (std::size_t i = memory.tensors().size(); i-- > 0;) {
      if (world.rank() != 2 || i != 4) {
        engine.ready(tensor_id(i));
      }
    }
    engine.wait();
    engine.average(0);  // rank 2 has nothing outstanding and must still learn of it
  });
  for (const auto& each : said) {
    EXPECT_EQ(each, "rank 2 never submitted tensor4");
  }
}
TEST(Failure, WhoNeverSubmittedIsNamed) {
  names_who_never_submitted<compose<>>();
  names_who_never_submitted<compose<architecture::all_reduce<>>>();
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
    EXPECT_FALSE(each.empty());
  }
}

TEST(Failure, ReadyTwiceIsRefused) {
  const auto said = errors(2, [](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<compose<architecture::all_reduce<>>>(world, memory.tensors());
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
    auto engine = make_engine<compose<architecture::all_reduce<>>>(world, memory.tensors());
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

}  // namespace
}  // namespace tutti::test
