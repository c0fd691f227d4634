// tutti-compare as a user runs it: the table, its files, its bounds, and its refusals. One file,
// because all tests run one program in one folder.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// Sanitized builds have no apps.
#ifdef TUTTI_APPS_DIRECTORY

#include "apps/running.hpp"
#include "support/extent.hpp"
#include "tutti/strategies.hpp"

namespace tutti::test {
namespace {

class Compare : public Apps {
 protected:
  outcome compare(const std::string& flags) const {
    return shell(TUTTI_APPS_DIRECTORY "/tutti-compare " + flags);
  }
  void compare_refuses(const std::string& flags, const std::string& sentence) const {
    SCOPED_TRACE(flags);
    refuses(compare(flags), "tutti-compare: " + sentence);
  }
  /// Returns the rows that these flags give.
  std::vector<nlohmann::json> rows(const std::string& flags) const {
    std::filesystem::remove(here_ / "rows");
    const auto got = compare(flags + " --json rows");
    EXPECT_EQ(got.status, 0) << got.err;
    std::ifstream in(here_ / "rows");
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(in, line);) {
      all.push_back(nlohmann::json::parse(line));
    }
    return all;
  }
};

TEST_F(Compare, EveryTableHasA16BitBaselineAndARowForEachStrategy) {
  const auto all = rows("--model mobilenet_v2 --ranks 2,3 --server-hosts own");
  std::map<int, std::set<std::string>> names;
  for (const auto& each : all) {
    names[each["ranks"].get<int>() - each["servers"].get<int>()].insert(each["strategy"]);
    EXPECT_GE(each["iteration_ms"]["mean"].get<double>(),
              each["lower_bound_ms"].get<double>() * (1 - 1e-9))
        << each;
    EXPECT_EQ(each["predicted_ms"], each["iteration_ms"]["mean"]);
    EXPECT_TRUE(each["measured_ms"].is_null());
  }
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names[2].size(), std::tuple_size_v<strategies::all> + 1);
  EXPECT_EQ(names[3], names[2]);
  EXPECT_EQ(rows("--strategy BSP --model mobilenet_v2").back()["strategy"], "Dense16");
  std::vector<std::string> family;
  for (const auto& each : rows("--strategy 'P3,mxnet*sync,p*3' --model mobilenet_v2 --servers 1")) {
    family.push_back(each["strategy"]);
  }
  EXPECT_EQ(family, (std::vector<std::string>{"P3", "MXNetDistSync", "MXNetDistAsync", "Dense16"}));
}

/// Variants share the engine of the strategy that they vary, but not its defaults.
TEST_F(Compare, VariantsHaveTheirOwnNamesAndDefaults) {
  std::map<std::string, double> iteration;
  for (const auto& each :
       rows("--strategy 'horovod*,KungFuTree,KungFu,WFBPPS,BSPPS,ByteSchedulerPS' "
            "--model mobilenet_v2 --link 10Gbit/50us")) {
    iteration[each["strategy"]] = each["iteration_ms"]["mean"];
  }
  EXPECT_EQ(iteration.size(), 10U);
  for (const char* name : {"Horovod", "HorovodHierarchical", "HorovodTorus", "ByteSchedulerPS"}) {
    EXPECT_GT(iteration[name], 0) << name;
  }
  // The last gradient waits for the end of a cycle, which takes 5 ms instead of 1.
  EXPECT_GT(iteration["HorovodBefore021"], iteration["Horovod"] + 0.5);
  EXPECT_NE(iteration["KungFuTree"], iteration["KungFu"]);
  EXPECT_NE(iteration["WFBPPS"], iteration["BSPPS"]);
  const auto same =
      rows("--strategy KungFu --architecture.topology tree --model mobilenet_v2").front();
  EXPECT_EQ(rows("--strategy KungFuTree --model mobilenet_v2").front()["iteration_ms"],
            same["iteration_ms"]);
}

TEST_F(Compare, TheSameSeedlessJobGivesTheSameBits) {
  const std::string flags = "--strategy Horovod,TopK,BytePS --model mobilenet_v2";
  EXPECT_EQ(rows(flags), rows(flags));
}

TEST_F(Compare, OverlapReachesTheBoundOfResNet50AtEveryRate) {
  for (const char* rate : {"1Gbit", "10Gbit", "40Gbit"}) {
    for (const auto& each : rows(
             std::string("--strategy WFBPUnlimited,MGWFBPExact,Horovod,DDP,ByteScheduler --link ") +
             rate + "/50us")) {
      EXPECT_LE(each["iteration_ms"]["median"].get<double>(),
                1.05 * each["lower_bound_ms"].get<double>())
          << each;
    }
  }
}

TEST_F(Compare, CrossingTheBarrierReachesTheWiresBoundWithSmallPiecesAndCredit) {
  for (const char* rate : {"1Gbit", "10Gbit", "40Gbit"}) {
    for (const auto& each :
         rows(std::string("--strategy BytePS,P3 --servers 4 --architecture.placed_by least_loaded "
                          "--server-hosts own --schedule.credit 8MiB --partition.bytes 128KiB "
                          "--iterations 5 --link ") +
              rate + "/50us")) {
      if (each["strategy"] != "Dense16") {
        EXPECT_TRUE(each["crosses_iterations"]) << each;
        EXPECT_LE(each["iteration_ms"]["median"].get<double>(),
                  1.05 * each["lower_bound_ms"].get<double>())
            << each;
      }
    }
  }
}

TEST_F(Compare, OneServerFourServersAndARingMove102MB) {
  std::ofstream(here_ / "mine.csv") << "name,elements,forward_us,backward_us\nall,25550000,1,1\n";
  const std::string flags =
      "--model mine.csv --link 1Gbit/0us --partition.bytes 256KiB --server-hosts own --strategy ";
  const auto seconds = [&](const std::string& more) {
    return rows(flags + more).front()["iteration_ms"]["median"].get<double>() / 1e3;
  };
  const std::string even = "BytePS --architecture.placed_by least_loaded --servers ";
  EXPECT_NEAR(seconds(even + "1"), 3.27, 0.05 * 3.27);
  EXPECT_NEAR(seconds(even + "4"), 0.818, 0.05 * 0.818);
  EXPECT_NEAR(seconds("ByteScheduler"), 1.226, 0.05 * 1.226);
}

TEST_F(Compare, ServersOnBothKindsOfHostsShareOutTheSums) {
  std::ofstream(here_ / "mine.csv") << "name,elements,forward_us,backward_us\nall,25550000,1,1\n";
  const std::string flags =
      "--model mine.csv --partition.bytes 128KiB --schedule.credit 1MiB --strategy BytePS "
      "--architecture.placed_by optimal_split --server-hosts mixed ";
  const auto best = rows(flags + "--link 1Gbit/0us --servers 6").front();
  // The busiest NIC carries 2n (n-1) / (n^2 + kn - 2k) payloads, with n = 4 and k = 2.
  EXPECT_NEAR(best["lower_bound_ms"].get<double>(), 1.2 * 817.6, 0.1);
  EXPECT_NEAR(best["iteration_ms"]["median"].get<double>(), 1.2 * 817.6, 0.05 * 1.2 * 817.6);
  EXPECT_EQ(best["machines"], 6);
  EXPECT_EQ(best["server_hosts"], "mixed");
  compare_refuses(
      flags + "--link 1Gbit/0us --servers 3",
      "BytePS: 3 servers do not fit: each of 4 workers' hosts needs one, and at most as "
      "many more can have hosts of their own. Fix: --servers from 4 to 8, or another "
      "--server-hosts");
  compare_refuses(flags + "--link 2x1Gbit/0us --servers 6",
                  "--server-hosts mixed needs a NIC for each worker. Fix: --link without a number");
}

