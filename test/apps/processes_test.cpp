// tutti-compare under mpirun: each rank of an emulated or a real job is a process.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

// Sanitized builds have no apps.
#if defined(TUTTI_APPS_DIRECTORY) && defined(TUTTI_MPIRUN)

#include "apps/running.hpp"

namespace tutti::test {
namespace {

class Processes : public Apps {
 protected:
  outcome compare(int processes, const std::string& flags,
                  const std::string& world = "emulated") const {
    return shell(TUTTI_MPIRUN
                 " --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -np " +
                 std::to_string(processes) + " " TUTTI_APPS_DIRECTORY "/tutti-compare --world " +
                 world + " " + flags);
  }
  std::vector<nlohmann::json> rows(const std::string& file) const {
    std::vector<nlohmann::json> all;
    std::ifstream in(here_ / file);
    for (std::string line; std::getline(in, line);) {
      all.push_back(nlohmann::json::parse(line));
    }
    return all;
  }
  void write_profile() const {
    std::ofstream(here_ / "mine.csv") << "name,elements,forward_us,backward_us\n"
                                         "first,100000,20000,40000\nlast,2000000,20000,40000\n";
  }
};

TEST_F(Processes, MeasureWhatWasPredicted) {
  write_profile();
  // A row that states that this host was too busy does not count.
  bool usable = false;
  for (int left = 10; !usable && left > 0; --left) {
    std::filesystem::remove(here_ / "rows");
    const auto got = compare(4,
                             "--model mine.csv --ranks 3 --strategy "
                             "WFBPUnlimited,BytePS,MXNetDistAsync --link 10Gbit/50us --iterations "
                             "3 --warmup 1 --json rows");
    ASSERT_EQ(got.status, 0) << got.err;
    EXPECT_EQ(lines(got.out), 13U) << "one process prints: " << got.out;
    const auto all = rows("rows");
    ASSERT_EQ(all.size(), 4U) << "one process writes";
    usable = std::ranges::none_of(
        all, [](const auto& each) { return each["unusable"].template get<bool>(); });
    for (const auto& each : all) {
      EXPECT_EQ(each["transport"], "shaped mpi");
      EXPECT_FALSE(each["mean_lateness_us"].is_null());
      if (usable || left == 1) {
        const double predicted = each["predicted_ms"].get<double>();
        EXPECT_NEAR(each["measured_ms"].get<double>(), predicted, 0.05 * predicted) << each;
      }
    }
  }
}

/// An emulation by processes measures differently from one by threads, so a row that one thread has
/// measured is run again.
TEST_F(Processes, WhatOneThreadMeasuredIsNotResumed) {
  const std::string flags =
      "--model mobilenet_v2 --ranks 2 --strategy BSP --iterations 1 --warmup 0 "
      "--link 10Gbit/50us ";
  ASSERT_EQ(
      shell(TUTTI_APPS_DIRECTORY "/tutti-compare --world emulated " + flags + "--json kept").status,
      0);
  const auto got = compare(2, flags + "--json rows --resume kept");
  ASSERT_EQ(got.status, 0) << got.err;
  const std::string measured = read(here_ / "rows");
  EXPECT_EQ(lines(measured), 2U);
  EXPECT_EQ(measured.find("\"transport\":\"simulated\""), std::string::npos) << measured;
}

/// In the real world every payload that was simulated is sent, and no device computes in less time
/// than its profile says.
TEST_F(Processes, CarryWhatWasCounted) {
  write_profile();
  for (const std::string kernels : {"cpu", "profile"}) {
    SCOPED_TRACE(kernels);
    const std::string flags =
        "--model mine.csv --ranks 2 --strategy WFBPUnlimited,ByteScheduler,BytePS,TopK "
        "--server-hosts own "
        "--link 10Gbit/50us --iterations 2 --warmup 1 --json ";
    const auto got = compare(3, flags + kernels + " --kernels " + kernels, "real");
    ASSERT_EQ(got.status, 0) << got.err;
    EXPECT_EQ(lines(got.out), 15U) << "one process prints: " << got.out;
    EXPECT_NE(got.out.find("error %"), std::string::npos) << got.out;
    std::filesystem::remove(here_ / "counted");
    ASSERT_EQ(shell(TUTTI_APPS_DIRECTORY "/tutti-compare " + flags + "counted").status, 0);
    const auto carried = rows(kernels);
    const auto counted = rows("counted");
    ASSERT_EQ(carried.size(), 5U) << "one process writes";
    ASSERT_EQ(counted.size(), carried.size());
    for (std::size_t i = 0; i < carried.size(); ++i) {
      EXPECT_EQ(carried[i]["strategy"], counted[i]["strategy"]);
      EXPECT_EQ(carried[i]["bytes_sent_per_rank"], counted[i]["bytes_sent_per_rank"]) << carried[i];
      EXPECT_EQ(carried[i]["transport"], "mpi");
      EXPECT_EQ(carried[i]["kernels"], kernels);
      EXPECT_TRUE(carried[i]["wall_over_logical"].is_null());
      EXPECT_GE(carried[i]["iteration_ms"]["p5"].get<double>(), 120 - 1e-6) << carried[i];
      if (kernels == "profile") {
        EXPECT_EQ(carried[i]["kernel_bytes_per_second"], 900e9);
        EXPECT_EQ(carried[i]["predicted_ms"], counted[i]["predicted_ms"]);
      } else {
        EXPECT_LT(carried[i]["kernel_bytes_per_second"], 900e9) << "no CPU's";
        EXPECT_GT(carried[i]["predicted_ms"], counted[i]["predicted_ms"]) << carried[i];
      }
    }
    std::set<double> rates;
    for (const auto& each : carried) {
      rates.insert(each["kernel_bytes_per_second"].get<double>());
    }
    EXPECT_EQ(rates.size() == 1, kernels == "profile") << "one rate for every code";
  }
}

/// When the caller drives the communication, the leader's decisions are sent in separate messages,
/// of one word each.
TEST_F(Processes, CarryAsMuchWhoeverMovesIt) {
  write_profile();
  const std::string flags =
      "--model mine.csv --ranks 2 --strategy WFBPUnlimited --link 10Gbit/50us --iterations 2 "
      "--warmup 1 --json ";
  ASSERT_EQ(compare(2, flags + "caller --progress caller", "real").status, 0);
  ASSERT_EQ(compare(2, flags + "thread --progress thread", "real").status, 0);
  EXPECT_NEAR(rows("caller")[0]["bytes_sent_per_rank"].get<double>(),
              rows("thread")[0]["bytes_sent_per_rank"].get<double>(), 64);
}

/// One process computes ten times as long, 120 ms. Strategies that wait for it take as long, and
/// what the others give up is measured on the payloads that they carry.
TEST_F(Processes, ARowBesideASlowRankSaysWhatItGivesUp) {
  std::ofstream(here_ / "quick.csv") << "name,elements,forward_us,backward_us\n"
                                        "first,10000,2000,4000\nlast,20000,2000,4000\n";
  const std::string flags =
      "--model quick.csv --ranks 3 --server-hosts own --slow-rank 1:10 --link 10Gbit/50us "
      "--iterations 4 --warmup 1 --json ";
  const auto got = compare(4,
                           "--strategy WFBPUnlimited,Local,PairAveraging,ADPSGD,MXNetDistAsync " +
                               flags + "carried --kernels cpu",
                           "real");
  ASSERT_EQ(got.status, 0) << got.err;
  const auto all = rows("carried");
  ASSERT_EQ(all.size(), 6U);
  for (const auto& each : all) {
    EXPECT_EQ(each["slow_rank"], 1);
    const bool differ = each["kind"] != "exact" && each["kind"] != "lossy";
    EXPECT_EQ(each["consensus"].is_number(), differ) << each;
  }
  EXPECT_GE(all[0]["iteration_ms"]["mean"].get<double>(), 0.9 * 120);
  const auto apart = [&](std::size_t row) { return all[row]["consensus"].get<double>(); };
  EXPECT_NEAR(apart(1), std::sqrt(3.5 * 2.0 / 3), 0.3) << "two to five steps along noise";
  for (const std::size_t row : {2U, 3U}) {
    EXPECT_GT(apart(row), 0.3);
    EXPECT_LT(apart(row), apart(1));
  }
  EXPECT_TRUE(all[2]["staleness"].empty());
  EXPECT_GT(all[3]["staleness"].size(), 1U) << "others average with a rank that is slow";
  EXPECT_GT(all[4]["staleness"].size(), 1U);
  ASSERT_EQ(compare(3, "--strategy Local " + flags + "slept --kernels profile", "real").status, 0);
  EXPECT_TRUE(rows("slept")[0]["consensus"].is_null()) << "nothing was written";
}

TEST_F(Processes, MeasureARowOnce) {
  write_profile();
  const std::string flags =
      "--model mine.csv --ranks 2 --strategy WFBPUnlimited --link 10Gbit/50us --iterations 1 "
      "--warmup 0 ";
  const auto first = compare(2, flags + "--json kept", "real");
  ASSERT_EQ(first.status, 0) << first.err;
  const auto got = compare(2, flags + "--json more --resume kept", "real");
  EXPECT_EQ(got.status, 0) << got.err;
  EXPECT_EQ(got.out, first.out);
  EXPECT_EQ(read(here_ / "more"), "");
  const auto emulated = compare(2, flags + "--json more --resume kept");
  EXPECT_EQ(emulated.status, 0) << emulated.err;
  EXPECT_EQ(rows("more").size(), 2U) << "another world";
}

TEST_F(Processes, ExplainARealRowByItsPrediction) {
  write_profile();
  const auto got = compare(2,
                           "--model mine.csv --ranks 2 --strategy BSP --link 10Gbit/50us "
                           "--iterations 1 --warmup 0 --explain",
                           "real");
  ASSERT_EQ(got.status, 0) << got.err;
  EXPECT_NE(got.out.find(" within a predicted iteration of "), std::string::npos) << got.out;
  EXPECT_NE(got.out.find("last .. first (2)\n"), std::string::npos) << got.out;
}

TEST_F(Processes, RefuseWhatARealWorldCannotBe) {
  const auto alone = [this](const std::string& flags) {
    return shell(TUTTI_APPS_DIRECTORY "/tutti-compare --strategy WFBPUnlimited " + flags);
  };
  refuses(alone("--world real --link 1Gbit/50us"),
          "tutti-compare: --world real needs a process for each rank. Fix: mpirun -np 4");
  refuses(alone("--kernels cpu"), "tutti-compare: --kernels cpu runs them here");
  refuses(alone("--progress caller"), "tutti-compare: --progress is for --world real");
  refuses(alone("--progress treadh"), "tutti-compare: --progress treadh is not valid");
  refuses(alone("--world rael"), "real");
  EXPECT_NE(alone("--help").out.find("emulated: on the same logical clock"), std::string::npos);
  for (const auto& [flags, sentence] : std::vector<std::pair<std::string, std::string>>{
           {"--ranks 2", "must know what connects these processes. Fix: --link 1Gbit/50us"},
           {"--link 1Gbit/50us --ranks 2 --jitter 0.1", "a real world has its own"},
           {"--link 1Gbit/50us --ranks 2 --kernels gpu", "gpu"},
           {"--link 1Gbit/50us --ranks 3", "need as many processes, but there are 2"}}) {
    SCOPED_TRACE(flags);
    const auto got = compare(2, "--strategy WFBPUnlimited --model mobilenet_v2 " + flags, "real");
    EXPECT_EQ(got.status, 2) << got.err;
    EXPECT_EQ(got.err.find("tutti-compare:"), got.err.rfind("tutti-compare:")) << got.err;
    EXPECT_NE(got.err.find(sentence), std::string::npos) << got.err;
  }
}

/// Processes are started as by another MPI's launcher, about which this MPI learns nothing.
TEST_F(Processes, OfALauncherThatMpiDoesNotKnowDoNotRunAlone) {
  for (const char* of_its : {"PMI_RANK=0 PMI_SIZE=4", "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4"}) {
    SCOPED_TRACE(of_its);
    const auto started = [&](const std::string& program) {
      return shell(std::string("env -u OMPI_COMM_WORLD_SIZE ") + of_its +
                   " " TUTTI_APPS_DIRECTORY "/" + program);
    };
    const std::string sentence =
        ": a launcher started 4 processes, but MPI sees only this one. Fix: mpirun -np 4, from "
        "the MPI";
    refuses(started("tutti-compare --strategy BSP"), "tutti-compare" + sentence);
    refuses(started("combination-cpu-none-off-TopK-parameter-server --data synthetic"),
            "combination" + sentence);
  }
}

TEST_F(Processes, EndTogetherWhereOneIsStartedOtherwise) {
  const std::string one =
      "-np 1 " TUTTI_APPS_DIRECTORY "/tutti-compare --strategy BSP --world emulated ";
  for (const auto& [flags, sentence] : std::vector<std::pair<std::string, std::string>>{
           {"--rank 2", "there is no flag --rank. Did you mean --ranks?"},
           {"--fusion.byte 3", "none of these strategies has --fusion.byte"}}) {
    for (const int wrong : {0, 1}) {
      SCOPED_TRACE(flags + " on rank " + std::to_string(wrong));
      const auto got = shell(TUTTI_MPIRUN " --allow-run-as-root --oversubscribe " + one +
                             (wrong == 0 ? flags : "--ranks 2") + " : " + one +
                             (wrong == 1 ? flags : "--ranks 2"));
      EXPECT_NE(got.status, 0);
      EXPECT_EQ(got.out, "");
      EXPECT_NE(got.err.find((wrong == 0 ? "" : "rank 1: ") + ("tutti-compare: " + sentence)),
                std::string::npos)
          << got.err;
      EXPECT_EQ(got.err.find(sentence), got.err.rfind(sentence)) << "said once: " << got.err;
    }
  }
  const auto unlike = shell(TUTTI_MPIRUN " --allow-run-as-root --oversubscribe " + one +
                            "--ranks 2 : " + one + "--ranks 2 --jitter 0.1");
  EXPECT_NE(unlike.status, 0);
  EXPECT_EQ(unlike.out, "");
  const std::string sentence =
      "tutti-compare: --jitter differs between ranks. Fix: give every rank the same value";
  EXPECT_NE(unlike.err.find(sentence), std::string::npos) << unlike.err;
  EXPECT_EQ(unlike.err.find(sentence), unlike.err.rfind(sentence)) << "said once: " << unlike.err;
}

TEST_F(Processes, MustBeAsManyAsTheJobHasRanks) {
  const auto got = compare(2, "--model mobilenet_v2 --ranks 2,3 --strategy WFBPUnlimited");
  EXPECT_NE(got.status, 0);
  EXPECT_EQ(got.out, "") << "no row is measured before one is refused";
  const std::string sentence =
      "tutti-compare: WFBPUnlimited: 3 workers and servers need as many processes, but there are "
      "2. Fix: mpirun -np 3";
  EXPECT_NE(got.err.find(sentence), std::string::npos) << got.err;
  EXPECT_EQ(got.err.find(sentence), got.err.rfind(sentence)) << "said once: " << got.err;
}

}  // namespace
}  // namespace tutti::test

#endif
