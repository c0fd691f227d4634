// A run that stops after a step and continues in another process ends with the bits of one that
// never stopped, for every synchronous named strategy. All of its ranks end with the same bits,
// too. Both laws are in one file because a unit that instantiates every strategy takes long to
// compile.
#include "tutti/core/checkpoint.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <tuple>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/extent.hpp"
#include "support/training.hpp"
#include "tutti/architecture/momentum_exchange.hpp"
#include "tutti/optimizer/lars.hpp"
#include "tutti/optimizer/one_bit_adam.hpp"
#include "tutti/strategies.hpp"

namespace tutti::test::checkpoints {
namespace {

namespace fs = std::filesystem;

constexpr int workers = 3;
constexpr int steps = 12;

fs::path file_of(const fs::path& directory, int rank) {
  return directory / ("rank" + std::to_string(rank));
}

/// Takes steps [first, last), loads before the first and saves after the last where that is asked
/// for, and returns worker 0's parameters.
template <class Strategy>
std::vector<float> train(int first, int last, const fs::path& from, const fs::path& to) {
  std::vector<float> result;
  engine_options<Strategy> options;
  options.run.deadline = 20;
  transport::run_ranks(workers + servers_in<Strategy>(options), [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine =
        make_engine<Strategy>(world, memory.tensors(), optimizer_for<Strategy>(), options);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    if (!from.empty()) {
      std::ifstream in(file_of(from, world.rank()), std::ios::binary);
      load(engine, in);
    }
    for (int step = first; step < last; ++step) {
      engine.wait();
      backward(memory, engine.worker(), step);
      for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
        engine.ready(id);
      }
    }
    engine.wait();
    if (!to.empty()) {
      std::ofstream out(file_of(to, world.rank()), std::ios::binary);
      save(engine, out);
    }
    if (world.rank() == 0) {
      result.assign(memory.parameters().begin(), memory.parameters().end());
    }
  });
  return result;
}

/// Runs this program in a child process to finish the run that `directory` holds.
int finish_in_another_process(const std::string& strategy, const fs::path& directory) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("TUTTI_TEST_STRATEGY", strategy.c_str(), 1);
    setenv("TUTTI_TEST_DIRECTORY", directory.c_str(), 1);
    execl("/proc/self/exe", "test", "--gtest_filter=Checkpoint.DISABLED_Finish",
          "--gtest_also_run_disabled_tests", static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

template <class Strategy>
void resumes_bitwise(int stop) {
  const fs::path directory =
      fs::temp_directory_path() /
      ("tutti-checkpoint-" + std::to_string(getpid()) + std::string(Strategy::name));
  fs::create_directories(directory);
  train<Strategy>(0, stop, {}, directory);
  std::ofstream(directory / "stop") << stop;
  ASSERT_EQ(finish_in_another_process(std::string(Strategy::name), directory), 0);
  std::vector<float> resumed(total_elements());
  std::ifstream(directory / "result", std::ios::binary)
      .read(reinterpret_cast<char*>(resumed.data()),
            static_cast<std::streamsize>(resumed.size() * sizeof(float)));
  EXPECT_EQ(resumed, train<Strategy>(0, steps, {}, {})) << Strategy::name;
  fs::remove_all(directory);
}

/// Visits the named strategies that this suite checks.
template <class Visit, class... Strategies>
void for_each(std::tuple<Strategies...>*, Visit visit) {
  [&]<std::size_t... Place>(std::index_sequence<Place...>) {
    const auto take = [&]<class Strategy, std::size_t At>() {
      if constexpr (checks_named(At)) {
        visit.template operator()<Strategy>();
      }
    };
    (take.template operator()<Strategies, Place>(), ...);
  }
  (std::index_sequence_for<Strategies...>());
}

TEST(Checkpoint, DISABLED_Finish) {
  const std::string wanted = std::getenv("TUTTI_TEST_STRATEGY");
  const fs::path directory = std::getenv("TUTTI_TEST_DIRECTORY");
  int stop = 0;
  std::ifstream(directory / "stop") >> stop;
  for_each(static_cast<strategies::all*>(nullptr), [&]<class Strategy>() {
    if (wanted == Strategy::name) {
      const auto result = train<Strategy>(stop, steps, directory, {});
      std::ofstream(directory / "result", std::ios::binary)
          .write(reinterpret_cast<const char*>(result.data()),
                 static_cast<std::streamsize>(result.size() * sizeof(float)));
    }
  });
}

/// Also for strategies whose models differ, unless ranks are not synchronised and timing decides
/// who averages with whom. HorovodHierarchical is left out, because even two uninterrupted runs of
/// it differ. Tensors that are ready in one cycle share a buffer, so an element's place in it
/// depends on timing, and the order in which hierarchical all-reduce adds the element depends on
/// that place.
TEST(Checkpoint, AnotherProcessGoesOnBitwise) {
  int stop = 1;
  for_each(static_cast<strategies::all*>(nullptr), [&]<class Strategy>() {
    using architecture = typename strategy_of<Strategy>::architecture;
    if constexpr (!facts::keeps_no_step<architecture> &&
                  !std::is_same_v<Strategy, strategies::HorovodHierarchical>) {
      resumes_bitwise<Strategy>(stop++ % (steps - 1) + 1);
    }
  });
}

TEST(Replicas, AreEqualUnderEverySynchronousStrategy) {
  for_each(static_cast<strategies::all*>(nullptr), []<class Strategy>() {
    using architecture = typename strategy_of<Strategy>::architecture;
    if constexpr (!facts::stale<architecture> && !std::is_same_v<Strategy, strategies::Local>) {
      const auto result = train_on_threads<Strategy>(4, 8);
      for (const auto& each : result.parameters) {
        EXPECT_EQ(each, result.parameters.front()) << Strategy::name;
      }
      // One momentum for each parameter where parameters have owners, otherwise one on each worker.
      const std::size_t copies = optimizer_for<Strategy>().momentum == 0 ? 0
                                 : facts::owns_parameters<architecture>  ? 1
                                                                         : 4;
      EXPECT_EQ(std::accumulate(result.optimizer_bytes.begin(), result.optimizer_bytes.end(), 0U),
                copies * sizeof(float) * total_elements())
          << Strategy::name;
    }
  });
}

/// Returns the error of loading `bytes` into a fresh engine.
template <class Strategy, class Optimizer = optimizer::sgd>
std::string refusal(const std::string& bytes, std::vector<tensor> tensors,
                    const Optimizer& values = optimizer_of()) {
  std::string said;
  transport::run_ranks(1, [&](transport::in_process& world) {
    auto engine = make_engine<Strategy>(world, std::move(tensors), values);
    std::istringstream in(bytes);
    try {
      load(engine, in);
    } catch (const usage_error& refused) {
      said = refused.what();
    }
  });
  return said;
}

TEST(Checkpoint, WhatDoesNotFitIsRefusedInOneLine) {
  arena memory = model_of(0);
  std::string bytes;
  transport::run_ranks(1, [&](transport::in_process& world) {
    auto engine = make_engine<strategies::WFBPUnlimited>(world, memory.tensors(), optimizer_of());
    std::ostringstream out;
    save(engine, out);
    bytes = out.str();
  });
  using strategies::TopK;
  using strategies::WFBPUnlimited;
  EXPECT_EQ(refusal<WFBPUnlimited>(bytes, memory.tensors()), "");
  EXPECT_EQ(refusal<WFBPUnlimited>(bytes.substr(0, bytes.size() / 2), memory.tensors()),
            "the checkpoint is cut short. Fix: use an earlier one");
  // Flips bits of the header, which must not pass for another run's, and of the model.
  const std::size_t head = 1024;
  for (std::size_t at = sizeof(detail::magic); at < bytes.size(); at += at < head ? 5 : 5000) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_EQ(refusal<WFBPUnlimited>(damaged, memory.tensors()),
              "the checkpoint is damaged. Fix: use an earlier one")
        << at << " of " << bytes.size();
  }
  EXPECT_EQ(refusal<WFBPUnlimited>("something else entirely", memory.tensors()),
            "this file is not a checkpoint of this version of tutti. Fix: name a file that its "
            "`save` wrote");
  const auto fewer = std::vector<tensor>(memory.tensors().begin() + 1, memory.tensors().end());
  EXPECT_EQ(refusal<WFBPUnlimited>(bytes, fewer),
            "the checkpoint was saved with another model: 6 tensors instead of 5. Fix: use the one "
            "that it was saved with");
  std::vector<tensor> shorter = memory.tensors();
  shorter[0] = {shorter[0].name, shorter[0].parameter.first(36), shorter[0].gradient.first(36)};
  EXPECT_EQ(refusal<WFBPUnlimited>(bytes, shorter),
            "the checkpoint was saved with another model: tensor0 of 37 elements instead of 36. "
            "Fix: use the one that it was saved with");
  EXPECT_EQ(refusal<TopK>(bytes, memory.tensors()),
            "the checkpoint was saved with another strategy: " +
                std::string(type_name<WFBPUnlimited::strategy>()) + " instead of " +
                std::string(type_name<TopK::strategy>()) +
                ". Fix: use the one that it was saved with");
  // Both optimizers have four values and remember one float an element.
  EXPECT_EQ(refusal<WFBPUnlimited>(bytes, memory.tensors(), optimizer::lars()),
            "the checkpoint was saved with another optimizer: tutti::optimizer::sgd instead of "
            "tutti::optimizer::lars. Fix: use the one that it was saved with");
}

TEST(Checkpoint, KeepsNumbersThatNoDoubleHolds) {
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    const optimizer::one_bit_adam set{.freeze_step = std::numeric_limits<std::uint64_t>::max()};
    auto engine =
        make_engine<compose<architecture::momentum_exchange>>(world, memory.tensors(), set);
    std::stringstream file;
    save(engine, file);
    load(engine, file);
    EXPECT_EQ(engine.values().freeze_step, set.freeze_step) << "never";
  });
}