TEST_F(Compare, ServersOnTheWorkersHostsShareTheirNics) {
  std::ofstream(here_ / "mine.csv") << "name,elements,forward_us,backward_us\nall,25550000,1,1\n";
  const std::string flags =
      "--model mine.csv --link 1Gbit/0us --partition.bytes 128KiB --architecture.placed_by "
      "least_loaded --strategy BytePS --servers 4";
  const auto shared = rows(flags).front();
  EXPECT_EQ(shared["server_hosts"], "workers") << "so that all rows have as many machines";
  EXPECT_EQ(shared["machines"], 4);
  // As with a ring, 2 (n-1)/n of the payload.
  EXPECT_NEAR(shared["lower_bound_ms"].get<double>(), 1226.4, 0.1);
  EXPECT_NEAR(shared["iteration_ms"]["median"].get<double>(), 1226.4, 0.05 * 1226.4);
  const auto own = rows(flags + " --server-hosts own").front();
  EXPECT_LT(own["iteration_ms"]["median"].get<double>(), 900);
  EXPECT_EQ(own["machines"], 8);
  EXPECT_EQ(rows("--model mine.csv --strategy WFBPUnlimited --link 2x1Gbit/0us --ranks 5 "
                 "--server-hosts own")
                .front()["machines"],
            3);
  compare_refuses(
      flags + " --server-hosts workers --ranks 2000",
      "BytePS: --server-hosts workers is simulated message by message, with at most 1024 "
      "workers");
  compare_refuses(flags + " --server-hosts mine", "no mode of --server-hosts is named 'mine'.");
}

TEST_F(Compare, AServerBehindASlowerNicHoldsItsWorkersUp) {
  std::ofstream(here_ / "mine.csv") << "name,elements,forward_us,backward_us\nall,25550000,1,1\n";
  const auto row_of = [&](const std::string& servers) {
    std::ofstream(here_ / "mine.net") << "link 10Gbit/0us\n" << servers;
    return rows(
               "--model mine.csv --network mine.net --strategy BytePS --partition.bytes 128KiB "
               "--server-hosts own")
        .front();
  };
  for (const auto& [servers, wire] :
       {std::pair{"", 327.0}, std::pair{"servers 1Gbit/0us\n", 3270.4},
        std::pair{"servers 1000Gbit/0us\n", 81.76}}) {
    const auto got = row_of(servers);
    EXPECT_NEAR(got["wire_bound_ms"].get<double>(), wire, 0.001 * wire) << got;
    EXPECT_NEAR(got["iteration_ms"]["median"].get<double>(), wire, 0.05 * wire) << got;
  }
  compare_refuses("--network mine.net",
                  "mine.net gives servers NICs of their own, but they share those of the workers' "
                  "hosts. Fix: --server-hosts own");
}

TEST_F(Compare, RepetitionsHaveSeedsOfTheirOwn) {
  const std::string flags =
      "--strategy WFBPUnlimited --model mobilenet_v2 --jitter 0.2 --iterations 1";
  const auto third = rows(flags + " --seed 3").front()["iteration_ms"];
  const auto both = rows(flags + " --seed 2 --repetitions 2").front()["iteration_ms"];
  const auto second = rows(flags + " --seed 2").front()["iteration_ms"];
  EXPECT_EQ(both["p5"], std::min(second["median"], third["median"]));
  EXPECT_EQ(both["p95"], std::max(second["median"], third["median"]));
  EXPECT_NE(second["median"], third["median"]);
}

TEST_F(Compare, HalfTheLinkDoublesWhatBSPExposes) {
  const auto exposed = [this](const std::string& link) {
    return rows("--strategy BSP --link " + link).front()["exposed_ms"].get<double>();
  };
  EXPECT_NEAR(exposed("1Gbit/0us") / exposed("2Gbit/0us"), 2, 0.02);
}

TEST_F(Compare, ANetworkOfTheUsersOwnIsTheLinkItNames) {
  std::ofstream(here_ / "mine.net") << "\xEF\xBB\xBF# two a host\nlink 2x10Gbit/50us  # the NIC\n";
  const std::string flags = "--strategy WFBPUnlimited,BytePS --model mobilenet_v2";
  auto own = rows(flags + " --network mine.net");
  auto named = rows(flags + " --link 2x10Gbit/50us");
  ASSERT_EQ(own.size(), named.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(own[i]["iteration_ms"], named[i]["iteration_ms"]);
  }
  std::ofstream(here_ / "mine.net") << "link 2x10Gbit/50us\ninside 1Mbit/50us\n";
  EXPECT_GT(rows(flags + " --network mine.net")[0]["iteration_ms"]["median"],
            named[0]["iteration_ms"]["median"]);
  std::ofstream(here_ / "bad.net") << "\nlink fast\n";
  compare_refuses("--network bad.net", "bad.net line 2: --link fast is not a link. Fix:");
  std::ofstream(here_ / "bad.net") << "NIC 10Gbit/50us\n";
  compare_refuses("--network bad.net", "bad.net line 1: 'NIC 10Gbit/50us' is not a link. Fix:");
  std::ofstream(here_ / "bad.net") << "# nothing\n";
  compare_refuses("--network bad.net", "bad.net has no line 'link'. Fix:");
}

TEST_F(Compare, ARankMayHaveANICOfItsOwn) {
  const std::string flags = "--strategy WFBPUnlimited,PairAveraging --model mobilenet_v2 --ranks 4";
  const auto median = [](auto& row) {
    return row["iteration_ms"]["median"].template get<double>();
  };
  auto fast = rows(flags + " --link 10Gbit/50us");
  auto slow = rows(flags + " --link 1Gbit/50us");
  std::string ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks += "rank " + std::to_string(rank) + " 1Gbit/50us\n";
  }
  std::ofstream(here_ / "all.net") << "link 10Gbit/50us\n" << ranks;
  auto each = rows(flags + " --network all.net");
  std::ofstream(here_ / "one.net") << "link 10Gbit/50us\nrank 2 1Gbit/50us\n";
  auto one = rows(flags + " --network one.net");
  ASSERT_EQ(each.size(), slow.size());
  for (std::size_t i = 0; i < slow.size(); ++i) {
    EXPECT_EQ(each[i]["iteration_ms"], slow[i]["iteration_ms"]);
  }
  // All of a ring's bytes pass the slow NIC; a rank that asks a random peer asks the slow one every
  // third time.
  EXPECT_GT(median(one[0]), (median(fast[0]) + 2 * median(slow[0])) / 3);
  EXPECT_LE(median(one[0]), median(slow[0]) * (1 + 1e-9));
  EXPECT_LT(one[1]["iteration_ms"]["mean"], one[0]["iteration_ms"]["mean"]);
  // The only bound stated is that of the compute, because it is not known whose NIC limits the
  // iteration.
  std::ofstream(here_ / "fast.net") << "link 100Mbit/50us\n" << ranks;
  for (const auto& row : rows(flags + " --network fast.net")) {
    EXPECT_TRUE(row["wire_bound_ms"].is_null()) << row;
    EXPECT_GE(row["iteration_ms"]["mean"], row["lower_bound_ms"]) << row;
    EXPECT_EQ(row["machines"], 4) << row;
  }
  std::ofstream(here_ / "host.net") << "link 4x25Gbit/10us\nrank 2 1Gbit/10us\n";
  EXPECT_EQ(rows(flags + " --network host.net")[0]["machines"], 2);
  compare_refuses("--network one.net --ranks 2",
                  "one.net gives rank 2 a NIC, but that rank does not");
  compare_refuses("--network one.net --strategy DDP --ranks 2000",
                  "one.net gives single ranks a NIC");
  std::ofstream(here_ / "bad.net") << "link 10Gbit/50us\nrank two 1Gbit/50us\n";
  compare_refuses("--network bad.net", "bad.net line 2: 'rank two 1Gbit/50us' is not a link. Fix:");
  for (const std::string key : {"link", "rank 1"}) {
    std::ofstream(here_ / "bad.net")
        << "link 10Gbit/50us\nservers 1Gbit/50us\nrank 01 1Gbit/50us\n" + key + " 2Gbit/50us\n";
    compare_refuses("--network bad.net", "bad.net line 4: a second line '" + key + "'. Fix: leave");
  }
  for (const std::string whose : {"inside", "servers", "rank 1"}) {
    std::ofstream(here_ / "bad.net") << "link 10Gbit/50us\n" + whose + " 4x1Gbit/50us\n";
    compare_refuses(
        "--network bad.net",
        "bad.net line 2: 4x1Gbit/50us puts several ranks behind one NIC, which only the "
        "line 'link' can do. Fix: without 4x");
  }
}

