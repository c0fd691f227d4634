// The apps as a user runs them: what they print, what they write, and how they refuse. One file,
// because all tests start programs in one folder.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

// Sanitized builds have no apps.
#ifdef TUTTI_APPS_DIRECTORY

#include "apps/running.hpp"
#include "tutti/strategies.hpp"

namespace tutti::test {
namespace {

TEST_F(Apps, ListStrategiesAndModels) {
  const auto strategies = train("--list-strategies");
  EXPECT_EQ(strategies.status, 0);
  EXPECT_EQ(listed(strategies.out), std::tuple_size_v<tutti::strategies::all> + 1 + 6)
      << "and OneBitAdam, whose optimizer is its own, and six variants that send something else";
  EXPECT_NE(strategies.out.find("\nMXNetDistAsync\n"), std::string::npos);
  EXPECT_NE(strategies.out.find(R"(
MGWFBP
  composition  fusion::merge_gradients, schedule::at_most
  after        Shi, Chu and Li, "MG-WFBP", INFOCOM 2019
  defaults     fusion.rule=greedy, fusion.startup=0.0001, fusion.seconds_per_byte=1e-09,
               fusion.ring=0, fusion.seconds_per_element=5e-09, schedule.exchanges=1
  deviations   The original's program first times the backward pass and messages; in tutti the
               job's profile or options give these times.
)"),
            std::string::npos)
      << strategies.out;
  EXPECT_EQ(train("--list-models").out, "mlp\ncnn\nresnet20\ninception-bn-28-small\nresnet50\n");
}

TEST_F(Apps, HelpNamesTheFlagsOfTheStrategysPolicies) {
  const auto said = train("--help --strategy BytePS");
  EXPECT_EQ(said.status, 0);
  EXPECT_NE(said.out.find("--batch-size"), std::string::npos);
  EXPECT_NE(said.out.find("--schedule.rule"), std::string::npos);
  EXPECT_EQ(said.out.find("--compression.density"), std::string::npos);
  const auto ranges = train("--help --all-reduce-spec pscpu:32k:xring");
  EXPECT_NE(ranges.out.find("--architecture.up_to2"), std::string::npos);
  EXPECT_EQ(ranges.out.find("--architecture.up_to3"), std::string::npos);
  EXPECT_NE(train("--help --kvstore dist_async").out.find("flags of MXNetDistAsync:"),
            std::string::npos);
}

TEST_F(Apps, UnknownNamesSuggestTheNearest) {
  train_refuses("--strategy Horovot", "no strategy is named 'Horovot'. Did you mean Horovod?");
  train_refuses("--strategy ddp", "no strategy is named 'ddp'. Did you mean DDP?");
  train_refuses("--model cnm", "no model is named 'cnm'. Did you mean cnn?");
  train_refuses("--data fashon-mnist",
                "no data set is named 'fashon-mnist'. Did you mean "
                "fashion-mnist?");
  train_refuses("--stratgey BSP", "there is no flag --stratgey. Did you mean --strategy?");
  train_refuses(
      "--transport mpj",
      "--transport mpj is not valid. Did you mean mpi? Fix: one of automatic, in_process, mpi");
  train_refuses("--strategy TopK --compression.densty 1",
                "this strategy has no --compression.densty. Did you mean --compression.density?");
  train_refuses("--strategy BytePS --schedule.rule fit",
                "--schedule.rule fit is not valid. Did you mean fits?");
  train_refuses("BSP", "there is no flag BSP. Did you mean ");
  train_refuses("--kvstore dust_sync",
                "there is no kvstore type 'dust_sync'. Fix: use local, device");
  train_refuses("--kvstore dist_sync --strategy BSP",
                "--strategy BSP and --kvstore dist_sync each name a strategy. Fix: leave one out");
  train_refuses(
      "--all-reduce-spec pscpu:32k:ring",
      "all_reduce_spec 'pscpu:32k:ring': 'ring' is not an algorithm. Fix: nccl, nccl/xring");
  train_refuses(
      "--all-reduce-spec xring --all-reduce-table a.json",
      "--all-reduce-spec and --all-reduce-table set the same options. Fix: leave one out");
  train_refuses("--all-reduce-spec xring --strategy BSP",
                "--all-reduce-spec xring is for TFReplicated, not for BSP. Fix: --strategy "
                "TFReplicated");
}

TEST_F(Apps, ImpossibleNumbersAreRefused) {
  train_refuses("--ranks 0", "--ranks 0 is out of range. Fix: from 1 to 1024");
  train_refuses("--ranks -1", "--ranks -1 is out of range");
  train_refuses("--ranks four", "the argument ('four') for option '--ranks' is invalid");
  train_refuses("--servers 0", "--servers 0 is out of range");
  train_refuses("--epochs -3", "--epochs -3 is out of range");
  train_refuses("--batch-size 0", "--batch-size 0 is out of range");
  train_refuses("--batch-size 100000", "loader: 6000 images do not make 4 batches of 100000");
  train_refuses("--learning-rate nan", "--learning-rate nan is out of range");
  train_refuses("--seed 9223372036854775807",
                "--seed 9223372036854775807 is out of range. Fix: from 0 to 9007199254740992");
  train_refuses("--momentum 1.5",
                "--optimizer.momentum 1.5 is out of range. Fix: from 0 to below 1");
  train_refuses("--optimizer adam --optimizer.beta1 1", "--optimizer.beta1 1 is out of range");
  train_refuses("--deadline 0", "--deadline 0 is out of range");
  train_refuses("--rate in_steps --rate-every 0",
                "--rate-every 0 is out of range. Fix: more than 0");
  train_refuses("--strategy MGWFBP --fusion.startup -1", "fusion::merge_gradients: times must be");
  train_refuses("--strategy DeAR --schedule.gathers_at_once -5",
                "--schedule.gathers_at_once -5 is not a valid number");
  train_refuses("--progress threads", "--progress threads is not valid. Did you mean thread?");
  train_refuses("--fusion.bytes 32MB", "--fusion.bytes 32MB is not a valid number");
  train_refuses("--fusion.bytes -1", "--fusion.bytes -1 is not a valid number");
  train_refuses("--fusion.bytes",
                "--fusion.bytes needs a value. Fix: for example --fusion.bytes 1");
  train_refuses("--strategy TopK --compression.density 3", "compression::top_k: density must be");
  train_refuses("--strategy BytePS --architecture.servers 0", "0 servers among ");
  for (const char* number : {"1e12", "-1e12", "2147483648", "1.5", "nan"}) {
    train_refuses(std::string("--strategy BytePS --architecture.servers ") + number,
                  std::string("--architecture.servers ") + number + " is not a valid number");
  }
  train_refuses("--strategy BytePS --architecture.servers 1025",
                "--architecture.servers 1025 is out of range. Fix: from 1 to 1024");
}

/// A flag whose value a script left empty would otherwise do nothing for the length of a run.
TEST_F(Apps, WhatWouldBeIgnoredIsRefused) {
  for (const std::string flag :
       {"--checkpoint", "--resume", "--json", "--timeline", "--optimizer"}) {
    train_refuses(flag + " ''", flag + " has no value. Fix: give one, or leave " + flag + " out");
  }
  for (const std::string flag : {"--rate-every", "--rate-factor"}) {
    train_refuses(flag + " 0.5", flag + " is for --rate in_steps, not for --rate linear. Fix: ");
  }
}

TEST_F(Apps, AValueIsSaidOnce) {
  train_refuses("--strategy TopK --compression.density 0.5 --compression.density=0.001",
                "--compression.density is given twice. Fix: leave one out");
  train_refuses("--strategy BytePS --servers 4 --architecture.servers 2",
                "--servers and --architecture.servers set the same value. Fix: leave one out");
  for (const auto& [shared, own] : {std::pair{"--learning-rate", "--optimizer.learning_rate"},
                                    std::pair{"--momentum", "--optimizer.momentum"},
                                    std::pair{"--weight-decay", "--optimizer.weight_decay"}}) {
    train_refuses(std::string(shared) + " 0.1 " + own + " 0.2",
                  std::string(shared) + " and " + own + " set the same value. Fix: leave one out");
  }
}

TEST_F(Apps, WhatCannotBeWrittenIsSaidBeforeTraining) {
  for (const char* flag : {"--json", "--timeline", "--checkpoint"}) {
    const auto got = train(std::string(flag) + " /nowhere/file --steps 1");
    refuses(got, "tutti-train: cannot write /nowhere/file");
    EXPECT_EQ(got.out, "");
  }
  refuses(train("--json rows --timeline events --checkpoint /nowhere/file"),
          "tutti-train: cannot write /nowhere/file");
  for (const auto& left : std::filesystem::directory_iterator(here_)) {
    EXPECT_TRUE(left.path().filename() == "out" || left.path().filename() == "err") << left;
  }
  train_refuses("--json same --timeline ./same",
                "--json same would write into the file of --timeline ./same. Fix: --json with "
                "another file");
  train_refuses(
      "--timeline ck.0 --checkpoint ck",
      "--timeline ck.0 would write into the file of --checkpoint ck. Fix: --timeline with "
      "another file");
  train_refuses("--json ./ck.1.previous --checkpoint ck",
                "--json ./ck.1.previous would write into");
  train_refuses("--json ck.0 --resume ck", "--json ck.0 would write into the file of --resume ck.");
  for (const std::string folder : {"first.0.previous", "second.1"}) {
    std::filesystem::create_directory(here_ / folder);
    train_refuses("--ranks 2 --checkpoint " + folder.substr(0, folder.find('.')),
                  folder + " is a folder. Fix: ");
  }
}

TEST_F(Apps, MissingAndTruncatedDataAreNamed) {
  train_refuses("--all-reduce-table .", "--all-reduce-table . is not a readable file. Fix: ");
  std::ofstream(here_ / "of_4.json")
      << R"({"benchmarks": [{"run_name": "all_reduce_spec/xring", "run_type": "iteration",
          "label": "xring", "ranks": 4, "elements": 8, "seconds": 1}]})";
  train_refuses("--ranks 2 --all-reduce-table of_4.json",
                "--all-reduce-table of_4.json has a row measured with 4 ranks, not with 2. Fix: ");
  train_refuses("--data fashion-mnist:/nowhere", "/nowhere/train-images-idx3-ubyte");
  const std::filesystem::path installed = "/usr/share/datasets/fashion-mnist";
  std::filesystem::create_directory(here_ / "data");
  for (const auto& each : std::filesystem::directory_iterator(installed)) {
    std::filesystem::copy_file(each, here_ / "data" / each.path().filename());
  }
  const auto labels = here_ / "data" / "train-labels-idx1-ubyte.gz";
  std::filesystem::resize_file(labels, std::filesystem::file_size(labels) / 2);
  train_refuses("--data fashion-mnist:" + (here_ / "data").string(), labels.string());
}