TEST(Checkpoint, OfAFileThatIsNotThereIsRefused) {
  std::ifstream nowhere("/no/such/file");
  try {
    step_of_checkpoint(nowhere);
    FAIL();
  } catch (const usage_error& refused) {
    EXPECT_STREQ(refused.what(),
                 "the checkpoint cannot be read. Fix: open a file that exists, and read it from "
                 "its beginning");
  }
}

/// Tensor 0 has had its gradient, or one pass of two, and the others nothing.
TEST(Checkpoint, InTheMiddleOfAStepIsRefused) {
  for (const unsigned passes : {1U, 2U}) {
    transport::run_ranks(1, [&](transport::in_process& world) {
      arena memory = model_of(0);
      engine_options<strategies::WFBPUnlimited> set;
      set.run.accumulation = passes;
      auto engine =
          make_engine<strategies::WFBPUnlimited>(world, memory.tensors(), optimizer_of(), set);
      engine.ready(tensor_id(0));
      std::stringstream file;
      EXPECT_THROW(save(engine, file), usage_error);
      EXPECT_THROW(load(engine, file), usage_error);
    });
  }
}

TEST(Checkpoint, OfAnotherNumberOfRanksIsRefused) {
  std::vector<std::string> files(2);
  for (const int ranks : {2, 3}) {
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategies::WFBPUnlimited>(world, memory.tensors(), optimizer_of());
      std::string& mine = files[static_cast<std::size_t>(world.rank() % 2)];
      if (ranks == 2) {
        std::ostringstream out;
        save(engine, out);
        mine = out.str();
        return;
      }
      std::istringstream in(mine);
      try {
        load(engine, in);
        ADD_FAILURE() << "rank " << world.rank() << " has loaded it";
      } catch (const usage_error& refused) {
        EXPECT_STREQ(refused.what(),
                     "the checkpoint was written by 2 ranks and is read by 3. Fix: start as many "
                     "ranks as wrote it");
      }
    });
  }
}