TEST_F(Compare, ResumedItRunsWhatIsMissingAndPrintsTheSame) {
  const std::string flags =
      "--strategy Horovod,BytePS,TopK --model mobilenet_v2 --link "
      "1Gbit/50us,10Gbit/50us --world emulated --iterations 2 --warmup 1 ";
  const auto lines = [this] {
    std::ifstream in(here_ / "kept");
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) {
      all.push_back(line);
    }
    return all;
  };
  const auto whole = compare(flags + "--json kept");
  ASSERT_EQ(whole.status, 0) << whole.err;
  const auto all = lines();
  ASSERT_EQ(all.size(), 8U);
  EXPECT_EQ(compare(flags + "--json kept --resume kept").out, whole.out);
  EXPECT_EQ(lines(), all);
  std::ofstream(here_ / "kept") << all[0] << "\n" << all[5];  // without the last line's end
  ASSERT_EQ(compare(flags + "--json kept --resume kept").status, 0);
  EXPECT_EQ(lines().size(), 8U);
  compare(flags + "--seed 2 --jitter 0.1 --json kept --resume kept");
  EXPECT_EQ(lines().size(), 16U);
  std::ofstream(here_ / "kept") << all[0] << "\n" << all[1].substr(0, 90);
  compare_refuses(flags + "--resume kept",
                  "kept line 2 is not a row of tutti-compare. Fix: delete it");
  compare_refuses(flags + "--resume none", "cannot read none. Fix:");
}

TEST_F(Compare, NoFileIsWrittenThatIsRead) {
  const std::string profile = "name,elements,forward_us,backward_us\none,1000,1,1\n";
  std::ofstream(here_ / "mine.csv") << profile;
  compare_refuses("--model alexnet,mine.csv --csv ./mine.csv",
                  "--csv ./mine.csv would write into the file of --model mine.csv. Fix: --csv with "
                  "another file");
  compare_refuses("--model mine.csv --json mine.csv", "--json mine.csv would write into");
  compare_refuses("--network mine.csv --json mine.csv", "--json mine.csv would write into");
  EXPECT_EQ(read(here_ / "mine.csv"), profile);
  compare_refuses("--json kept --resume kept --csv kept", "--json kept would write into the file");
  compare_refuses("--resume kept --csv kept", "--csv kept would write into the file of --resume");
  EXPECT_EQ(compare("--model mine.csv --strategy BSP --json /dev/null --csv /dev/null").status, 0);
}

TEST_F(Compare, ARowThatLacksAFigureOrHasAnotherIsNamed) {
  const std::string flags = "--strategy BSP --model mobilenet_v2 --world emulated --iterations 1 ";
  ASSERT_EQ(compare(flags + "--json kept").status, 0);
  const std::string all = read(here_ / "kept");
  const auto good = nlohmann::json::parse(all.substr(0, all.find('\n')));
  const auto refused = [&](const nlohmann::json& bad, const std::string& field) {
    std::ofstream(here_ / "bad") << good << "\n" << bad << "\n";
    compare_refuses(flags + "--resume bad", "bad line 2 is not a row of this tutti-compare: '" +
                                                field + "' is missing or invalid. Fix: delete it");
  };
  for (const char* field : {"job",
                            "strategy",
                            "kind",
                            "transport",
                            "servers",
                            "simulated_workers",
                            "period",
                            "kernels",
                            "kernel_bytes_per_second",
                            "pays_below_bits_per_second",
                            "iteration_ms",
                            "bytes_sent_per_rank",
                            "plan_hash",
                            "busiest_nic_bytes",
                            "crosses_iterations",
                            "shares_nics",
                            "predicted_ms",
                            "measured_ms",
                            "wall_over_logical",
                            "mean_lateness_us",
                            "worst_lateness_us",
                            "iterations_per_second",
                            "staleness",
                            "consensus",
                            "pushes_dropped",
                            "pushes_held"}) {
    auto bad = good;
    bad.erase(field);
    refused(bad, field);
    bad[field] = nlohmann::json::array({-1});
    refused(bad, field);
  }
  for (const char* quantile : {"p5", "median", "p95"}) {
    auto bad = good;
    bad["iteration_ms"].erase(quantile);
    refused(bad, quantile);
  }
  auto bad = good;
  for (const auto& [field, value] :
       {std::pair{"servers", 1e300}, std::pair{"bytes_sent_per_rank", -1.0},
        std::pair{"predicted_ms", -1.0}}) {
    bad = good;
    bad[field] = value;
    refused(bad, field);
  }
  bad = good;
  bad["kind"] = "perfect";
  refused(bad, "kind");
}

TEST_F(Compare, WhatAFileHeldBeforeIsNotResumed) {
  const auto write = [this](const char* rate, int forward) {
    std::ofstream(here_ / "mine.net") << "link " << rate << "/50us\n";
    std::ofstream(here_ / "mine.csv")
        << "name,elements,forward_us,backward_us\nall,1000000," << forward << ",2000\n";
  };
  const std::string flags =
      "--strategy BSP --model mine.csv --network mine.net --json kept --resume kept";
  const auto lines_after = [&] {
    EXPECT_EQ(compare(flags).status, 0);
    return lines(read(here_ / "kept"));
  };
  std::ofstream(here_ / "kept").close();
  write("1Gbit", 1000);
  EXPECT_EQ(lines_after(), 2U);
  EXPECT_EQ(lines_after(), 2U) << "nothing has changed";
  write("2Gbit", 1000);
  EXPECT_EQ(lines_after(), 4U) << "another link";
  write("2Gbit", 1001);
  EXPECT_EQ(lines_after(), 6U) << "another profile";
}

/// Iterations of LocalSGD differ, because only some of them send. A row that was read knows only
/// their quantiles.
TEST_F(Compare, ARowThatWasReadIsTheSameInCsv) {
  const std::string flags = "--strategy LocalSGD --model mobilenet_v2 --ranks 2 --json kept --csv ";
  ASSERT_EQ(compare(flags + "run.csv").status, 0);
  ASSERT_EQ(compare(flags + "read.csv --resume kept").status, 0);
  const auto iteration = [this](const char* file) {
    const std::string all = read(here_ / file);
    const std::string row = all.substr(all.find("\"LocalSGD"));
    const std::string line = row.substr(0, row.find('\n'));
    return std::stod(line.substr(line.rfind(',') + 1));
  };
  std::ifstream kept(here_ / "kept");
  std::string row;
  std::getline(kept, row);
  const double predicted = nlohmann::json::parse(row)["predicted_ms"];
  EXPECT_NEAR(iteration("run.csv"), predicted, 1e-6);
  EXPECT_NEAR(iteration("read.csv"), predicted, 1e-6);
}

