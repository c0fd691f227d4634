// tutti-compare under mpirun: each rank of an emulated job is a process.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// Sanitized builds have no apps.
#if defined(TUTTI_APPS_DIRECTORY) && defined(TUTTI_MPIRUN)

#include "apps/running.hpp"

namespace tutti::test {
namespace {

class Processes : public Apps {
 protected:
  outcome compare(int processes, const std::string& flags) const {
    return shell(TUTTI_MPIRUN
                 " --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -np " +
                 std::to_string(processes) +
                 " " TUTTI_APPS_DIRECTORY "/tutti-compare --world emulated " + flags);
  }
};

TEST_F(Processes, MeasureWhatWasPredicted) {
  std::ofstream(here_ / "mine.csv") << "name,elements,forward_us,backward_us\n"
                                       "first,100000,20000,40000\nlast,2000000,20000,40000\n";
  // A row that says of itself that this host was too busy for it is none.
  bool usable = false;
  for (int left = 10; !usable && left > 0; --left) {
    std::filesystem::remove(here_ / "rows");
    const auto got = compare(4,
                             "--model mine.csv --ranks 3 --strategy WFBP,BytePS --link "
                             "10Gbit/50us --iterations 3 --warmup 1 --json rows");
    ASSERT_EQ(got.status, 0) << got.err;
    EXPECT_EQ(lines(got.out), 11U) << "one process prints: " << got.out;
    std::ifstream in(here_ / "rows");
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(in, line);) {
      all.push_back(nlohmann::json::parse(line));
    }
    ASSERT_EQ(all.size(), 3U) << "one process writes";
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

/// Time passes in another way where each rank is a process, so what one thread has measured is run
/// again.
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

TEST_F(Processes, MustBeAsManyAsTheJobHasRanks) {
  const auto got = compare(2, "--model mobilenet_v2 --ranks 3 --strategy WFBP");
  EXPECT_NE(got.status, 0);
  const std::string sentence =
      "tutti-compare: 3 workers and servers need as many processes, not 2. Fix: mpirun -np 3";
  EXPECT_NE(got.err.find(sentence), std::string::npos) << got.err;
  EXPECT_EQ(got.err.find(sentence), got.err.rfind(sentence)) << "said once: " << got.err;
}

}  // namespace
}  // namespace tutti::test

#endif