TEST_F(Apps, CheckpointsOfOtherRunsAreRefused) {
  ASSERT_EQ(train("--strategy BSP --ranks 2 --steps 2 --checkpoint saved").status, 0);
  train_refuses("--ranks 2 --resume /nowhere/saved", "cannot read /nowhere/saved.");
  train_refuses("--strategy WFBPUnlimited --ranks 2 --resume saved", "saved.");
  train_refuses("--strategy BSP --model cnn --ranks 2 --resume saved", "saved.");
  const std::string saved = "--strategy BSP --ranks 2 --steps 3 --resume saved ";
  const std::string another = ": the checkpoint is of a run with ";
  refuses(train(saved + "--batch-size 64"),
          another + "--batch-size 32, but this run has --batch-size 64. Fix: --batch-size 32");
  refuses(train(saved + "--seed 7"),
          another + "--seed 1, but this run has --seed 7. Fix: --seed 1");
  refuses(train(saved + "--augment crop-flip"), another + "--augment none, but this run has");
  refuses(train(saved + "--momentum 0.5"), another + "--optimizer.momentum 0.9, but this run has");
  refuses(train(saved + "--optimizer adam"),
          ": the checkpoint is of a run with another --optimizer. Fix:");
  std::filesystem::copy_file(here_ / "saved.1", here_ / "mine.1");
  std::filesystem::copy_file(here_ / "saved.0", here_ / "saved.1",
                             std::filesystem::copy_options::overwrite_existing);
  train_refuses("--strategy BSP --ranks 2 --resume saved",
                "saved.1: the checkpoint was written by rank 0 and is read by rank 1");
  std::filesystem::rename(here_ / "mine.1", here_ / "saved.1");
  std::ofstream(here_ / "saved.1", std::ios::app) << "x";
  train_refuses("--strategy BSP --ranks 2 --resume saved",
                "saved.1: the checkpoint is longer than what was saved. Fix: use an earlier one");
  std::filesystem::resize_file(here_ / "saved.1", 1000);
  train_refuses("--strategy BSP --ranks 2 --resume saved", "saved.1: the checkpoint is cut short");
}