TEST_F(Compare, ExplainsWhichChunkWentWhen) {
  const auto got = compare("--strategy BSP --model mobilenet_v2 --explain");
  EXPECT_EQ(got.status, 0) << got.err;
  EXPECT_NE(got.out.find("BSP: 158 tensors in 1 buckets and 1 chunks"), std::string::npos)
      << got.out;
  EXPECT_NE(got.out.find("counted from the end of a backward pass"), std::string::npos) << got.out;
  EXPECT_NE(got.out.find(" (158)\n"), std::string::npos) << got.out;
}

TEST_F(Compare, SaysWhichSizesWentWhichWay) {
  const std::string flags = "--strategy TFReplicated --model mobilenet_v2 --explain ";
  for (const char* said : {"--all-reduce-spec pscpu:1k:xring",
                           "--architecture.algorithm2 xring --architecture.algorithm pscpu "
                           "--architecture.up_to 1024"}) {
    const auto got = compare(flags + said);
    EXPECT_EQ(got.status, 0) << got.err;
    EXPECT_NE(got.out.find("\n  pscpu: 107 chunks of 16 to 1000 elements\n"
                           "  xring: 51 chunks of 1280 to 1280000 elements\n"),
              std::string::npos)
        << got.out;
  }
  compare_refuses(flags + "--architecture.algorithm2 xring",
                  "none of these strategies has --architecture.algorithm2. Did you mean "
                  "--architecture.algorithm?");
}

/// Returns a row as bench-collectives writes it.
nlohmann::json all_reduce_row(const std::string& way, double elements, double seconds,
                              double ranks = 4) {
  return {{"run_name", "all_reduce_spec/" + way + "/ranks:4"},
          {"run_type", "iteration"},
          {"label", way},
          {"ranks", ranks},
          {"elements", elements},
          {"seconds", seconds}};
}

TEST_F(Compare, TakesTheFastestOfAMeasuredTable) {
  nlohmann::json table{
      {"benchmarks",
       {all_reduce_row("pscpu#2", 1000, 0.001), all_reduce_row("xring", 1000, 0.002),
        all_reduce_row("pscpu#2", 100000, 0.02), all_reduce_row("xring", 100000, 0.01),
        nlohmann::json{{"run_name", "mpi/ring/ranks:4"}, {"run_type", "iteration"}},
        nlohmann::json{{"run_name", "all_reduce_spec/nccl"}, {"run_type", "aggregate"}}}}};
  const auto write = [&](const auto& all) { std::ofstream(here_ / "ways.json") << all; };
  const std::string asked =
      "--strategy TFReplicated --model mobilenet_v2 --all-reduce-table ways.json --explain";
  write(table);
  const std::string its = "--all-reduce-table ways.json ";
  const std::string fix =
      ". Fix: a file of bench-collectives --benchmark_filter=all_reduce_spec --benchmark_out=FILE";
  for (const char* ranks : {"8", "4,8"}) {
    compare_refuses(asked + " --ranks " + ranks,
                    its + "has a row measured with 4 ranks, not with 8" + fix);
  }
  const auto got = compare(asked + " --ranks 04,4");
  EXPECT_EQ(got.status, 0) << got.err;
  EXPECT_NE(got.out.find("\n  pscpu#2: 107 chunks of 16 to 1000 elements\n"
                         "  xring: 51 chunks of 1280 to 1280000 elements\n"),
            std::string::npos)
      << got.out;

  auto& last = table["benchmarks"].emplace_back();
  for (const auto& [row, why] : std::vector<std::pair<nlohmann::json, std::string>>{
           {all_reduce_row("ring", 4, 1), "has a row of 'ring', which is not an all-reduce"},
           {all_reduce_row("nccl:1k:xring", 4, 1),
            "has a row of 'nccl:1k:xring', which is not an all-reduce"},
           {all_reduce_row("nccl", 4, 0), "has a row whose 'seconds' is missing or invalid"},
           {all_reduce_row("nccl", -4, 1), "has a row whose 'elements' is missing or invalid"},
           {all_reduce_row("nccl", 4.5, 1), "has a row whose 'elements' is missing or invalid"},
           {all_reduce_row("nccl", 4, 1, 4.7), "has a row whose 'ranks' is missing or invalid"},
           {all_reduce_row("nccl", 4, 1, 2), "has a row measured with 2 ranks, not with 4"}}) {
    last = row;
    write(table);
    compare_refuses(asked, its + why + fix);
  }
  for (const char* empty : {"", "[]", "{\"benchmarks\": 3}", "{\"benchmarks\": [3]}"}) {
    write(empty);
    compare_refuses(asked, its + "has no row all_reduce_spec/WAY" + fix);
  }
  compare_refuses("--strategy TFReplicated --all-reduce-table none",
                  "--all-reduce-table none is not a readable file" + fix);
}

TEST_F(Compare, TenThousandWorkersTakeSeconds) {
  const auto all = rows("--strategy WFBPUnlimited --ranks 32,10000 --iterations 2 --warmup 1");
  EXPECT_EQ(all.front()["simulated_workers"], 32);
  EXPECT_EQ(all.back()["simulated_workers"], 16);
  EXPECT_EQ(all.back()["ranks"], 10000);
  EXPECT_GT(all.back()["iteration_ms"]["median"], all.front()["iteration_ms"]["median"]);
  compare_refuses("--strategy KungFu --ranks 2000",
                  "KungFu is simulated message by message, with at most 1024 workers.");
  const auto left =
      compare("--model mobilenet_v2 --link 10Gbit/50us --ranks 2000 --iterations 1 --warmup 0");
  EXPECT_EQ(left.status, 0) << left.err;
  EXPECT_NE(left.err.find("left out: KungFu is simulated message by message"), std::string::npos);
  EXPECT_NE(left.err.find("left out: BytePS with --server-hosts workers is simulated message by"),
            std::string::npos);
}

/// A simulated host is as full as the real one, and a worker that is unlike the others is simulated
/// by itself.
TEST_F(Compare, MoreThanAThousandWorkersAreNeverSimulatedMessageByMessage) {
  const std::string flags = "--model mobilenet_v2 ";
  compare_refuses(
      flags + "--strategy DDP --ranks 10000 --link 1000x10Gbit/1us",
      "DDP: 2000 of 10000 workers would be simulated message by message, but at most 1024 can "
      "be. Fix: fewer --ranks, fewer of them on a host, or other strategies");
  for (const std::string one : {"--slow-rank 1500:10", "--jitter 0.1"}) {
    compare_refuses(flags + "--strategy BSP --ranks 4,2000 " + one,
                    one.substr(0, one.find(' ')) +
                        " makes workers differ, so they are simulated message by message, 1024 at "
                        "most. Fix: fewer --ranks, or leave it out");
  }
}

/// Staleness is not stated, because a few workers that push on behalf of many have less of it.
TEST_F(Compare, NobodyCountsThePushesOfManyWorkers) {
  const auto all = rows(
      "--model mobilenet_v2 --strategy MXNetDistAsync --server-hosts own --ranks 16,2000 "
      "--iterations 1");
  EXPECT_GT(all.front()["staleness"].size(), 1U);
  EXPECT_TRUE(all[2]["staleness"].empty());
}

