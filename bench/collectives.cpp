// How fast are all-reduces? tutti's collectives between threads are measured beside the bound that
// shared memory sets and, under `mpirun -np 2`, beside MPI's all-reduce between processes. Between
// hosts, one chunk of 4, 25 and 100 MB is measured, whose time `bench/lab wire` compares with what
// iperf3 carries. Rows all_reduce_spec/ measure the algorithms of an --all_reduce_spec, of which
// the apps' `--all-reduce-table FILE` takes the fastest.
//
//   bench-collectives
//   mpirun -np 2 bench-collectives --benchmark_filter='addressable|mpi'
//   mpirun -np 4 bench-collectives --benchmark_filter=all_reduce_spec --benchmark_out=FILE
//   bench/lab wire 1gbit build/release/bin/bench-collectives

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/add_floats.hpp"
#include "collectives/job.hpp"
#include "collectives/one_pass.hpp"
#include "collectives/summary.hpp"
#include "collectives/team.hpp"
#include "program.hpp"
#include "tutti/base/line_vector.hpp"
#include "tutti/base/median.hpp"
#include "tutti/benchmark.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/strategies/all_reduce_spec.hpp"
#include "tutti/strategies/tf_reduction.hpp"

namespace bench {

namespace {

using tutti::median;

constexpr double batch_seconds = 2e-3;
constexpr std::size_t most_calls = 4096;

/// Chooses how many calls make a batch, unless an earlier repetition has chosen: enough to time,
/// but so few that the contenders alternate before the machine changes its speed.
void choose(std::size_t& calls, double seconds_a_call) {
  if (calls == 0) {
    calls = std::clamp(static_cast<std::size_t>(batch_seconds / seconds_a_call), std::size_t{1},
                       most_calls);
  }
}

void report(benchmark::State& state, std::size_t bytes, int ranks, double seconds_a_call) {
  const double rate = static_cast<double>(bytes) / seconds_a_call;
  state.counters["bytes"] = static_cast<double>(bytes);
  state.counters["bytes_per_second"] = rate;
  state.counters["busbw"] = rate * 2 * (ranks - 1) / ranks;
}

/// Every rank's data and transport, and a collective over them.
template <class Collective>
class threads {
 public:
  threads(int ranks, std::size_t bytes, Collective how = {})
      : how_(how),
        fabric_(ranks),
        values_(tutti::at(ranks), tutti::line_vector<float>(bytes / sizeof(float))),
        scratch_(tutti::at(ranks), std::vector<std::byte>(how.scratch_bytes(
                                       bytes / sizeof(float), sizeof(float), ranks))) {}

  std::vector<float*> buffers() {
    std::vector<float*> all;
    for (auto& each : values_) {
      all.push_back(each.data());
    }
    return all;
  }

  void operator()(int rank, std::size_t calls) {
    auto& world = fabric_.end(rank);
    auto& mine = values_[tutti::at(rank)];
    const tutti::reduction<add_floats> data{reinterpret_cast<std::byte*>(mine.data()),
                                            mine.size(),
                                            sizeof(float),
                                            {&uncompressed},
                                            scratch_[tutti::at(rank)]};
    const tutti::endpoint<tutti::transport::in_process> self(
        world, tutti::tag{tutti::channel::data, 0, 0});
    drive(world, repeat(self, data, calls, how_));
  }

  /// Whether one call gives the right sum, in rank order if the collective promises that, and the
  /// same bits on every rank. Values are zero afterwards.
  bool adds_up(team& ranks) {
    for (std::size_t rank = 0; rank < values_.size(); ++rank) {
      for (std::size_t i = 0; i < values_[rank].size(); ++i) {
        values_[rank][i] = value(rank, i);
      }
    }
    ranks.time([this](int rank, std::size_t calls) { once(rank, calls); }, 1);
    bool right = true;
    for (std::size_t i = 0; i < values_[0].size(); ++i) {
      float sum = value(0, i);
      for (std::size_t rank = 1; rank < values_.size(); ++rank) {
        sum += value(rank, i);
      }
      const float error = values_[0][i] - sum;
      right &=
          Collective::rank_ordered || values_.size() == 2 ? error == 0.0F : error * error < 1e-8F;
    }
    for (auto& each : values_) {
      right &= std::memcmp(each.data(), values_[0].data(), each.size() * sizeof(float)) == 0;
    }
    for (auto& each : values_) {
      std::ranges::fill(each, 0.0F);
    }
    return right;
  }

 private:
  static float value(std::size_t rank, std::size_t i) {
    return 1.0F / static_cast<float>(1 + (i * 7 + rank * 13) % 101);
  }
  /// Calls the collective only once. A team makes one call before the timed ones, to start
  /// together, and that call already adds.
  void once(int rank, std::size_t) {
    if (std::exchange(done_[tutti::at(rank)], true)) {
      return;
    }
    (*this)(rank, 1);
  }