/// One bit is changed in the running statistics of batch normalisation, which follow the engine's
/// part of the file.
TEST_F(Apps, ADamagedCheckpointIsRefused) {
  const std::string flags = "--strategy BSP --model resnet20 --ranks 1 --batch-size 2 ";
  ASSERT_EQ(train(flags + "--steps 1 --checkpoint saved").status, 0);
  std::fstream file(here_ / "saved.0", std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-30, std::ios::end);
  const int damaged = file.peek() ^ 1;
  file.seekp(-30, std::ios::end);
  file.put(static_cast<char>(damaged)).flush();
  train_refuses(flags + "--resume saved", "saved.0: the checkpoint is damaged. Fix:");
}

TEST_F(Apps, ChecksThatAllRanksResumeAtOneStep) {
  ASSERT_EQ(train("--strategy BSP --ranks 2 --steps 2 --checkpoint saved").status, 0);
  ASSERT_EQ(train("--strategy BSP --ranks 2 --steps 3 --checkpoint ahead").status, 0);
  std::filesystem::copy_file(here_ / "ahead.1", here_ / "saved.1",
                             std::filesystem::copy_options::overwrite_existing);
  const auto got = train("--strategy BSP --ranks 2 --steps 5 --resume saved");
  EXPECT_EQ(got.status, 2);
  EXPECT_NE(got.err.find("but another rank's checkpoint is not"), std::string::npos) << got.err;
}

