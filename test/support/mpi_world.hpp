#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/nothing_ran.hpp"
#include "support/transports.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/task.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {

/// Whether the running test has asked for processes, and whether there were enough. A test that
/// could run nothing is reported as skipped.
struct processes_wanted {
  bool asked = false;
  bool there = false;
};
inline processes_wanted wanted;

class skips_what_runs_nothing : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { wanted = {}; }
  void OnTestEnd(const ::testing::TestInfo&) override {
    if (wanted.asked && !wanted.there) {
      GTEST_MESSAGE_AT_(__FILE__, __LINE__, "there are too few processes",
                        ::testing::TestPartResult::kSkip);
    }
  }
};

/// Calls `run(communicator)` on the first `ranks` processes of the job. Returns false on the
/// others, and on all processes if there are fewer.
template <class Run>
bool among(int ranks, Run run) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  wanted.asked = true;
  if (ranks > size) {
    return false;
  }
  wanted.there = true;
  MPI_Comm some = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : 1, rank, &some);
  if (rank < ranks) {
    run(some);
  }
  MPI_Comm_free(&some);
  return rank < ranks;
}

/// Runs one rank's part. If it fails, the whole job is aborted.
template <class World, class Body>
void drive_or_abort(World& world, Body body) {
  try {
    drive(world, body(world));
  } catch (const std::exception& failure) {
    world.abort("rank " + std::to_string(world.rank()) + " failed: " + failure.what());
    throw;
  }
}

/// Ranks are the first processes of the job, on a communicator that the user has made.
template <class Queue, transport::device_path... Path>
struct mpi_world_on {
  using transport = tutti::transport::mpi_on<Queue>;
  static constexpr bool phantoms = false;
  static constexpr std::size_t longest = (9 << 20) + 12;  // so long that it is sent in pieces

  template <class Body>
  static bool run(int ranks, Body body) {
    return among(ranks, [&](MPI_Comm some) { run_on(some, body); });
  }

  template <class Body>
  static void run_on(MPI_Comm some, Body body) {
    transport world(some, Path...);
    drive_or_abort(world, body);
  }
};

/// Processes that are told that `OnAHost` of them share a host.
template <int OnAHost, class Queue, transport::device_path... Path>
struct mpi_world_of_hosts : mpi_world_on<Queue, Path...> {
  template <class Body>
  static bool run(int ranks, Body body) {
    return among(ranks, [&](MPI_Comm some) {
      std::vector<int> hosts;
      for (int rank = 0; rank < ranks; ++rank) {
        hosts.push_back(rank / OnAHost);
      }
      tutti::transport::mpi_on<Queue> world(some, hosts, Path...);
      drive_or_abort(world, body);
    });
  }
};
template <class Queue, transport::device_path... Path>
using mpi_world_apart = mpi_world_of_hosts<1, Queue, Path...>;

/// Trains on all processes of the job, each of which is a rank (see strategy_laws.hpp). Other
/// numbers of ranks have jobs of their own.
template <class Queue, transport::device_path... Path>
struct on_processes_of {
  using transport = tutti::transport::mpi_on<Queue>;

  static bool holds(int worker) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return worker == rank;
  }

  template <class Body>
  static bool run(int ranks, Body body) {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (ranks != size) {
      return false;
    }
    transport world(MPI_COMM_WORLD, Path...);
    body(world);
    return true;
  }

  /// Broadcasts each rank's entry of `known` to all processes.
  static void share(std::vector<std::uint64_t>& known) {
    for (std::size_t rank = 0; rank < known.size(); ++rank) {
      MPI_Bcast(&known[rank], 1, MPI_UINT64_T, static_cast<int>(rank), MPI_COMM_WORLD);
    }
  }
};

using on_processes = on_processes_of<inline_queue>;

/// Calls `body(world)` on every process of the job.
template <class Body>
void on_all_processes(Body body) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  on_processes::run(size, body);
}

/// `main` of tests that each choose how many of the job's processes take part. It fails on all
/// processes if it has failed on one.
inline int run_tests_of_processes(int argc, char** argv, int thread_level = MPI_THREAD_MULTIPLE) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, thread_level, &level);
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new skips_what_runs_nothing);
  int failed = RUN_ALL_TESTS();
  int any_failed = 0;
  MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return unless_nothing_ran(any_failed);
}

/// `main` of tests that all run over one world of the whole job. Only rank 0 prints.
inline int run_tests_over(transport::mpi*& world, int argc, char** argv) {
  transport::mpi processes;
  world = &processes;
  ::testing::InitGoogleTest(&argc, argv);
  if (processes.rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  return unless_nothing_ran(RUN_ALL_TESTS());
}

}  // namespace tutti::test