/// The files that `save` wrote on each worker after each of three steps, and the errors of workers
/// that load other files.
template <class Strategy>
struct saved_run {
  static constexpr int ranks = 3;
  using files = std::array<std::string, ranks>;

  saved_run() {
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of());
      for (std::size_t step = 0; step < after.size(); ++step) {
        take_step(engine, memory, static_cast<int>(step));
        std::ostringstream out;
        save(engine, out);
        after[step][static_cast<std::size_t>(world.rank())] = out.str();
      }
    });
  }
  static files refusals(const files& given) {
    files said;
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of());
      std::istringstream in(given[static_cast<std::size_t>(world.rank())]);
      try {
        load(engine, in);
      } catch (const usage_error& refused) {
        said[static_cast<std::size_t>(world.rank())] = refused.what();
      }
    });
    return said;
  }

  std::array<files, 3> after{};  // each of the three steps
};

TEST(Checkpoint, OfAnotherRankIsRefused) {
  const auto written = [](int by, int read) {
    return "the checkpoint was written by rank " + std::to_string(by) + " and is read by rank " +
           std::to_string(read) + ". Fix: give each rank the file it wrote";
  };
  const saved_run<strategies::TopK> run;
  const auto& [first, second, third] = run.after[1];
  EXPECT_EQ(run.refusals({first, second, third}), decltype(run)::files());
  EXPECT_EQ(run.refusals({second, third, first}),
            (decltype(run)::files{written(1, 0), written(2, 1), written(0, 2)}));
}