TEST_F(Apps, AResumedJobWithNothingLeftSaysSo) {
  const std::string flags = "--strategy BSP --ranks 2 --steps 2 ";
  ASSERT_EQ(train(flags + "--checkpoint saved").status, 0);
  const auto got = train(flags + "--resume saved");
  EXPECT_EQ(got.status, 0) << got.err;
  EXPECT_NE(got.out.find("nothing is left to train after step 2. Fix: more --epochs or --steps\n"),
            std::string::npos)
      << got.out;
}

/// Ranks save in three moves: FILE.partial is written, FILE is renamed FILE.previous, and
/// FILE.partial is renamed FILE. The first move ends on all ranks before any rank makes the second.
TEST_F(Apps, AJobThatIsKilledWhileItsRanksSaveGoesOn) {
  const std::string flags = "--strategy TopK --ranks 2 --checkpoint saved ";
  ASSERT_EQ(train(flags + "--steps 5").status, 0);
  const auto at_five = std::array{read(here_ / "saved.0"), read(here_ / "saved.1")};
  const auto resumed = flags + "--resume saved --steps ";
  ASSERT_EQ(train(resumed + "7").status, 0);
  const auto newest = std::array{read(here_ / "saved.0"), read(here_ / "saved.1")};
  ASSERT_EQ(train(resumed + "9").status, 0);
  const auto whole = std::array{read(here_ / "saved.0"), read(here_ / "saved.1")};
  const auto rank_after = [&](std::size_t rank, int moves) {
    const auto file = here_ / ("saved." + std::to_string(rank));
    const auto previous = file.string() + ".previous";
    const auto put = [](const std::filesystem::path& where, const std::string& bytes) {
      std::ofstream(where, std::ios::binary) << bytes;
    };
    for (const auto& each : {file.string(), previous, file.string() + ".partial"}) {
      std::filesystem::remove(each);
    }
    if (moves < 2) {
      put(file.string() + ".partial", newest[rank]);
    }
    put(moves == 0 ? file.string() : previous, at_five[rank]);
    if (moves == 2) {
      put(file, newest[rank]);
    }
  };
  for (const auto& [first, second] :
       {std::pair{0, 1}, std::pair{0, 2}, std::pair{1, 1}, std::pair{1, 2}, std::pair{2, 2}}) {
    SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second) + " moves");
    rank_after(0, first);
    rank_after(1, second);
    const auto got = train(resumed + "9");
    ASSERT_EQ(got.status, 0) << got.err;
    EXPECT_TRUE(read(here_ / "saved.0") == whole[0]);
    EXPECT_TRUE(read(here_ / "saved.1") == whole[1]);
    // The set that was resumed is the one that the next kill leaves, however far the ranks had
    // come.
    const bool all_moved = first == 2 && second == 2;
    for (const std::size_t rank : {0U, 1U}) {
      EXPECT_TRUE(read(here_ / ("saved." + std::to_string(rank) + ".previous")) ==
                  (all_moved ? newest : at_five)[rank])
          << "rank " << rank;
    }
  }
}

