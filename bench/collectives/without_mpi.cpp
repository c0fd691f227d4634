#include "collectives/job.hpp"

namespace bench {

job::job() = default;
job::~job() = default;
void job::serve() {}
double job::time(over_mpi, std::size_t, std::size_t) { return 0; }

}  // namespace bench