/// JSON has no infinity, so such rows must be written and resumed without one.
TEST_F(Compare, ProfilesOfNoTimeAndOfAgesAreRowsToResume) {
  for (const char* passes : {"0,0", "1e12,1e12"}) {
    SCOPED_TRACE(passes);
    std::ofstream(here_ / "mine.csv") << "name,elements,forward_us,backward_us\nall,10," << passes;
    std::ofstream(here_ / "kept").close();
    const std::string flags =
        "--model mine.csv --strategy Local,BSP --ranks 1 --json kept --resume kept";
    const auto got = compare(flags);
    EXPECT_EQ(got.status, 0) << got.err;
    EXPECT_EQ(got.out.find("nan"), std::string::npos) << got.out;
    const auto again = compare(flags);
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(again.out, got.out);
    EXPECT_EQ(lines(read(here_ / "kept")), 3U);
  }
}

TEST_F(Compare, FilesMayHaveAnyNames) {
  const std::string name = "a\"b\xff.csv";
  std::ofstream(here_ / name) << "name,elements,forward_us,backward_us\nall,10,1,1\n";
  const auto all = rows("--strategy BSP --csv table --model '" + name + "'");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all.front()["model"], "a\"b\xef\xbf\xbd.csv") << "JSON is UTF-8";
  const std::string table = read(here_ / "table");
  EXPECT_NE(table.find("\n\"BSP\",\"exact\",\"a\"\"b\xff.csv\",\"simulated\","), std::string::npos)
      << table;
}

TEST_F(Compare, AFullDiskIsSaid) {
  const std::string full = "cannot write /dev/full: No space left on device. Fix: another file";
  compare_refuses("--strategy BSP --model mobilenet_v2 --csv /dev/full", full);
  compare_refuses("--strategy BSP --model mobilenet_v2 --json /dev/full", full);
  refuses(shell("sh -c '" TUTTI_APPS_DIRECTORY "/tutti-compare --list-models >/dev/full'"),
          "tutti-compare: standard output cannot be written. Fix: free space or another file");
}

TEST_F(Compare, EmulationSaysWhatSimulationPredicts) {
  std::ofstream(here_ / "mine.csv") << "name,elements,forward_us,backward_us\n"
                                       "first,1000,20000,40000\nlast,20000,20000,40000\n";
  for (const auto& each :
       rows("--strategy all --model mine.csv --world emulated --payloads carried --iterations 2 "
            "--warmup 1 --link 1Gbit/50us")) {
    const double predicted = each["predicted_ms"];
    EXPECT_NEAR(each["measured_ms"].get<double>(), predicted, 0.01 * predicted) << each;
    EXPECT_GE(each["wall_over_logical"].get<double>(), 1);
    EXPECT_GE(each["worst_lateness_us"].get<double>(), each["mean_lateness_us"].get<double>());
  }
}

/// Local SGD sends in one step of four, so the mean over the steps counts, not the median, which is
/// a step that sends nothing.
TEST_F(Compare, IterationsThatDifferCountByTheirMean) {
  std::ofstream(here_ / "mine.csv") << "name,elements,forward_us,backward_us\n"
                                       "all,1000000,10000,20000\n";
  const auto local = rows(
                         "--strategy LocalSGD --model mine.csv --world emulated --link 1Gbit/50us "
                         "--payloads carried --iterations 4 --warmup 0")
                         .front();
  const double mean = local["iteration_ms"]["mean"];
  EXPECT_GT(mean, 1.1 * local["iteration_ms"]["median"].get<double>());
  EXPECT_EQ(local["measured_ms"], mean);
  EXPECT_NEAR(local["predicted_ms"].get<double>(), mean, 0.01 * mean);
}

TEST_F(Compare, RanksMayShareANic) {
  const auto one = rows("--strategy BSP --link 10Gbit/0us --ranks 8").front();
  const auto four = rows("--strategy BSP --link 4x10Gbit/0us --ranks 8").front();
  // In either case 14/8 of the bytes pass each NIC in one direction; two hosts could do with 2/2.
  EXPECT_NEAR(four["exposed_ms"].get<double>(), one["exposed_ms"].get<double>(),
              0.05 * one["exposed_ms"].get<double>());
  EXPECT_LT(four["lower_bound_ms"].get<double>(), 1e-9 + one["lower_bound_ms"].get<double>());
}

/// Checks every strategy with many small tensors, with one large tensor, and with a network; on
/// links where bytes matter and on links where latencies do; on hosts of one rank, full hosts and
/// others; with servers anywhere.
TEST_F(Compare, NoIterationIsShorterThanItsBound) {
  std::ofstream(here_ / "small.csv") << "name,elements,forward_us,backward_us\n"
                                        "stem.weight,37,10,20\nstem.bias,1,1,2\n"
                                        "body.weight,70100,30,60\nbody.bias,5003,20,40\n"
                                        "head.weight,513,10,20\nhead.bias,8,1,2\n";
  std::ofstream(here_ / "large.csv") << "name,elements,forward_us,backward_us\n"
                                        "all,5000001,100,200\n";
  std::set<std::string> serving;
  const auto keep_it = [&](const std::string& flags, std::size_t least) {
    const auto found = rows("--iterations 4 " + flags);
    EXPECT_GE(found.size(), least) << flags;
    for (const auto& each : found) {
      EXPECT_GE(each["iteration_ms"]["mean"].get<double>(),
                each["lower_bound_ms"].get<double>() * (1 - 1e-9))
          << each;
      if (each["servers"] != 0) {
        serving.insert(each["strategy"].get<std::string>() + ",");
      }
    }
  };
  const std::string models = " --model small.csv,large.csv ";
  const std::string links =
      all_of_a_product
          ? "--link 1Gbit/50us,100Gbit/5us,1Gbit/5ms,2x10Gbit/50us,4x1Gbit/50us --ranks 1,2,4,5,7"
          : "--link 100Gbit/5us,1Gbit/5ms,4x1Gbit/50us --ranks 1,4,7";
  constexpr std::size_t rows_of_a_model = all_of_a_product ? 5 * 5 : 3 * 3;
  const std::size_t all = listed(compare("--list-strategies").out);
  keep_it("--strategy '*'" + models + links, all * 2 * rows_of_a_model);
  keep_it("--strategy '*' --model resnet50 --ranks 2,5 --link 1Gbit/50us,4x100Gbit/5us",
          all * 2 * 2);

  ASSERT_GE(serving.size(), 6U);
  std::string with_servers =
      "--strategy " + std::accumulate(serving.begin(), serving.end(), std::string());
  with_servers.back() = ' ';
  with_servers += "--server-hosts ";
  const std::size_t some = serving.size();
  for (const std::string where : {"own --servers 2", "workers --servers 2", "own --servers 3",
                                  "workers --servers 3", "own --servers 1"}) {
    keep_it(with_servers + where + models + links, some * 2 * rows_of_a_model);
  }
  for (const std::string where : {"1 --servers 1", "1 --servers 2", "2 --servers 3",
                                  "4 --servers 5", "5 --servers 5", "5 --servers 10"}) {
    keep_it(with_servers + "mixed --link 1Gbit/50us,100Gbit/5us --ranks " + where + models,
            some * 2 * 2);
  }
}

