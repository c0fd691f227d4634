// MPI that the user has started, and calls, below the level at which several threads may.
#include <filesystem>
#include <gtest/gtest.h>
#include <iterator>

#include "support/mpi_world.hpp"
#include "support/training.hpp"
#include "tutti/transport/any_transport.hpp"

namespace tutti::test {
namespace {

auto threads_of_this_process() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return std::distance(begin(all), end(all));
}

template <class World>
void starts_no_thread(World& world) {
  EXPECT_TRUE(world.single_threaded());
  arena memory = model_of(world.rank());
  engine_options<compose<>> options;
  options.run.progress = progress::by_thread;
  const auto before = threads_of_this_process();
  auto engine = make_engine<compose<>>(world, memory.tensors(), optimizer_of(), options);
  EXPECT_EQ(threads_of_this_process(), before);
}

TEST(ThreadLevel, NoThreadOfOursStandsBesideTheUsersOwn) {
  tutti::transport::mpi all;
  starts_no_thread(all);
  tutti::transport::mpi borrowed(MPI_COMM_WORLD);
  starts_no_thread(borrowed);
  tutti::transport::any_transport any(borrowed);
  starts_no_thread(any);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_of_processes(argc, argv, MPI_THREAD_SERIALIZED);
}