  Collective how_;
  tutti::transport::in_process::fabric fabric_;
  std::vector<tutti::line_vector<float>> values_;
  std::vector<std::vector<std::byte>> scratch_;
  std::vector<char> done_ = std::vector<char>(values_.size());
};

/// Measures a collective between threads. If there is a limit or a peer to compare it with, they
/// are measured batch by batch in turn.
template <class Collective>
void between_threads(benchmark::State& state, std::size_t& calls, job& processes, int ranks,
                     std::size_t bytes) {
  tutti::benchmark::core_to_core_note cores(state);
  threads<Collective> ours(ranks, bytes);
  team team(ranks);
  if (!ours.adds_up(team)) {
    state.SkipWithError("the sum is wrong");
    return;
  }
  const team::work each = std::ref(ours);
  const auto buffers = ours.buffers();
  one_pass limit(buffers, bytes / sizeof(float));
  const team::work bound = std::ref(limit);
  constexpr bool beside_the_limit = std::is_same_v<Collective, tutti::collective::addressable>;
  const bool beside_mpi = beside_the_limit && processes.size() == ranks;

  choose(calls, team.time(each, 1));
  const auto count = static_cast<double>(calls);
  std::vector<double> took;
  std::vector<double> bound_took;
  std::vector<double> mpi_took;
  while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(calls))) {
    took.push_back(team.time(each, calls));
    state.SetIterationTime(took.back());
    if (beside_the_limit) {
      bound_took.push_back(team.time(bound, calls));
    }
    if (beside_mpi) {
      mpi_took.push_back(
          processes.time(over_mpi::all_reduce, bytes, std::max<std::size_t>(1, calls / 4)));
    }
  }
  const double mine = median(took) / count;
  report(state, bytes, ranks, mine);
  state.counters["median_us"] = mine * 1e6;
  if (beside_the_limit) {
    state.counters["of_limit"] = median(bound_took) / median(took);
    if (ranks == 2) {
      state.counters["threads_us"] = mine * 1e6;
      state.counters["one_pass_us"] = median(bound_took) / count * 1e6;
    }
  }
  if (beside_mpi) {
    const double theirs =
        median(mpi_took) / static_cast<double>(std::max<std::size_t>(1, calls / 4));
    state.counters["mpi_us"] = theirs * 1e6;
    state.counters["over_mpi"] = theirs / mine;
  }
}

/// The bound of shared memory, measured between threads of this process. Processes cannot be
/// faster, either.
class limit_between_threads {
 public:
  limit_between_threads(int ranks, std::size_t bytes)
      : values_(tutti::at(ranks), tutti::line_vector<float>(bytes / sizeof(float))), team_(ranks) {
    std::vector<float*> all;
    for (auto& each : values_) {
      all.push_back(each.data());
    }
    limit_.emplace(all, bytes / sizeof(float));
  }
  double time(std::size_t calls) { return team_.time(std::ref(*limit_), calls); }

 private:
  std::vector<tutti::line_vector<float>> values_;
  std::optional<one_pass> limit_{};
  team team_;
};

void between_processes(benchmark::State& state, std::size_t& calls, job& processes, over_mpi what,
                       std::size_t bytes) {
  tutti::benchmark::core_to_core_note cores(state);
  choose(calls, processes.time(what, bytes, 1));
  const auto count = static_cast<double>(calls);
  limit_between_threads bound(processes.size(), bytes);
  std::vector<double> took;
  std::vector<double> bound_took;
  std::vector<double> peer_took;
  while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(calls))) {
    took.push_back(processes.time(what, bytes, calls));
    state.SetIterationTime(took.back());
    if (what == over_mpi::in_host_memory) {
      bound_took.push_back(bound.time(calls));
    } else if (what == over_mpi::ring) {
      peer_took.push_back(processes.time(over_mpi::all_reduce, bytes, calls));
    }
  }
  const double mine = median(took) / count;
  report(state, bytes, processes.size(), mine);
  state.counters["median_us"] = mine * 1e6;
  if (what == over_mpi::in_host_memory) {
    state.counters["processes_us"] = mine * 1e6;
    state.counters["processes_of_limit"] = median(bound_took) / median(took);
  } else if (what == over_mpi::ring) {
    state.counters["mpi_ring_us"] = mine * 1e6;
    state.counters["peer_us"] = median(peer_took) / count * 1e6;
    state.counters["of_mpi"] = median(peer_took) / median(took);
  }
}

/// Measures one algorithm of an --all_reduce_spec, over mpirun's processes or, without them,
/// between threads.
void by_spec(benchmark::State& state, std::size_t& calls, job& processes, int ranks,
             std::size_t elements, const std::string& way) {
  using tutti::strategies::tf_reduction;
  const auto options = tutti::strategies::of_all_reduce_spec(way);
  const std::size_t bytes = elements * sizeof(float);
  std::optional<threads<tf_reduction>> ours;
  std::optional<team> on_threads;
  if (processes.size() == 1) {
    ours.emplace(ranks, bytes, tf_reduction(options));
    on_threads.emplace(ranks);
    if (!ours->adds_up(*on_threads)) {
      state.SkipWithError("the sum is wrong");
      return;
    }
  }
  const auto time = [&](std::size_t so_many) {
    return ours ? on_threads->time(std::ref(*ours), so_many)
                : processes.time(over_mpi::spec, bytes, so_many, options.ranges[0]);
  };
  choose(calls, time(1));
  std::vector<double> took;
  while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(calls))) {
    took.push_back(time(calls));
    state.SetIterationTime(took.back());
  }
  state.SetLabel(way);
  state.counters["ranks"] = ranks;
  state.counters["elements"] = static_cast<double>(elements);
  state.counters["seconds"] = median(took) / static_cast<double>(calls);
}

