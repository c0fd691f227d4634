#pragma once

namespace common {

/// Whether this process was started by mpirun or srun.
bool under_launcher();

/// Returns how many processes the launcher says that it has started, or 1 without a launcher.
int launched();

/// Throws flag_error if a launcher started several processes but MPI knows of only one, as where
/// the launcher belongs to another MPI. Each process would then train alone.
void expect_company(int processes);

/// Returns this process's number among those that a launcher started on its host, or 0 without a
/// launcher.
int number_on_host();

/// Returns this process's number among all that a launcher started, or 0 without a launcher.
int launched_as();

}  // namespace common