TEST_F(Compare, WritesATableForSpreadsheets) {
  const auto got = compare("--strategy BSP,BytePS --model mobilenet_v2 --csv table.csv");
  ASSERT_EQ(got.status, 0) << got.err;
  const std::string table = read(here_ / "table.csv");
  EXPECT_EQ(lines(table), 4U) << "a header, two strategies and the baseline";
  EXPECT_EQ(table.find("strategy,kind,model"), 0U);
  EXPECT_NE(table.find(",ranks,workers,servers,"), std::string::npos) << table;
  EXPECT_NE(table.find(",5,4,1,"), std::string::npos) << "BytePS's: " << table;
  EXPECT_EQ(std::count(got.out.begin(), got.out.end(), '*'), 2) << "the best exact, the best lossy";
}

TEST_F(Compare, WhatIsSentInSomeStepsAloneCountsInTheMean) {
  std::ofstream(here_ / "mine.csv")
      << "name,elements,forward_us,backward_us\nall,1000000,1000,1000\n";
  const auto got =
      rows(
          "--strategy LocalSGD --model mine.csv --link 8Gbit/0us --ranks 2 --memory-bandwidth 1e6 "
          "--csv table.csv")
          .front();
  // 2 ms of compute; every fourth step adds 4 MB at 1 GB/s after it.
  EXPECT_NEAR(got["iteration_ms"]["median"].get<double>(), 2, 0.001);
  EXPECT_NEAR(got["iteration_ms"]["p95"].get<double>(), 6, 0.001);
  EXPECT_NEAR(got["iteration_ms"]["mean"].get<double>(), 3, 0.001);
  EXPECT_NEAR(got["samples_per_second"].get<double>(), 2 / 3e-3, 1);
  EXPECT_NE(read(here_ / "table.csv").find(",3.00000"), std::string::npos) << "the mean there, too";
}

TEST_F(Compare, WhatHasSentNothingIsNotTheBest) {
  const auto got = compare("--strategy DiLoCo,LocalSGD --model mobilenet_v2 --link 1Gbit/50us");
  EXPECT_NE(got.out.find("* LocalSGD"), std::string::npos) << got.out;
  EXPECT_NE(got.out.find("  DiLoCo"), std::string::npos) << got.out;
}

TEST_F(Compare, APartOfAPeriodIsSaid) {
  const std::string flags = "--strategy BSP,DiLoCo,LocalSGD,EASGD --model mobilenet_v2 ";
  const auto says = [&](const std::string& more, const std::vector<std::string>& sentences) {
    SCOPED_TRACE(more);
    const auto got = compare(flags + more);
    EXPECT_EQ(got.status, 0) << got.err;
    for (const auto& each : sentences) {
      EXPECT_NE(got.out.find("\n  " + each + "\n"), std::string::npos) << got.out;
    }
    EXPECT_EQ(lines(got.out), 2 + 5 + sentences.size()) << got.out;
    return got.out;
  };
  const std::string diloco = "DiLoCo exchanges every 500 iterations, but its row covers ";
  const auto first = says("--json kept", {diloco + "12. Fix: --iterations 500"});
  EXPECT_EQ(says("--resume kept", {diloco + "12. Fix: --iterations 500"}), first);
  says("--iterations 6",
       {diloco + "6. Fix: --iterations 500",
        "LocalSGD exchanges every 4 iterations, but its row covers 6. Fix: --iterations 8"});
  const std::string five =
      " exchanges every 5 iterations, but its row covers 12. Fix: --iterations 15";
  says("--architecture.period 5", {"DiLoCo" + five, "LocalSGD" + five, "EASGD" + five});
  says("--architecture.period 3", {});
  says("--ranks 1", {});
}

/// Communication takes 4 % longer than computing, and a delayed sum has a step's computing in which
/// to arrive, which is used up only after many iterations.
TEST_F(Compare, APipelineThatTheWarmUpHasNotFilledIsSaid) {
  std::ofstream profile(here_ / "mine.csv");
  profile << "name,elements,forward_us,backward_us\n";
  for (const char* name : {"a", "b", "c", "d"}) {
    profile << name << ",2500000,5000,10000\n";
  }
  profile.close();
  const std::string flags =
      "--strategy BSP,Relaxed --model mine.csv --ranks 2 --link 5.128Gbit/0us "
      "--memory-bandwidth 1e6 --warmup ";
  const auto few = compare(flags + "3 --json kept");
  EXPECT_NE(few.out.find("\n  Relaxed is predicted below its bound, because its first iterations "
                         "find idle links. Fix: --warmup 30 or more\n"),
            std::string::npos)
      << few.out;
  EXPECT_EQ(lines(few.out), 2U + 3U + 1U) << few.out;
  EXPECT_EQ(compare(flags + "3 --resume kept").out, few.out);
  EXPECT_EQ(lines(compare(flags + "30").out), 2U + 3U);
}

/// The server is on the first worker's host, so that nothing of that worker's passes a NIC.
TEST_F(Compare, WorkersThatKeepNoStepCountByTheirPace) {
  std::ofstream(here_ / "mine.csv")
      << "name,elements,forward_us,backward_us\nall,1000000,3000,6000\n";
  const auto got =
      rows(
          "--strategy MXNetDistAsync --model mine.csv --link 8Gbit/0us --ranks 2 --servers 1 "
          "--memory-bandwidth 1e6")
          .front();
  const double samples = 1 / 9e-3 + 1 / (9e-3 + 2 * 4e-3);
  EXPECT_NEAR(got["samples_per_second"].get<double>(), samples, 0.1);
  EXPECT_NEAR(got["iteration_ms"]["mean"].get<double>(), 2e3 / samples, 0.01);
}

/// The model is one bucket, so its server is on the first worker's host, which therefore only
/// computes. The others push one after the other, and nobody waits for their answers. Before the
/// first push arrives, the first worker has measured a dozen iterations alone.
TEST_F(Compare, AWorkerAheadOfTheOthersMeasuresBesideThem) {
  const auto row =
      rows("--strategy AsyncEASGD --model mobilenet_v2 --servers 4 --link 100Mbit/50us").front();
  const double push = 3504872 * 4 / 12.5e6;
  const double compute = 1e-3 * row["lower_bound_ms"].get<double>();
  const double mean = 4 / (1 / compute + 3 / (3 * push));
  EXPECT_NEAR(row["iteration_ms"]["mean"].get<double>(), 1e3 * mean, 1e-6 * mean);
}

/// Where workers do not wait, no NIC delays an iteration, however many bytes there are.
TEST_F(Compare, WhereNoNicIsInTheWayNoTimeOfItsIsSaid) {
  const auto got =
      compare("--strategy MXNetDistAsync,BSP --model mobilenet_v2 --servers 1 --json rows");
  ASSERT_EQ(got.status, 0) << got.err;
  const auto words = [&](const std::string& name) {
    std::istringstream row(got.out.substr(got.out.find(" " + name)));
    std::string line;
    std::getline(row, line);
    std::istringstream of(line);
    return std::vector<std::string>(std::istream_iterator<std::string>(of), {});
  };
  // Name, kind, machines, samples, iteration, exposed, sent, then wire, bound and of bound.
  EXPECT_EQ(words("BSP").size(), 10U) << got.out;
  EXPECT_EQ(words("MXNetDistAsync").size(), 9U + 3) << "staleness, dropped, consensus: " << got.out;
  std::ifstream in(here_ / "rows");
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line);
    EXPECT_GT(row["bytes_sent_per_rank"], 0) << line;
    EXPECT_EQ(row["wire_bound_ms"].is_null(), row["strategy"] == "MXNetDistAsync") << line;
  }
}

