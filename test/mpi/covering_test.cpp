// The rows of the covering array whose place is between processes end with the same bits.
#include "support/covering.hpp"

#include <gtest/gtest.h>

#include "support/mpi_world.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

TEST(Covering, BetweenProcesses) {
  const auto train = []<class Engine>(const Engine*, const auto& options) {
    using strategy = typename Engine::strategy;
    const int servers = servers_in<strategy>(options);
    outcome all(covering::workers, servers);
    outcome mine(0);
    among(covering::workers + servers, [&](MPI_Comm some) {
      transport::mpi world(some);
      train_a_rank<strategy>(world, covering::steps, options, optimizer_of(), all,
                             covering::model());
      if (world.rank() < covering::workers) {
        mine.parameters = {all.parameters[static_cast<std::size_t>(world.rank())]};
      }
    });
    return mine;
  };
  EXPECT_GT(covering::rows_that_train<covering::between_processes>(train), 0);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) { return tutti::test::run_tests_of_processes(argc, argv); }
