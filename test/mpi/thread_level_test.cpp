// MPI that the user has started, at a level below that at which several threads may call it.
#include <filesystem>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "support/mpi_world.hpp"
#include "support/training.hpp"
#include "tutti/architecture/pair_averaging.hpp"
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

/// Ranks that answer each other while they compute would need a second thread.
template <class World>
void refuses_answers(World& world) {
  using strategy = compose<architecture::pair_averaging>;
  arena memory = model_of(world.rank());
  std::string said;
  try {
    make_engine<strategy>(world, memory.tensors(), optimizer_of());
  } catch (const usage_error& refused) {
    said = refused.what();
  }
  EXPECT_EQ(said,
            "this architecture needs a second thread, which answers other ranks during "
            "computation, but MPI was started for one thread only. Fix: call MPI_Init_thread with "
            "MPI_THREAD_MULTIPLE, or let transport::mpi start MPI");
}

TEST(ThreadLevel, WhoAnswersWhileItTrainsIsRefused) {
  tutti::transport::mpi all;
  refuses_answers(all);
  tutti::transport::mpi borrowed(MPI_COMM_WORLD);
  tutti::transport::any_transport any(borrowed);
  refuses_answers(any);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_of_processes(argc, argv, MPI_THREAD_SERIALIZED);
}
