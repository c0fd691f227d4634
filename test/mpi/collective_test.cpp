#include <cstddef>
#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "support/collective_laws.hpp"
#include "support/mpi_world.hpp"
#include "tutti/collective/in_host_memory.hpp"
#include "tutti/collective/sliced_ring.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {

/// Processes of one machine that state that they are on different hosts.
class placed_mpi : public transport::mpi {
 public:
  int host_of(int rank) const { return hosts[static_cast<std::size_t>(rank)]; }

  std::vector<int> hosts{};
};

std::optional<placed_mpi> all_processes;

/// Destroys the world before MPI ends.
class leaving : public ::testing::Environment {
  void SetUp() override { all_processes.emplace(); }
  void TearDown() override { all_processes.reset(); }
};

struct placed_processes {
  using transport = placed_mpi;

  /// Runs on all processes of the job or on none, because other numbers of ranks have jobs of their
  /// own.
  template <class Body>
  static bool run(const std::vector<int>& hosts, Body body) {
    if (static_cast<int>(hosts.size()) != all_processes->size()) {
      return false;
    }
    all_processes->hosts = hosts;
    drive(*all_processes, body(*all_processes));
    return true;
  }

  /// Broadcasts what each process holds for its own rank to all processes.
  static void share(std::vector<std::vector<std::byte>>& held) {
    for (std::size_t rank = 0; rank < held.size(); ++rank) {
      MPI_Bcast(held[rank].data(), static_cast<int>(held[rank].size()), MPI_BYTE,
                static_cast<int>(rank), MPI_COMM_WORLD);
    }
  }
};

/// These ranks make a rendezvous and find that their data are not in shared memory.
using in_memory_of_their_own = testing::Types<
    collective_on<placed_processes, collective::in_host_memory<collective::sliced_ring<>>>>;

INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, CollectiveLaw, collectives_on<placed_processes>);
INSTANTIATE_TYPED_TEST_SUITE_P(MpiInHostMemory, CollectiveLaw, in_memory_of_their_own);

}  // namespace tutti::test

int main(int argc, char** argv) {
  ::testing::AddGlobalTestEnvironment(new tutti::test::leaving);
  return tutti::test::run_tests_of_processes(argc, argv);
}
