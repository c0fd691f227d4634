// Processes whose gradients are in a device's memory, which is poisoned until it is written. The
// laws of a transport and the oracle hold both with MPI reading that memory itself and by way of
// the host's.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <span>
#include <thread>

#include "support/mpi_world.hpp"
#include "support/oracle.hpp"
#include "support/strategy_laws.hpp"
#include "support/training.hpp"
#include "support/transport_laws.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {

using transport::device_path;
using staged_world = mpi_world_on<host_stream, device_path::staged>;
using direct_world = mpi_world_on<host_stream, device_path::direct>;
using world_type = transport::mpi_on<host_stream>;

static_assert(transport_policy<world_type> && sends_what_is_written<world_type>);
static_assert(!has_all_reduce<world_type> && !sends_what_is_written<transport::mpi>);

INSTANTIATE_TYPED_TEST_SUITE_P(Staged, TransportLaw, staged_world);
INSTANTIATE_TYPED_TEST_SUITE_P(Direct, TransportLaw, direct_world);

namespace {

using architecture::all_reduce;

constexpr device_path both_paths[] = {device_path::staged, device_path::direct};

/// Begins the exchange of one tensor while the device has yet to write the other tensor's gradient.
void is_not_held_up_by_another(device_path path) {
  using strategy = compose<all_reduce<>, fusion::none>;
  world_type world(MPI_COMM_WORLD, path);
  host_stream compute;
  host_stream elsewhere;
  model_on<host_stream> model(compute, world.rank(), layout::together, gradient);
  engine_options<strategy> options;
  options.run.deadline = 20;
  auto engine = make_engine<strategy>(world, model.tensors(), optimizer_of(), options);
  std::atomic<bool> may_go_on{false};
  for (std::size_t id = 0; id < model.tensors().size(); ++id) {
    model.backward(tensor_id(id), world.rank(), 0);
  }
  const tensor_id first{2};
  engine.ready(first, compute);
  compute.run([&may_go_on] {
    while (!may_go_on) {
      std::this_thread::yield();
    }
  });
  for (std::size_t id = 0; id < model.tensors().size(); ++id) {
    if (tensor_id(id) != first) {
      engine.ready(tensor_id(id), compute);
    }
  }
  try {
    engine.wait(first, elsewhere);
  } catch (const communication_error& held_up) {
    ADD_FAILURE() << held_up.what();
  }
  may_go_on = true;
  engine.wait();
}

}  // namespace

using on_staging_processes = on_processes_of<host_stream, device_path::staged>;
using on_direct_processes = on_processes_of<host_stream, device_path::direct>;
static_assert(strategies_in<a_few_dense_strategies_on<on_staging_processes>> == 4);
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, StrategyLaw,
                               a_few_dense_strategies_on<on_staging_processes>);
INSTANTIATE_TYPED_TEST_SUITE_P(Direct, StrategyLaw, a_few_dense_strategies_on<on_direct_processes>);

TEST(MpiDevice, AGradientThatIsNotThereYetHoldsUpNobodyElses) {
  for (const device_path path : both_paths) {
    is_not_held_up_by_another(path);
  }
}

/// Sending the host's memory needs no device: it neither waits for one nor is copied.
TEST(MpiDevice, HostMemoryDoesNotWaitForTheQueue) {
  world_type world(MPI_COMM_WORLD, device_path::staged);
  std::atomic<bool> may_go_on{false};
  world.queue().run([&may_go_on] {
    while (!may_go_on) {
      std::this_thread::yield();
    }
  });
  int out = world.rank();
  int in = -1;
  const int from = (world.rank() + world.size() - 1) % world.size();
  const auto part = [&](world_type& on) -> task {
    co_await on.exchange((on.rank() + 1) % on.size(), std::as_bytes(std::span(&out, 1)), from,
                         std::as_writable_bytes(std::span(&in, 1)), data_tag(0));
  };
  drive(world, part(world));
  EXPECT_EQ(in, from);
  may_go_on = true;
}

TEST(MpiDevice, HostMemoryIsNoTensors) {
  world_type world(MPI_COMM_WORLD);
  EXPECT_THROW(make_engine<compose<>>(world, model_of(world.rank()).tensors(), optimizer_of()),
               usage_error);
}

}  // namespace tutti::test

int main(int argc, char** argv) {
  // Where a message is longer than its receive, Open MPI 4.1 copies all of it from the sender's
  // process, past the end of the receiver's memory. The law of disagreeing sizes must not trigger
  // that.
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  return tutti::test::run_tests_of_processes(argc, argv);
}