/// Rank 1 cannot write, so rank 0, which has written, does not rename its files either. A kill then
/// leaves the previous set.
TEST_F(Apps, NoRankMovesItsCheckpointBeforeAllHaveWrittenTheirs) {
  const std::string flags = "--strategy TopK --ranks 2 --checkpoint saved ";
  ASSERT_EQ(train(flags + "--steps 5").status, 0);
  const auto at_five = std::array{read(here_ / "saved.0"), read(here_ / "saved.1")};
  const auto stuck = here_ / "saved.1.partial";
  ASSERT_EQ(mkfifo(stuck.c_str(), 0600), 0);
  const auto got = shell("sh -c '" TUTTI_APPS_DIRECTORY
                         "/tutti-train --model mlp --data synthetic --resume saved --steps 7 " +
                         flags +
                         "& until [ saved.0 -nt saved.1.partial ] || [ -s saved.0.partial ] &&"
                         " [ $(stat -c %s saved.0.partial) = $(stat -c %s saved.0) ];"
                         " do sleep 0.01; done; sleep 0.3; kill -9 $!; wait'");
  ASSERT_EQ(got.status, 0) << got.err;
  EXPECT_TRUE(read(here_ / "saved.0") == at_five[0]);
  EXPECT_TRUE(read(here_ / "saved.1") == at_five[1]);
  EXPECT_TRUE(std::filesystem::exists(here_ / "saved.0.partial"));
  std::filesystem::remove(stuck);
  EXPECT_EQ(train("--resume saved --steps 7 " + flags).status, 0);
}

TEST_F(Apps, ACheckpointThatDoesNotFitIsNamed) {
  std::filesystem::create_symlink("/dev/full", here_ / "saved.0.partial");
  refuses(
      train("--ranks 1 --steps 1 --checkpoint saved"),
      "tutti-train: saved.0.partial: the checkpoint could not be written. Fix: free disk space");
}

