#pragma once

namespace common {

/// This process is one of several that mpirun or srun started.
bool under_launcher();

/// How many processes a launcher says that it has started; 1 without one.
int launched();

/// Throws flag_error where MPI knows of one process, and a launcher that it does not know has
/// started more, each of which would train alone.
void expect_company(int processes);

/// This process's number among those that a launcher started on its host; 0 without one.
int number_on_host();

/// This process's number among those that a launcher started; 0 without one.
int launched_as();

}  // namespace common