/// Returns output as of bench-kernels, for one compressor with these times for an element.
std::string times(const std::string& compressor, double encode_ns, double encode_bytes,
                  double add_ns, double add_bytes) {
  return nlohmann::json{{"run_name", "rates/" + compressor + "/min_time:0.250/manual_time"},
                        {"run_type", "iteration"},
                        {"encode_ns", encode_ns},
                        {"encode_bytes", encode_bytes},
                        {"add_ns", add_ns},
                        {"add_bytes", add_bytes}}
      .dump();
}

TEST_F(Compare, KernelsTakeWhatBenchKernelsMeasured) {
  std::ofstream(here_ / "mine.csv")
      << "name,elements,forward_us,backward_us\nall,1000000,1000,1000\n";
  const std::string top_k = "compression::error_feedback<compression::top_k>";
  const auto write = [&](double encode_ns, double add_ns) {
    std::ofstream(here_ / "times")
        << "{\"benchmarks\": [" << times(top_k, encode_ns, 12.008, add_ns, 8.008) << ","
        << times("compression::fp16", 1, 6, 1, 10) << "]}";
  };
  const std::string flags =
      "--strategy TopK --model mine.csv --ranks 2 --link 8Gbit/0us --iterations 2 ";
  const auto row = [&](const std::string& more) { return rows(flags + more).front(); };
  const auto milliseconds = [&](const std::string& more) {
    return row(more)["iteration_ms"]["mean"].get<double>();
  };
  const double at_once = milliseconds("--memory-bandwidth 1e9");
  write(2, 1);
  const auto slow = row("--kernels times");
  // An element is encoded once and added twice: 12.008 + 2 x 8.008 bytes in 2 + 2 x 1 ns.
  EXPECT_NEAR(slow["kernel_bytes_per_second"].get<double>(), 28.024 / 4 * 1e9, 1);
  EXPECT_EQ(slow["kernels"], "times");
  EXPECT_EQ(slow["charged_by"], "the times in times");
  // A million elements are encoded, a sum is cleared, two payloads are added, and their mean is
  // taken.
  const double charged = 12.008 + 4 + 2 * 8.008 + 8;
  const double taken = slow["iteration_ms"]["mean"].get<double>() - at_once;
  EXPECT_NEAR(taken, charged / 7.006, 0.02);
  write(1, 0.5);
  EXPECT_NEAR(milliseconds("--kernels times") - at_once, taken / 2, 0.02);

  compare_refuses(flags + "--kernels none",
                  "--kernels none is not a readable file. Fix: a file of bench-kernels ");
  compare_refuses(flags + "--kernels .",
                  "--kernels . is not a readable file. Fix: a file of bench-kernels ");
  compare_refuses(
      "--strategy EFSignSGD --kernels times",
      "EFSignSGD: times has no row rates/compression::rescaled_error_feedback<compression::"
      "scaled_sign>. Fix: a file of bench-kernels");
  std::ofstream(here_ / "times") << "{\"benchmarks\": [" << times(top_k, -1, 12, 1, 8) << "]}";
  compare_refuses(flags + "--kernels times", "times: 'encode_ns' of ");
  for (const char* other :
       {"[1]", "1", "{\"benchmarks\": 3}", "{\"benchmarks\": [3]}", "{\"benchmarks\": [[3]]}",
        "{\"benchmarks\": [{\"run_name\": 3}]}", "{\"benchmarks\": ["}) {
    std::ofstream(here_ / "times") << other;
    compare_refuses(flags + "--kernels times", "times has no row rates/COMPRESSOR. Fix:");
  }
  std::ofstream(here_ / "times")
      << "{\"benchmarks\": [{\"run_name\": \"rates/x\", \"name\": 3, \"encode_ns\": []}]}";
  compare_refuses(flags + "--kernels times", "times: 'encode_ns' of a row is missing");
  EXPECT_EQ(row("")["charged_by"], "900 GB/s, a V100's by its data sheet");
}

/// The tables of a slower and of a faster link confirm the rate that a row states. They are a tenth
/// apart from it, because Dense16 takes whole cycles of a millisecond.
TEST_F(Compare, ARowPaysBelowTheRateThatItStates) {
  std::ofstream(here_ / "mine.csv") << "name,elements,forward_us,backward_us\n"
                                       "first,4000000,500,1000\nlast,1000000,500,1000\n";
  const std::string flags =
      "--strategy ZeROPlusPlus,TopK,WFBPUnlimited --model mine.csv --memory-bandwidth 2 --link ";
  const auto table = [&](double bits_per_second) {
    std::map<std::string, nlohmann::json> by_name;
    for (const auto& each : rows(flags + std::to_string(bits_per_second / 1e6) + "Mbit/20us")) {
      by_name[each["strategy"]] = each;
    }
    return by_name;
  };
  auto stated = table(1e9);
  EXPECT_TRUE(stated["Dense16"]["pays_below_bits_per_second"].is_null());
  EXPECT_TRUE(stated["WFBPUnlimited"]["pays_below_bits_per_second"].is_null());
  for (const char* name : {"ZeROPlusPlus", "TopK"}) {
    const double rate = stated[name]["pays_below_bits_per_second"];
    EXPECT_GT(rate, 1e7) << name;
    ASSERT_LT(rate, 1e11) << name;
    const auto faster_than_dense = [&](double link) {
      auto at = table(link);
      return at["Dense16"]["iteration_ms"]["mean"].get<double>() /
             at[name]["iteration_ms"]["mean"].get<double>();
    };
    EXPECT_GT(faster_than_dense(0.9 * rate), 1) << name;
    EXPECT_LT(faster_than_dense(1.1 * rate), 1) << name;
    EXPECT_EQ(table(3e10)[name]["pays_below_bits_per_second"], rate) << "whatever the link";
  }
}

TEST_F(Compare, WhatTrainsAModelARankIsNoContender) {
  const auto got = compare("--strategy Local,WFBPUnlimited,MXNetDistAsync --model mobilenet_v2");
  ASSERT_EQ(got.status, 0) << got.err;
  EXPECT_NE(got.out.find("\n  Local           apart "), std::string::npos) << got.out;
  for (const char* best : {"\n* WFBPUnlimited ", "\n* MXNetDistAsync ", "\n* Dense16 "}) {
    EXPECT_NE(got.out.find(best), std::string::npos) << best << got.out;
  }
}

/// Rank 2 takes ten times as long. Strategies that wait for all ranks keep little more than a tenth
/// of their throughput. Those that wait for none keep that of the other three ranks, and so does a
/// step with one backup worker.
TEST_F(Compare, ASlowRankHoldsUpThoseWhoWaitForIt) {
  const std::string flags =
      "--model mobilenet_v2 --server-hosts own --servers 4 --architecture.backups 1 "
      "--strategy MXNetDistSync,MXNetDistAsync,SSP,SyncReplicas ";
  const auto without = rows(flags);
  const auto with = rows(flags + "--slow-rank 2:10");
  ASSERT_EQ(with.size(), 5U);
  const auto kept = [&](std::size_t row) {
    return with[row]["samples_per_second"].get<double>() /
           without[row]["samples_per_second"].get<double>();
  };
  EXPECT_LT(kept(0), 0.2);
  EXPECT_GT(kept(1), 0.75);
  EXPECT_LT(kept(2), 0.3) << "a bound of three steps";
  EXPECT_GT(kept(3), 0.75);
  EXPECT_TRUE(with[0]["staleness"].empty()) << "no server counts";
  EXPECT_GT(with[1]["staleness"].size(), 1U);
  EXPECT_GT(with[2]["pushes_held"].get<int>(), 0);
  EXPECT_EQ(with[3]["staleness"].size(), 1U) << "what is stale is dropped";
  EXPECT_GT(with[3]["pushes_dropped"].get<int>(), 0);
  EXPECT_EQ(with[3]["kind"], "other");
  const auto alone = [&](const std::string& slow) {
    return rows("--model mobilenet_v2 --strategy Local" + slow)
        .front()["samples_per_second"]
        .get<double>();
  };
  for (const std::string slow : {" --slow-rank 0:10", " --slow-rank 2:10"}) {
    EXPECT_NEAR(alone(slow), alone("") * 3.1 / 4, 0.1) << "whichever it is";
  }
}