/// The first epoch's checkpoint is the only one that is worth keeping.
TEST_F(Apps, ARunWhoseLossIsNotFiniteEndsAndKeepsItsCheckpoint) {
  for (const std::string strategy : {"Horovod", "BytePS"}) {
    SCOPED_TRACE(strategy);
    const std::string flags = "--strategy " + strategy + " --ranks 2 --batch-size 300 --epochs 4 ";
    ASSERT_EQ(train(flags + "--steps 10 --checkpoint saved").status, 0);
    const std::string finite = read(here_ / "saved.0");
    const auto got =
        train(flags +
              "--learning-rate 1e15 --rate constant --resume saved --checkpoint saved --json rows");
    refuses(got, "tutti-train: the loss is not finite in epoch 2, so training ends and the last ");
    EXPECT_EQ(lines(got.out), 2U) << "the table's head and one epoch: " << got.out;
    EXPECT_TRUE(read(here_ / "saved.0") == finite);
    EXPECT_EQ(lines(read(here_ / "rows")), 2U) << "the epoch's and the run's";
    std::filesystem::remove(here_ / "rows");
  }
  refuses(train("--ranks 2 --batch-size 300 --learning-rate 1e15 --rate constant"),
          "tutti-train: the loss is not finite in epoch 1, so training ends. Fix: ");
  const auto got = train("--ranks 2 --learning-rate 1e15 --data one-batch --steps 30");
  EXPECT_EQ(got.status, 0) << "only the speed counts: " << got.err;
}

TEST_F(Apps, AResumedRunIsBitwiseTheUninterruptedOne) {
  // An epoch has 46 steps: one stop is inside the first, one inside the second.
  for (const std::string strategy : {"Horovod", "EFSignSGD", "MXNetDistSync"}) {
    SCOPED_TRACE(strategy);
    const std::string flags = "--strategy " + strategy + " --epochs 2 --checkpoint ";
    ASSERT_EQ(train(flags + "whole --steps 70").status, 0);
    ASSERT_EQ(train(flags + "part --steps 20").status, 0);
    ASSERT_EQ(train(flags + "part --steps 50 --resume part").status, 0);
    ASSERT_EQ(train(flags + "part --steps 70 --resume part").status, 0);
    for (int rank = 0; rank < 4; ++rank) {
      const std::string file = std::to_string(rank).insert(0, ".");
      EXPECT_FALSE(read(here_ / ("whole" + file)).empty());
      EXPECT_EQ(read(here_ / ("whole" + file)), read(here_ / ("part" + file))) << "rank " << rank;
    }
  }
}

