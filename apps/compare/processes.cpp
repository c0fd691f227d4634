#include "compare/processes.hpp"

#include <string>

#include "tutti/base/error.hpp"

namespace compare {

#if __has_include(<mpi.h>)

namespace {

/// All processes of the job, from the first time that somebody asks.
tutti::transport::mpi& everybody() {
  static tutti::transport::mpi all;
  return all;
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
    throw;  // on every process alike
  } catch (const std::exception& failed) {
    everybody().abort_job(std::string("tutti-compare: ") + failed.what());
  }
}

bool speaks() { return !common::under_launcher() || everybody().rank() == 0; }

const char* emulated_by() { return common::under_launcher() ? "shaped mpi" : "simulated"; }

void among(int ranks, const std::function<void(tutti::transport::mpi&)>& run) {
  const auto& all = everybody();
  if (ranks > all.size()) {
    throw common::flag_error(std::to_string(ranks) + " workers and servers need as many processes" +
                             ", not " + std::to_string(all.size()) + ". Fix: mpirun -np " +
                             std::to_string(ranks) + ", or less --ranks");
  }
  const bool takes_part = all.rank() < ranks;
  MPI_Comm some = MPI_COMM_NULL;
  tutti::transport::check(
      MPI_Comm_split(all.native_handle(), takes_part ? 0 : 1, all.rank(), &some));
  if (takes_part) {
    tutti::transport::mpi carrier(some);
    run(carrier);
  }
  MPI_Comm_free(&some);
}

#else

void together(const std::function<void()>& run) { run(); }
bool speaks() { return true; }
const char* emulated_by() { return "simulated"; }

#endif

}  // namespace compare
