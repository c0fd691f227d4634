#pragma once

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/median.hpp"

namespace bench {

/// A reporter that passes everything on to the one that the flags choose, and ends with a table on
/// stderr: a row for each size, with tutti's time beside its limit and its peers. Repetitions are
/// represented by their medians.
class summary : public benchmark::BenchmarkReporter {
 public:
  summary() : shown_(benchmark::CreateDefaultDisplayReporter()) {}

  bool ReportContext(const Context& context) override { return shown_->ReportContext(context); }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const auto& each : runs) {
      const auto bytes = each.counters.find("bytes");
      if (each.run_type == Run::RT_Iteration && !each.error_occurred &&
          bytes != each.counters.end()) {
        note(static_cast<std::size_t>(bytes->second), each);
      }
    }
    shown_->ReportRuns(runs);
  }
  void Finalize() override {
    shown_->Finalize();
    if (!rows_.empty()) {
      print();
    }
  }

 private:
  using row = std::map<std::string, std::vector<double>>;

  void note(std::size_t bytes, const Run& run) {
    row& mine = rows_[bytes];
    // Runs of more threads have a limit of their own, which is not in this table of two.
    const bool of_two_threads = run.counters.find("threads_us") != run.counters.end();
    for (const auto& [name, counter] : run.counters) {
      if (name != "of_limit" || of_two_threads) {
        mine[name].push_back(counter);
      }
    }
    mine["state " + run.report_label].push_back(1);
  }

  static void cell(const row& from, const char* name, const char* format) {
    const auto found = from.find(name);
    if (found == from.end()) {
      std::fprintf(stderr, "%11s", "-");
    } else {
      std::fprintf(stderr, format, tutti::median(found->second));
    }
  }

  void print() const {
    std::fprintf(stderr,
                 "\nall-reduce of floats, 2 ranks, medians; times in us\n"
                 "%10s%11s%11s%11s%11s%11s%11s%11s%11s%11s%11s  cores\n",
                 "bytes", "threads", "one pass", "of limit", "MPI", "MPI/threads", "processes",
                 "of limit", "MPI beside", "MPI ring", "of MPI");
    for (const auto& [bytes, from] : rows_) {
      std::fprintf(stderr, "%10zu", bytes);
      cell(from, "threads_us", "%11.2f");
      cell(from, "one_pass_us", "%11.2f");
      cell(from, "of_limit", "%11.2f");
      cell(from, "mpi_us", "%11.2f");
      cell(from, "over_mpi", "%11.2f");
      cell(from, "processes_us", "%11.2f");
      cell(from, "processes_of_limit", "%11.2f");
      cell(from, "peer_us", "%11.2f");
      cell(from, "mpi_ring_us", "%11.2f");
      cell(from, "of_mpi", "%11.2f");
      std::fprintf(stderr, " ");
      for (const auto& [name, values] : from) {
        if (name.starts_with("state ")) {
          std::fprintf(stderr, " %s x%zu", name.c_str() + 6, values.size());
        }
      }
      std::fprintf(stderr, "\n");
    }
    std::fprintf(stderr,
                 "of limit: of the one-pass bound that is measured in the same case, batch by "
                 "batch; MPI: MPI_Allreduce between processes, likewise; processes: ours, in their "
                 "host's memory\n");
  }

  std::unique_ptr<benchmark::BenchmarkReporter> shown_;
  std::map<std::size_t, row> rows_;
};

}  // namespace bench