/// All ranks get the same error, whichever of them is given the file of another step.
TEST(Checkpoint, OfAnotherStepThanTheOtherRanksIsRefused) {
  const saved_run<strategies::TopK> run;
  const auto expect = [&run](std::array<std::size_t, 3> step, const std::string& sentence) {
    const auto said =
        run.refusals({run.after[step[0]][0], run.after[step[1]][1], run.after[step[2]][2]});
    for (const auto& each : said) {
      EXPECT_EQ(each, sentence);
    }
  };
  expect({2, 2, 2}, "");
  expect({0, 0, 1},
         "rank 0's checkpoint is from step 1, but rank 2's is from step 2. Fix: give all ranks "
         "files of one step");
  expect({2, 1, 2},
         "rank 0's checkpoint is from step 3, but rank 1's is from step 2. Fix: give all ranks "
         "files of one step");
  expect({0, 1, 2},
         "rank 0's checkpoint is from step 1, but rank 1's is from step 2. Fix: give all ranks "
         "files of one step");
}

TEST(Checkpoint, SaysOfWhichStepItIs) {
  const saved_run<strategies::TopK> run;
  for (std::size_t step = 0; step < run.after.size(); ++step) {
    std::istringstream in(run.after[step][1]);
    EXPECT_EQ(step_of_checkpoint(in), step + 1);
  }
}

/// Returns the error of worker 0 when it loads, with servers set up by `after`, what it saved with
/// servers set up by `before`. Two sets of servers may own other chunks of equal length, so that
/// only the owners tell them apart.
template <class Strategy, class Options = decltype(engine_options<Strategy>::architecture)>
std::string refusal_elsewhere(const Options& before, const Options& after) {
  std::array<std::string, 2> files;
  std::string said;
  for (const auto& beside : {before, after}) {
    transport::run_ranks(3, [&](transport::in_process& world) {
      arena memory = model_of(world.rank(), {{"a", 100}, {"b", 100}});
      engine_options<Strategy> set;
      set.architecture = beside;
      auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
      if (engine.serves()) {
        engine.serve();
        return;
      }
      std::string& file = files[static_cast<std::size_t>(engine.worker())];
      if (file.empty()) {
        take_step(engine, memory, 0);
        std::ostringstream out;
        save(engine, out);
        file = out.str();
      } else {
        std::istringstream in(file);
        try {
          load(engine, in);
        } catch (const usage_error& refused) {
          said = refused.what();
        }
      }
    });
  }
  return said;
}

TEST(Checkpoint, OfServersThatRememberOtherChunksIsRefused) {
  using architecture::placed_by;
  using strategies::BytePS;
  using strategies::MXNetDistSync;
  const auto refusal = []<class Strategy>(placed_by before, placed_by after) {
    return refusal_elsewhere<Strategy>({.servers = 2, .placed_by = before},
                                       {.servers = 2, .placed_by = after});
  };
  EXPECT_EQ(refusal.operator()<MXNetDistSync>(placed_by::kvstore, placed_by::djb2),
            "the checkpoint's servers hold memory of other chunks. Fix: load it with the options "
            "that it was saved with, then replan");
  EXPECT_EQ(refusal.operator()<MXNetDistSync>(placed_by::kvstore, placed_by::round_robin), "")
      << "the same owners";
  EXPECT_EQ(refusal.operator()<BytePS>(placed_by::kvstore, placed_by::djb2), "")
      << "nothing is remembered";
}

TEST(Checkpoint, OfAnotherNumberOfServersIsRefused) {
  EXPECT_EQ(refusal_elsewhere<strategies::BytePS>({.servers = 1}, {.servers = 2}),
            "the checkpoint holds the memory of 1 servers, but this run has 2. Fix: start as many "
            "servers");
}

}  // namespace
}  // namespace tutti::test::checkpoints