/// Losses have the same bits. Of gradients, only the lent bytes and one layer's memory are held,
/// instead of all.
TEST_F(Apps, SayWhatGradientsTake) {
  const std::string flags = "--ranks 4 --model resnet20 --batch-size 8 --steps 8 --json gradients ";
  ASSERT_EQ(train(flags + "--strategy ZeRO1 --fusion.bytes 64KiB").status, 0);
  ASSERT_EQ(train(flags + "--strategy ZeRO2 --fusion.bytes 64KiB --architecture.lent_bytes 200000")
                .status,
            0);
  std::ifstream in(here_ / "gradients");
  std::vector<nlohmann::json> figures;
  for (std::string line; std::getline(in, line);) {
    figures.push_back(nlohmann::json::parse(line));
  }
  ASSERT_GE(figures.size(), 2U);
  const auto& kept = figures.front();
  const auto& lent = figures.back();
  EXPECT_EQ(kept["loss"], lent["loss"]);
  EXPECT_EQ(kept["gradient_bytes"], kept["gradient_bytes_of_the_model"]);
  EXPECT_EQ(kept["gradient_bytes"], 4 * 269'722);                   // the parameters of resnet20
  EXPECT_EQ(lent["gradient_bytes_of_the_model"], 4 * 64 * 64 * 9);  // the largest layer
  EXPECT_LE(lent["gradient_bytes"], 200'000 + 4 * 64 * 64 * 9);
  EXPECT_EQ(kept["optimizer_bytes"], 4 * 67'431);  // a quarter of the parameters, rounded up
  EXPECT_EQ(kept["optimizer_bytes"], lent["optimizer_bytes"]);
}

TEST_F(Apps, WriteJsonAndATimeline) {
  const auto got =
      train("--strategy BytePS --servers 2 --ranks 3 --epochs 2 --json figures --timeline trace");
  ASSERT_EQ(got.status, 0) << got.err;
  EXPECT_EQ(lines(got.out), 3U) << "a header and two epochs; no progress, it is no terminal";
  std::ifstream in(here_ / "figures");
  std::vector<nlohmann::json> figures;
  for (std::string line; std::getline(in, line);) {
    figures.push_back(nlohmann::json::parse(line));
  }
  ASSERT_EQ(figures.size(), 3U);
  for (const auto& each : figures) {
    for (const char* field : {"strategy",
                              "model",
                              "world",
                              "transport",
                              "device",
                              "precision",
                              "ranks",
                              "servers",
                              "batch_size",
                              "iteration_ms",
                              "samples_per_second",
                              "exposed_ms",
                              "bytes_sent_per_rank",
                              "optimizer_bytes",
                              "gradient_bytes",
                              "gradient_bytes_of_the_model",
                              "lower_bound_ms",
                              "predicted_ms",
                              "plan_hash",
                              "version",
                              "loss",
                              "train_accuracy",
                              "test_accuracy"}) {
      EXPECT_TRUE(each.contains(field)) << field;
    }
    EXPECT_EQ(each["ranks"], 5);
    EXPECT_EQ(each["workers"], 3);
    EXPECT_EQ(each["servers"], 2);
    EXPECT_GT(each["bytes_sent_per_rank"], 0);
  }
  EXPECT_EQ(figures[1]["epoch"], 2);
  EXPECT_TRUE(figures[2]["epoch"].is_null());
  EXPECT_GT(figures[2]["test_accuracy"], 0.9);

  const auto trace = nlohmann::json::parse(read(here_ / "trace"));
  std::set<int> ranks;
  for (const auto& each : trace["traceEvents"]) {
    ranks.insert(each["pid"].get<int>());
  }
  EXPECT_EQ(ranks.size(), 5U);
}

TEST_F(Apps, CellsTrainAndPrintARow) {
  for (const char* name :
       {"none-off-none-all-reduce", "none-on-signSGD-parameter-server",
        "none-off-TopK-parameter-server", "up_to-on-none-parameter-server",
        "up_to-off-signSGD-all-reduce", "up_to-on-TopK-all-reduce",
        "merge_gradients-off-none-parameter-server", "merge_gradients-on-signSGD-all-reduce",
        "merge_gradients-on-TopK-parameter-server"}) {
    const auto got = cell(name, "--ranks 2");
    ASSERT_EQ(got.status, 0) << got.err;
    EXPECT_EQ(lines(got.out), 1U);
    double first = 0;
    double last = 0;
    ASSERT_EQ(std::sscanf(got.out.c_str() + got.out.find("  "), "%lf > %lf", &first, &last), 2)
        << got.out;
    EXPECT_NEAR(first, 2.3, 0.1);
    EXPECT_LT(last, first);
  }
  EXPECT_EQ(cell("none-off-none-all-reduce", "--header").out.find("fusion / priority"), 0U);
  refuses(cell("none-off-none-all-reduce", "--json file"), "combination: there is no flag --json");
  refuses(cell("none-off-none-all-reduce", "--fusion.byte 1"),
          "combination: this strategy has no --fusion.byte because it has no options. Fix: leave "
          "it out");
}

TEST_F(Apps, ADeviceThatIsNotHereIsRefused) {
  train_refuses("--device gpu", "no device is named 'gpu'. Did you mean cpu?");
#ifdef TUTTI_CUDA_CELL
  if (std::filesystem::exists("/dev/nvidia0")) {
    return;
  }
  const std::string sentence = "this machine has no CUDA device. Fix: ";
  refuses(cell("up_to-off-signSGD-all-reduce", "--data synthetic --steps 1", "cuda"),
          "combination: " + sentence);
  train_refuses("--device cuda", sentence);
#else
  train_refuses("--device cuda",
                "this build does not train Horovod on cuda. Fix: cmake --preset cuda");
  train_refuses(
      "--device cuda --strategy BytePSDithering",
      "this build does not train BytePSDithering on cuda. Fix: cmake --preset cuda, with nvcc, "
      "cuBLAS and cuDNN installed, or --device cpu, the only one for OkTopk, QSGD and "
      "BytePSDithering");
#endif
}

#ifdef TUTTI_STAND_IN_CELL
/// The program of a cell for a GPU, run on host threads, gives the same losses, to the digits that
/// a table shows, whether ranks are threads or processes.
TEST_F(Apps, ACellOnADeviceLearnsWhatItLearnsOnACpu) {
  const std::string flags = "--model mlp --data synthetic --batch-size 4 --ranks 4 --steps 5";
  const auto losses_of = [](const outcome& got) {
    EXPECT_EQ(got.status, 0) << got.err;
    std::array<double, 2> found{};
    const std::size_t name_ends = 52;
    EXPECT_EQ(std::sscanf(got.out.c_str() + std::min(name_ends, got.out.size()), "%lf > %lf",
                          &found[0], &found[1]),
              2)
        << got.out;
    return found;
  };
  const std::string name = "up_to-on-none-parameter-server";
  const auto here = losses_of(cell(name, flags));
  EXPECT_LT(here[1], here[0]);
  std::vector there{losses_of(cell(name, flags, "stand-in"))};
#ifdef TUTTI_MPIRUN
  there.push_back(
      losses_of(shell(TUTTI_MPIRUN " --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle "
                                   "1 -np 5 " TUTTI_APPS_DIRECTORY "/combination-stand-in-" +
                      name + " " + flags)));
#endif
  for (const auto& each : there) {
    EXPECT_NEAR(each[0], here[0], 2e-4);
    EXPECT_NEAR(each[1], here[1], 2e-4);
  }
}
#endif

#ifdef TUTTI_MPIRUN
TEST_F(Apps, UnderMpirunRanksAreProcesses) {
  const std::string mpirun =
      TUTTI_MPIRUN " --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -np ";
  const std::string program = " " TUTTI_APPS_DIRECTORY "/tutti-train --model mlp --data synthetic ";
  const auto got =
      shell(mpirun + "3" + program +
            "--strategy BytePS --servers 1 --epochs 1 --json figures --timeline trace");
  ASSERT_EQ(got.status, 0) << got.err;
  EXPECT_EQ(lines(got.out), 2U) << got.out;
  EXPECT_EQ(nlohmann::json::parse(
                read(here_ / "figures").substr(0, read(here_ / "figures").find('\n')))["transport"],
            "mpi");
  for (const char* file : {"trace.0", "trace.1", "trace.2"}) {
    EXPECT_TRUE(nlohmann::json::accept(read(here_ / file))) << file;
  }

  const auto unknown = shell(mpirun + "2" + program + "--strategy Horovot");
  EXPECT_NE(unknown.status, 0);
  EXPECT_EQ(unknown.err.find("Did you mean Horovod?"), unknown.err.rfind("Did you mean Horovod?"))
      << "said once: " << unknown.err;

  const auto servers = shell(mpirun + "2" + program + "--strategy BytePS --servers 2");
  EXPECT_NE(servers.status, 0);
  EXPECT_NE(servers.err.find("2 servers among 2 ranks leave no worker"), std::string::npos)
      << servers.err;

  const auto rates =
      shell(mpirun + "1" + program + "--steps 2 : -np 1" + program + "--steps 2 --rate-warm-up 3");
  EXPECT_NE(rates.status, 0);
  EXPECT_NE(rates.err.find("--rate-warm-up differs between ranks. Fix: give every rank the same "),
            std::string::npos)
      << rates.err;

  const auto ranks = shell(mpirun + "2" + program + "--strategy BSP --ranks 4");
  EXPECT_NE(ranks.status, 0);
  const std::string said =
      "tutti-train: --ranks 4 and 0 servers do not add up to the 2 processes that were ";
  EXPECT_NE(ranks.err.find(said), std::string::npos) << ranks.err;
  EXPECT_EQ(ranks.err.find(said), ranks.err.rfind(said)) << "said once: " << ranks.err;
  train_refuses("--transport mpi --ranks 2",
                "--ranks 2 and 0 servers do not add up to the 1 processes that were started. Fix: "
                "mpirun -np 2, "
                "or leave --transport out");
}
#endif

}  // namespace
}  // namespace tutti::test

#endif
