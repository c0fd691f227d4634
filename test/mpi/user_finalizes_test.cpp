// A user who has started MPI and finalizes it while a transport lives.
#include <gtest/gtest.h>
#include <optional>

#include "support/training.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

TEST(UserFinalizes, BeforeTheTransportEnds) {
  MPI_Init(nullptr, nullptr);
  std::optional<transport::mpi> world(std::in_place, MPI_COMM_WORLD);
  {
    arena memory = model_of(world->rank());
    auto engine = make_engine<compose<>>(*world, memory.tensors(), optimizer_of());
    take_step(engine, memory, 0);
    engine.wait();
  }
  MPI_Finalize();
  world.reset();
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
