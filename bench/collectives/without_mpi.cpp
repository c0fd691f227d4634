#include "collectives/job.hpp"

namespace bench {

job::job() = default;
job::~job() = default;
bool job::between_hosts() const { return false; }
void job::serve() {}
double job::time(over_mpi, std::size_t, std::size_t, tutti::strategies::tf_reduction::range) {
  return 0;
}

}  // namespace bench
