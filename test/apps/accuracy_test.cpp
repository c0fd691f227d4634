// What tutti-train reports about accuracy: learning rates that fall, models that differ, data sets,
// tables and plots.
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

// Sanitized builds have no apps.
#ifdef TUTTI_APPS_DIRECTORY

#include "apps/running.hpp"

namespace tutti::test {
namespace {

TEST_F(Apps, LearningRatesFallAsTheFlagsSay) {
  const auto rates = [this](const std::string& flags) {
    std::vector<double> all;
    for (const auto& each :
         epochs("--ranks 2 --batch-size 300 --epochs 3 --learning-rate 0.3 " + flags)) {
      all.push_back(each["learning_rate"]);
    }
    return all;
  };
  const auto expect = [](const std::vector<double>& seen, const std::vector<double>& wanted) {
    ASSERT_EQ(seen.size(), wanted.size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
      EXPECT_NEAR(seen[i], wanted[i], 1e-6) << i;
    }
  };
  expect(rates(""), {0.3, 0.2, 0.1});
  expect(rates("--rate in_steps --rate-every 2 --rate-factor 0.5"), {0.3, 0.3, 0.15});
  expect(rates("--rate cosine"), {0.3, 0.225, 0.075});
  // With ten steps an epoch, the last step of the first epoch has the highest rate, which then
  // falls for twenty steps.
  expect(rates("--rate-warm-up 1"), {0.3, 0.3 * 11 / 20, 0.3 / 20});
  train_refuses("--rate squared",
                "--rate squared is not valid. Did you mean linear? Fix: one of constant, linear, "
                "cosine, in_steps");
}

TEST_F(Apps, StepsAreAsLongAsTheirStrategyNeedsThem) {
  const auto rate = [this](const std::string& flags) -> double {
    return epochs("--ranks 2 --batch-size 300 --epochs 1 --rate constant " + flags)
        .back()["learning_rate"];
  };
  const double models_own = rate("");
  EXPECT_NEAR(rate("--strategy EFSignSGD"), 4 * models_own, 1e-6);
  for (const std::string signs : {"SignSGD", "MeanOfSigns", "EFMeanOfSigns"}) {
    EXPECT_NEAR(rate("--strategy " + signs), 5e-4, 1e-9) << signs;
  }
  EXPECT_NEAR(rate("--strategy MXNetDistAsync"), models_own / 4, 1e-6);
}

TEST_F(Apps, ModelsThatDifferAreJudgedByTheirMeanAndTheWorst) {
  const auto last = [this](const std::string& flags) {
    return epochs("--ranks 3 --epochs 1 --learning-rate 0.01 " + flags).back();
  };
  EXPECT_TRUE(last("")["worst_accuracy"].is_null());
  const auto equal = last("--strategy LocalSGD --architecture.period 1");
  EXPECT_NEAR(equal["worst_accuracy"], equal["test_accuracy"], 1e-9) << "a mean after every step";
  const auto apart = last("--strategy Local");
  EXPECT_GT(apart["worst_accuracy"], 0.1);
  const auto said = train("--strategy Local --ranks 2 --epochs 1");
  EXPECT_NE(
      said.out.find("the models of 2 workers differ: test is of their mean, the worst model has "),
      std::string::npos)
      << said.out;
}

TEST_F(Apps, ConvergencePrintsATableAndDrawsIt) {
  const auto bench = std::filesystem::path(__FILE__).parent_path() / "../../bench/convergence";
  const auto run = [&](const std::string& flags) {
    return shell(bench.string() +
                 " --train " TUTTI_APPS_DIRECTORY
                 "/tutti-train --ranks 2 --epochs 2 --flags '--model mlp --data synthetic' " +
                 flags);
  };
  const auto got = run("--strategy 'LocalSGD --architecture.period 2,SMA' --plot curves.svg");
  EXPECT_EQ(got.status, 0) << got.err;
  EXPECT_EQ(lines(got.out), 4U) << got.out;
  EXPECT_NE(got.out.find("\nLocalSGD --architecture.period 2 "), std::string::npos) << got.out;
  const auto drawn = read(here_ / "curves.svg");
  EXPECT_EQ(drawn.rfind("<svg", 0), 0U);
  std::size_t curves = 0;
  for (auto at = drawn.find("<polyline"); at != drawn.npos; at = drawn.find("<polyline", at + 1)) {
    ++curves;
  }
  EXPECT_EQ(curves, 6U) << "three strategies over epochs and over seconds";
  const auto refused = run("--only Horovod");
  EXPECT_NE(refused.status, 0);
  EXPECT_EQ(lines(refused.err), 1U) << refused.err;
  EXPECT_NE(run("--strategy SMA,LocalSGD --only Horovod,SMA")
                .err.find("--only Horovod is not in its list. Fix: some of SMA, LocalSGD\n"),
            std::string::npos);
  EXPECT_NE(run("--strategy Nobody").err.find("no strategy is named 'Nobody'"), std::string::npos);
  EXPECT_NE(run("--strategy SMA --plot nowhere/x.svg").err.find("Fix: a file that can be written"),
            std::string::npos);
}

TEST_F(Apps, ConvergenceHandsOnEveryFlag) {
  std::ofstream(here_ / "train") << R"(#!/bin/sh
echo "$@" >> said
for rows; do :; done
echo '{"epoch": 1, "seconds": 1, "test_accuracy": 0.5}' > "$rows"
echo '{"epoch": null, "bytes_sent_per_rank": 0}' >> "$rows"
)";
  std::filesystem::permissions(here_ / "train", std::filesystem::perms::owner_all);
  const auto bench = std::filesystem::path(__FILE__).parent_path() / "../../bench/convergence";
  const auto run = [&](const std::string& flags) {
    return shell(bench.string() + " --train ./train --strategy 'SMA --learning-rate=0.5' " + flags);
  };
  const auto got = run("--epochs 1 --flags '--seed=2 --model mlp --momentum 0 --momentum=0.5'");
  EXPECT_EQ(got.status, 0) << got.err;
  const std::string flags = "--model mlp --ranks 4 --epochs 1 --seed 2 --momentum 0.5 ";
  const std::string said = read(here_ / "said");
  EXPECT_EQ(said.rfind("--strategy Horovod " + flags + "--json ", 0), 0U) << said;
  EXPECT_NE(said.find("--strategy SMA " + flags + "--learning-rate 0.5 --json "), said.npos)
      << said;
  for (const char* wrong :
       {"--epochs 0", "--ranks 0", "--flags '--seed 2 3'", "--flags=--seed", "--within nan",
        "--train /", "--train /bin/true", "--plot /dev/full", "--flags '--epochs many'",
        "--strategy SMA,", "--strategy 'SMA --momentum'"}) {
    SCOPED_TRACE(wrong);
    const auto refused = run(wrong);
    EXPECT_NE(refused.status, 0);
    EXPECT_EQ(lines(refused.err), 1U) << refused.err;
    EXPECT_NE(refused.err.find("Fix: "), std::string::npos) << refused.err;
  }
  EXPECT_EQ(lines(read(here_ / "said")), 4U) << "of these, only /dev/full trains first";
}

/// The rows after one that diverges are run and drawn, and the status is that of a failure.
TEST_F(Apps, ConvergenceGoesOnAfterARowThatDoesNotTrain) {
  std::ofstream(here_ / "train") << R"(#!/bin/sh
case "$2" in TopK) echo "tutti-train: the loss is not finite" >&2; exit 2;; esac
for rows; do :; done
echo '{"epoch": 1, "seconds": 1, "test_accuracy": 0.5}' > "$rows"
echo '{"epoch": null, "bytes_sent_per_rank": 0}' >> "$rows"
)";
  std::filesystem::permissions(here_ / "train", std::filesystem::perms::owner_all);
  const auto bench = std::filesystem::path(__FILE__).parent_path() / "../../bench/convergence";
  const auto got =
      shell(bench.string() + " --train ./train --strategy TopK,SMA --epochs 1 --plot plot.svg");
  EXPECT_EQ(got.status, 1) << got.err;
  EXPECT_NE(got.err.find("tutti-train: the loss is not finite"), std::string::npos) << got.err;
  EXPECT_NE(got.out.find("\nSMA "), std::string::npos) << got.out;
  EXPECT_NE(read(here_ / "plot.svg").find("SMA"), std::string::npos);
}

