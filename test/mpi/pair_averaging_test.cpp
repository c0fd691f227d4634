// The other ranks take their steps while one process computes without calling the engine. Where
// gradients are averaged, they do not.
#include "tutti/architecture/pair_averaging.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <new>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/training.hpp"
#include "tutti/architecture/bipartite_averaging.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {
namespace {

transport::mpi* processes = nullptr;

/// A number that all processes of this host increment and read without a call of MPI, which would
/// let their communication progress. Every process must make and destroy it.
class shared_count {
 public:
  shared_count() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    void* mine = nullptr;
    MPI_Win_allocate_shared(rank == 0 ? sizeof(number) : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine,
                            &window_);
    MPI_Aint bytes = 0;
    int unit = 0;
    MPI_Win_shared_query(window_, 0, &bytes, &unit, &mine);
    count_ = rank == 0 ? new (mine) number(0) : static_cast<number*>(mine);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  shared_count(const shared_count&) = delete;
  shared_count& operator=(const shared_count&) = delete;
  ~shared_count() { MPI_Win_free(&window_); }

  void add_one() { count_->fetch_add(1); }
  int value() const { return count_->load(); }

 private:
  using number = std::atomic<int>;
  MPI_Win window_{};
  number* count_ = nullptr;
};

/// Keeps a core busy, as a model does, until `over` or for `limit`. Sleeping would leave the core
/// to the thread that answers.
template <class Over>
void compute(std::chrono::milliseconds limit, Over over) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!over() && std::chrono::steady_clock::now() < end) {
  }
}

constexpr int steps = 20;

template <class Engine>
void take_steps(Engine& engine) {
  for (int step = 0; step < steps; ++step) {
    engine.ready(tensor_id(1));
    engine.ready(tensor_id(0));
    engine.wait();
  }
}

/// Returns how many of the others have taken all their steps when rank 1 begins its own. Rank 1
/// waits until all of them have, or for `limit`.
template <class Architecture>
int ended_before_it_begins(std::chrono::milliseconds limit) {
  arena memory(std::vector<arena::declaration>{{"weight", 1 << 16}, {"bias", 17}});
  auto engine = make_engine<compose<Architecture>>(*processes, memory.tensors(), optimizer_of());
  shared_count ended;
  int seen = 0;
  if (engine.worker() == 1) {
    compute(limit, [&] { return ended.value() == engine.world().size() - 1; });
    seen = ended.value();
  }
  take_steps(engine);
  ended.add_one();
  engine.wait();
  MPI_Bcast(&seen, 1, MPI_INT, 1, MPI_COMM_WORLD);
  return seen;
}

class PairAveraging : public testing::Test {
 protected:
  void SetUp() override {
    if (processes->size() == 1) {
      GTEST_SKIP() << "one rank has no others";
    }
  }
};

using std::chrono::milliseconds;

TEST_F(PairAveraging, OthersGoOnBesideOneThatStandsStill) {
  EXPECT_EQ(ended_before_it_begins<architecture::pair_averaging>(milliseconds(60'000)),
            processes->size() - 1);
}
/// The waiting rank is passive, and others average with it meanwhile.
TEST_F(PairAveraging, AlsoWhereItIsPassive) {
  EXPECT_EQ(ended_before_it_begins<architecture::bipartite_averaging>(milliseconds(60'000)),
            processes->size() - 1);
}
/// The first gradient of the passive rank has missed all averagings with it.
TEST_F(PairAveraging, ARankThatIsPassiveSaysHowStaleItsGradientsAre) {
  const int ranks = processes->size();
  arena memory(std::vector<arena::declaration>{{"weight", 1 << 16}, {"bias", 17}});
  auto engine = make_engine<compose<architecture::bipartite_averaging>>(
      *processes, memory.tensors(), optimizer_of());
  {
    shared_count ended;
    if (engine.worker() == 1) {
      compute(milliseconds(60'000), [&] { return ended.value() == ranks - 1; });
    }
    take_steps(engine);
    ended.add_one();
    engine.wait();
  }
  if (engine.worker() == 1) {
    std::size_t missed = 0;
    for (int rank = 0; rank < ranks; rank += 2) {
      for (std::uint64_t step = 0; step < steps; ++step) {
        missed +=
            architecture::passive_of(architecture::bipartite::complete, 1, rank, step, ranks) == 1
                ? 1
                : 0;
      }
    }
    const push_counts own = engine.report().pushes;
    ASSERT_GT(missed, 0U);
    EXPECT_EQ(own.staleness[std::min(missed, own.staleness.size() - 1)], 2U) << "of either tensor";
    EXPECT_EQ(own.staleness[0], 2U * (steps - 1));
  }
  engine.average(0);
  EXPECT_EQ(engine.pushes().taken(),
            engine.worker() == 0 ? 2U * steps * static_cast<unsigned>(ranks) : 0U);
  engine.average(0);
}
TEST_F(PairAveraging, WhereMeansAreTakenNobodyDoes) {
  EXPECT_EQ(ended_before_it_begins<architecture::replicated<>>(milliseconds(500)), 0);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  return tutti::test::run_tests_over(tutti::test::processes, argc, argv);
}