/// Besides the time, a row states how far workers' models drift apart, in steps along noise, and
/// how stale the gradients are of ranks with which others average. The distance of ranks that train
/// alone is not reduced by a slow rank.
TEST_F(Compare, WhatARowGivesUpStandsBesideItsTime) {
  const std::string flags =
      "--model mobilenet_v2 --strategy WFBPUnlimited,Local,SMA,PairAveraging,ADPSGD "
      "--iterations 8 --warmup 3 ";
  const auto all = rows(flags + "--slow-rank 1:10");
  ASSERT_EQ(all.size(), 6U);
  const auto apart = [&](std::size_t row) { return all[row]["consensus"].get<double>(); };
  EXPECT_TRUE(all[0]["consensus"].is_null()) << "replicas are equal";
  double alone = 0;
  double kept = 0;
  for (int before = 4; before < 12; ++before) {  // steps taken before each measured iteration
    alone += before * 0.75 / 8;
    for (int step = 0; step < before; ++step) {
      kept += std::pow(0.81, step) * 0.75 / 8;
    }
  }
  EXPECT_NEAR(apart(1), std::sqrt(alone), 0.03);
  EXPECT_NEAR(apart(2), std::sqrt(kept), 0.03);
  for (const std::size_t row : {3U, 4U}) {
    EXPECT_GT(apart(row), 0.5) << all[row]["strategy"];
    EXPECT_LT(apart(row), 0.9 * apart(1)) << all[row]["strategy"];
  }
  EXPECT_TRUE(all[3]["staleness"].empty()) << "nobody changes another's model";
  EXPECT_GT(all[4]["staleness"].size(), 4U) << "rank 1 is passive";
  const auto got = compare(flags);
  EXPECT_NE(got.out.find("  consensus  staleness  dropped %\n"), std::string::npos) << got.out;
}

TEST_F(Compare, RefusesInOneLine) {
  compare_refuses("--slow-rank 2", "--slow-rank '2' is not RANK:FACTOR. Fix: 2:10");
  compare_refuses("--slow-rank 4:10", "--slow-rank: rank 4 does not train. Fix: from 0 to 3");
  compare_refuses("--strategy SyncReplicas --architecture.backups 4",
                  "SyncReplicas: 4 backups among 4 workers leave a step no gradient to wait for. "
                  "Fix: set architecture.backups to at most 3");
  compare_refuses("--strategy SSP --architecture.staleness -1",
                  "SSP: architecture.staleness of -1 is out of range");
  compare_refuses("--link 10Gb/5us",
                  "--link 10Gb/5us is not a link. Fix: rate and latency as 10Gbit/50us");
  compare_refuses("--link 0Gbit/5us", "--link 0Gbit/5us is not a link");
  compare_refuses("--link 10Gbit", "--link 10Gbit is not a link");
  compare_refuses("--link 0x10Gbit/5us", "--link 0x10Gbit/5us is not a link");
  compare_refuses("--link 10Gbit/-5us", "--link 10Gbit/-5us is not a link");
  for (const char* link : {"10Gbit/infs", "10Gbit/1e300s", "infGbit/5us", "nanGbit/5us",
                           "1e300Gbit/5us", "1e-300bit/5us"}) {
    compare_refuses(std::string("--link ") + link,
                    std::string("--link ") + link + " is not a link");
  }
  for (const char* flag : {"--jitter", "--slowdown", "--memory-bandwidth"}) {
    compare_refuses(std::string(flag) + " 1e308",
                    std::string(flag) + " 1e+308 is out of range. Fix: a number from 0 to 1e15");
  }
  compare_refuses("--memory-bandwidth 1e-300",
                  "--memory-bandwidth 1e-300 is out of range. Fix: 0.001 GB/s or more");
  compare_refuses("--slow-rank 1:1e308", "--slow-rank '1:1e308' is not RANK:FACTOR. Fix: 2:10");
  compare_refuses(
      "--slow-rank 1:0.5",
      "--slow-rank '1:0.5' is not RANK:FACTOR. Fix: 2:10 if rank 2 computes 10 times as "
      "long, or up to 1000000");
  compare_refuses(
      "--strategy BSP --slowdown 101",
      "BSP: a replay's slowdown, a share of a pass, is out of range. Fix: from 0 to 100");
  compare_refuses("--payloads carried", "--payloads carried takes time of this host");
  compare_refuses("--link 10Gbit/5us/0%", "--link 10Gbit/5us/0% is not a link");
  compare_refuses("--link 10Gbit/5us/0.5", "--link 10Gbit/5us/0.5 is not a link");
  compare_refuses("--link 2147483647x10Gbit/50us",
                  "--link 2147483647x10Gbit/50us is not a link. Fix:");
  compare_refuses("--link 4294967297x10Gbit/50us",
                  "--link 4294967297x10Gbit/50us is not a link. Fix:");
  compare_refuses("--network 10GBE", "no network or file is named '10GBE'. Did you mean 10GbE?");
  compare_refuses("--model resnet51",
                  "no model to replay is named 'resnet51'. Did you mean resnet50?");
  compare_refuses("--model nowhere.csv", "nowhere.csv");
  compare_refuses("--world actual", "no world is named 'actual'. Did you mean ");
  compare_refuses("--strategy BytPS", "no strategy is named 'BytPS'. Did you mean BytePS?");
  compare_refuses("--strategy BytePS,", "no strategy has an empty name. Fix: ");
  compare_refuses("--strategy 'hovorod*'",
                  "no strategy matches 'hovorod*'. Fix: see the names with --list-strategies");
  compare_refuses("--ranks 0", "--ranks 0 is not a number of workers");
  compare_refuses("--link ,", "--link , names no link. Fix: one as 10Gbit/50us");
  compare_refuses("--memory-bandwidth 0",
                  "--memory-bandwidth 0 is out of range. Fix: 0.001 GB/s or more");
  compare_refuses("--ranks 4,x", "--ranks x is not a number of workers");
  compare_refuses("--fusion.byte 1", "none of these strategies has --fusion.byte. Did you mean ");
  // The baseline has this flag.
  compare_refuses("--strategy WFBP --fusion.bytes 1MiB",
                  "none of these strategies has --fusion.bytes. Did you mean --schedule.");
  compare_refuses(
      "--strategy Local --fusion.bytes 1MiB",
      "none of these strategies has --fusion.bytes because they have no options. Fix: ");
  compare_refuses("--strategy BytePS --architecture.servers 1e12",
                  "--architecture.servers 1e12 is not a valid number. Fix:");
  compare_refuses("--strategy BytePS --architecture.servers 2147483647",
                  "BytePS: --architecture.servers 2147483647 is out of range. Fix: from 1 to 1024");
  compare_refuses("--epochs 3", "there is no flag --epochs");
  compare_refuses("--resume /", "cannot read /. Fix: --resume a file that --json has written");
  compare_refuses("--csv /nowhere/table", "cannot write /nowhere/table");
  compare_refuses("--json /nowhere/rows", "cannot write /nowhere/rows");
}

}  // namespace
}  // namespace tutti::test

#endif