/// Measures single calls, because on a wire the slowest matters as much as the median.
void between_hosts(benchmark::State& state, job& processes, over_mpi what, std::size_t bytes) {
  std::vector<double> took;
  for ([[maybe_unused]] auto _ : state) {
    took.push_back(processes.time(what, bytes, 1));
    state.SetIterationTime(took.back());
  }
  state.counters["size"] = static_cast<double>(bytes);
  state.counters["median_s"] = median(took);
  state.counters["worst_s"] = std::ranges::max(took);
}

/// Registers `measured(state, calls)`, where `calls` is the size of a batch in every repetition.
template <class Case>
void add(const std::string& what, int ranks, std::size_t bytes, Case measured) {
  const std::string name =
      what + "/ranks:" + std::to_string(ranks) + "/bytes:" + std::to_string(bytes);
  const auto run = [measured, calls = std::size_t{0}](benchmark::State& state) mutable {
    measured(state, calls);
  };
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseManualTime()
      ->MinTime(0.1)
      ->Unit(benchmark::kMicrosecond);
}

template <class Collective>
void add_threads(job& processes, const std::string& name, int ranks, std::size_t bytes) {
  add("in_process/" + name, ranks, bytes,
      [&processes, ranks, bytes](benchmark::State& state, std::size_t& calls) {
        between_threads<Collective>(state, calls, processes, ranks, bytes);
      });
}

void add_processes(job& processes, const std::string& name, over_mpi what, std::size_t bytes) {
  add("mpi/" + name, processes.size(), bytes,
      [&processes, what, bytes](benchmark::State& state, std::size_t& calls) {
        between_processes(state, calls, processes, what, bytes);
      });
}

void add_by_spec(job& processes) {
  const int ranks = processes.size() > 1 ? processes.size() : 4;
  for (const std::string way : {"nccl", "nccl/xring", "nccl/rechd", "nccl/pscpu", "xring#2",
                                "pscpu", "pscpu#2", "psgpu", "psgpu#2", "pscpu/pscpu"}) {
    for (std::size_t elements = 1 << 10; elements <= 4 << 20; elements *= 4) {
      add("all_reduce_spec/" + way, ranks, elements * sizeof(float),
          [&processes, ranks, elements, way](benchmark::State& state, std::size_t& calls) {
            by_spec(state, calls, processes, ranks, elements, way);
          });
    }
  }
}

void add_between_hosts(job& processes) {
  for (const auto& [name, what] :
       {std::pair{"ring", over_mpi::ring}, std::pair{"MPI_Allreduce", over_mpi::all_reduce}}) {
    for (const std::size_t megabytes : {4, 25, 100}) {
      const std::string full = std::string("between_hosts/") + name +
                               "/ranks:" + std::to_string(processes.size()) +
                               "/MB:" + std::to_string(megabytes);
      benchmark::RegisterBenchmark(full.c_str(),
                                   [&processes, what, megabytes](benchmark::State& state) {
                                     between_hosts(state, processes, what, megabytes * 1000000);
                                   })
          ->UseManualTime()
          ->Iterations(15)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

void add_all(job& processes) {
  const std::vector<std::size_t> sizes = {32,        64,      1 << 10, 4 << 10,  16 << 10, 64 << 10,
                                          256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  for (const int ranks : {2, 4}) {
    for (const std::size_t bytes : sizes) {
      add_threads<tutti::collective::addressable>(processes, "addressable", ranks, bytes);
    }
  }
  if (processes.size() > 1) {
    for (const std::size_t bytes : sizes) {
      add_processes(processes, "MPI_Allreduce", over_mpi::all_reduce, bytes);
      add_processes(processes, "ring", over_mpi::ring, bytes);
      if (processes.size() <= 4) {
        add_processes(processes, "in_host_memory", over_mpi::in_host_memory, bytes);
      }
    }
  }
  for (const std::size_t bytes : sizes) {
    add_threads<tutti::collective::ring>(processes, "ring", 2, bytes);
    add_threads<tutti::collective::halving_doubling>(processes, "halving_doubling", 2, bytes);
    add_threads<tutti::collective::star>(processes, "star", 2, bytes);
    add_threads<tutti::collective::canonical>(processes, "canonical", 2, bytes);
  }
}

}  // namespace

}  // namespace bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  bench::job processes;
  if (processes.rank() != 0) {
    processes.serve();
    return 0;
  }
  bench::note_build();
  if (processes.between_hosts()) {
    bench::add_between_hosts(processes);
  } else {
    bench::add_all(processes);
  }
  bench::add_by_spec(processes);
  bench::summary shown;
  benchmark::RunSpecifiedBenchmarks(&shown);
  benchmark::Shutdown();
}
