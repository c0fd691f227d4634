#include "compare/processes.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "common/job.hpp"
#include "common/launcher.hpp"
#include "tutti/base/error.hpp"
#if __has_include(<mpi.h>)
#include "compare/kernels_queue.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti/transport/shaped.hpp"
#endif

namespace compare {

namespace {

/// Runs `job` on a rank's end of any transport.
template <class End>
tutti::task erased(const rank_job& job, End& end) {
  any_world world(end);
  tutti::task rank = job(world);
  co_await rank;
}

tutti::transport::emulated_run emulate_here(const tutti::transport::network& over,
                                            tutti::transport::device each, const rank_job& job) {
  return tutti::transport::run_emulated(
      over, each, [&](tutti::transport::simulated& end) { return erased(job, end); });
}

}  // namespace

void simulate(const tutti::transport::network& over, tutti::transport::device each,
              const rank_job& job) {
  tutti::transport::run_simulated(
      over, each, [&](tutti::transport::simulated& end) { return erased(job, end); });
}

#if __has_include(<mpi.h>)

namespace {

/// Returns the communicator of all processes of the job, which the first call makes. Throws
/// common::flag_error if a launcher started more processes than MPI knows of.
tutti::transport::mpi& everybody() {
  static tutti::transport::mpi all;
  common::expect_company(all.size());
  return all;
}

/// Calls `run` in the first `ranks` processes, with a communicator of these. The others sleep until
/// these have ended. Throws common::flag_error if there are fewer processes.
void among(int ranks, const std::function<void(MPI_Comm)>& run) {
  expect_processes_for(ranks);
  const auto& all = everybody();
  const bool takes_part = all.rank() < ranks;
  MPI_Comm some = MPI_COMM_NULL;
  tutti::transport::check(
      MPI_Comm_split(all.native_handle(), takes_part ? 0 : 1, all.rank(), &some));
  if (takes_part) {
    run(some);
  }
  MPI_Request ended = MPI_REQUEST_NULL;
  tutti::transport::check(MPI_Ibarrier(all.native_handle(), &ended));
  for (int all_have = 0; all_have == 0;) {
    tutti::transport::check(MPI_Test(&ended, &all_have, MPI_STATUS_IGNORE));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  MPI_Comm_free(&some);
}

}  // namespace

void together(const std::function<void()>& run) {
  if (!common::under_launcher()) {
    run();
    return;
  }
  try {
    run();
  } catch (const common::flag_error&) {
    throw;  // every process throws it
  } catch (const std::exception& failed) {
    everybody().abort_job(std::string("tutti-compare: ") + failed.what());
  }
}

void expect_processes_for(int ranks) {
  if (common::under_launcher() && ranks > everybody().size()) {
    throw common::flag_error(std::to_string(ranks) + " workers and servers need as many processes" +
                             ", but there are " + std::to_string(everybody().size()) +
                             ". Fix: mpirun -np " + std::to_string(ranks) + ", or fewer --ranks");
  }
}

bool is_first_process() { return !common::under_launcher() || everybody().rank() == 0; }

std::size_t first_unlike(const std::vector<std::uint64_t>& words) {
  if (!common::under_launcher()) {
    return words.size();
  }
  const auto over_all = [&words](MPI_Op which) {
    auto all = words;
    tutti::transport::check(MPI_Allreduce(MPI_IN_PLACE, all.data(), static_cast<int>(all.size()),
                                          MPI_UINT64_T, which, everybody().native_handle()));
    return all;
  };
  const auto least = over_all(MPI_MIN);
  const auto most = over_all(MPI_MAX);
  return static_cast<std::size_t>(std::ranges::mismatch(least, most).in1 - least.begin());
}

tutti::transport::emulated_run emulate(const tutti::transport::network& over,
                                       tutti::transport::device each, const rank_job& job) {
  using tutti::transport::mpi;
  if (!common::under_launcher()) {
    return emulate_here(over, each, job);
  }
  tutti::transport::emulated_run result;
  among(over.ranks(), [&](MPI_Comm some) {
    mpi carrier(some);
    result = tutti::transport::run_shaped(
        carrier, over, each, [&](tutti::transport::shaped<mpi>& end) { return erased(job, end); });
  });
  return result;
}

const char* emulated_by() { return common::under_launcher() ? "shaped mpi" : "simulated"; }

void carry(int ranks, std::optional<tutti::transport::device> slept,
           const std::function<void(any_world&)>& run) {
  among(ranks, [&](MPI_Comm some) {
    tutti::transport::mpi_on<kernels_queue> carrier(some);
    if (slept) {
      carrier.queue().sleep_at(slept->bytes_per_second);
    }
    any_world world(carrier);
    run(world);
  });
}

tutti::seconds median_seconds(int ranks, const std::function<void()>& run) {
  if (everybody().rank() >= ranks) {
    run();
  }
  std::array<double, 7> taken{};
  among(ranks, [&](MPI_Comm some) {
    for (double& each : taken) {
      tutti::transport::check(MPI_Barrier(some));
      const double began = MPI_Wtime();
      run();
      each = MPI_Wtime() - began;
    }
  });
  std::ranges::sort(taken);
  double median = taken[taken.size() / 2];
  tutti::transport::check(MPI_Bcast(&median, 1, MPI_DOUBLE, 0, everybody().native_handle()));
  return median;
}

#else

void together(const std::function<void()>& run) { run(); }
void expect_processes_for(int) {}
bool is_first_process() { return true; }
std::size_t first_unlike(const std::vector<std::uint64_t>& words) { return words.size(); }
tutti::transport::emulated_run emulate(const tutti::transport::network& over,
                                       tutti::transport::device each, const rank_job& job) {
  return emulate_here(over, each, job);
}
const char* emulated_by() { return "simulated"; }
// The world of these two is real, which is refused without MPI.
tutti::seconds median_seconds(int, const std::function<void()>&) { return 0; }
void carry(int, std::optional<tutti::transport::device>, const std::function<void(any_world&)>&) {}

#endif

}  // namespace compare
