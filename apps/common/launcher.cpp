#include "common/launcher.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include "common/job.hpp"

namespace common {

namespace {

/// Returns the number in the first of these environment variables that is set, or 0 if none is.
int number_in(std::initializer_list<const char*> variables) {
  for (const char* name : variables) {
    if (const char* number = std::getenv(name)) {
      return std::atoi(number);
    }
  }
  return 0;
}

}  // namespace

bool under_launcher() {
  return std::ranges::any_of(
      std::to_array<const char*>({"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}),
      [](const char* each) { return std::getenv(each) != nullptr; });
}

int launched() {
  int started = 1;
  for (const char* each :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    started = std::max(started, number_in({each}));
  }
  return started;
}

void expect_company(int processes) {
  if (processes == 1 && launched() > 1) {
    const std::string all = std::to_string(launched());
    throw flag_error("a launcher started " + all +
                     " processes, and MPI knows of this one alone. Fix: mpirun -np " + all +
                     ", of the MPI that this program was built with");
  }
}

int number_on_host() {
  return number_in({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"});
}

int launched_as() {
  return number_in({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
}

}  // namespace common