TEST_F(Apps, TrainsOnCifar10sFilesAndMovingWindowsOfThem) {
  for (const std::string file : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4",
                                 "data_batch_5", "test_batch"}) {
    std::ofstream out(here_ / (file + ".bin"), std::ios::binary);
    for (std::size_t i = 0; i < std::size_t{16} * 3073; ++i) {
      out.put(static_cast<char>(i % 3073 == 0 ? i / 3073 % 10 : i * 7919 >> 3));
    }
  }
  for (const std::string model : {"resnet20", "inception-bn-28-small"}) {
    const auto got = train(
        "--data cifar10:. --ranks 2 --batch-size 8 --epochs 1 --augment crop-flip "
        "--model " +
        model);
    EXPECT_EQ(got.status, 0) << got.err;
  }
  std::filesystem::remove(here_ / "data_batch_4.bin");
  train_refuses("--data cifar10:.",
                "./data_batch_4.bin: cannot be opened. Fix: --data cifar10:DIR");
  train_refuses("--data cifar10", "--data cifar10 needs a directory. Fix: --data cifar10:DIR");
  train_refuses("--augment crop-flop",
                "--augment crop-flop is not valid. Did you mean crop-flip? Fix: one of ");
}

}  // namespace
}  // namespace tutti::test

#endif
