// The first transport of a process starts MPI.
#include <gtest/gtest.h>
#include <memory>
#include <string_view>

#include "support/training.hpp"
#include "tutti/base/error.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

bool has_ended() {
  int ended = 0;
  MPI_Finalized(&ended);
  return ended != 0;
}

/// Of two transports the first is destroyed first. MPI continues for the other, which trains on,
/// and does not start again afterwards.
TEST(Session, TheLastTransportEndsMpi) {
  auto first = std::make_unique<transport::mpi>();
  auto last = std::make_unique<transport::mpi>(MPI_COMM_WORLD);
  first.reset();
  ASSERT_FALSE(has_ended());
  {
    arena memory = model_of(last->rank());
    auto engine = make_engine<compose<>>(*last, memory.tensors(), optimizer_of());
    take_step(engine, memory, 0);
    engine.wait();
    EXPECT_EQ(engine.average(1), 1);
  }
  last.reset();
  EXPECT_TRUE(has_ended());
  try {
    const transport::mpi another;
    ADD_FAILURE() << "MPI has started again";
  } catch (const usage_error& refused) {
    EXPECT_TRUE(std::string_view(refused.what()).starts_with("MPI was finalized in this process"));
  }
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
