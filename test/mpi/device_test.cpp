// Processes whose gradients lie in a device's memory, which is poison until it is written: the laws
// of a transport and the oracle, with MPI at that memory itself and by way of the host's.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/oracle.hpp"
#include "support/training.hpp"
#include "support/transport_laws.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"
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
using architecture::parameter_server;

constexpr device_path both_paths[] = {device_path::staged, device_path::direct};

using device_arena = arena_of<host_stream::buffer<float>>;

/// The oracle's model in a stream's memory.
device_arena device_model_of(host_stream& compute, int rank) {
  std::vector<device_arena::declaration> all;
  for (const auto& each : declarations()) {
    all.push_back({each.name, each.elements});
  }
  device_arena memory(
      all, 1, [&compute](std::size_t elements) { return compute.allocate<float>(elements); });
  fill_from_host(compute, memory.parameters(), [rank](std::span<float> values) {
    std::ranges::copy(model_of(rank).parameters(), values.begin());
  });
  return memory;
}

/// Enqueues what a backward pass would write.
void backward(host_stream& compute, device_arena& memory, int worker, int step) {
  std::vector<float> values(memory.gradients().size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = gradient(worker, step, i);
  }
  compute.run([values = std::move(values), to = memory.gradients()] {
    std::ranges::copy(values, to.begin());
  });
}

/// This worker's parameters after `steps` steps; nothing on a server.
template <class Strategy>
std::vector<float> train(world_type& world, int steps, engine_options<Strategy> options) {
  host_stream compute;
  device_arena memory = device_model_of(compute, world.rank());
  auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options);
  if (engine.serves()) {
    engine.serve();
    return {};
  }
  for (int step = 0; step < steps; ++step) {
    for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
      engine.wait(tensor_id(id), compute);
    }
    backward(compute, memory, engine.worker(), step);
    for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
      engine.ready(id, compute);
    }
  }
  engine.wait();
  return host_view(compute, memory.parameters());
}

template <class Strategy>
void is_bitwise(engine_options<Strategy> options = {}) {
  for (const device_path path : both_paths) {
    world_type world(MPI_COMM_WORLD, path);
    const int workers = world.size() - servers_in<Strategy>(options);
    if (workers < 1) {
      GTEST_SKIP() << "no worker is left";
    }
    const auto result = train<Strategy>(world, 20, options);
    if (world.rank() < workers) {
      EXPECT_EQ(result, trained(workers, 20));
    }
  }
}

/// Begins the exchange of one tensor while the device has yet to write the other's gradient.
void is_not_held_up_by_another(device_path path) {
  using strategy = compose<all_reduce<>, fusion::none>;
  world_type world(MPI_COMM_WORLD, path);
  host_stream compute;
  host_stream elsewhere;
  device_arena memory = device_model_of(compute, world.rank());
  engine_options<strategy> options;
  options.run.deadline = 20;
  auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), options);
  std::atomic<bool> may_go_on{false};
  backward(compute, memory, world.rank(), 0);
  const tensor_id first{2};
  engine.ready(first, compute);
  compute.run([&may_go_on] {
    while (!may_go_on) {
      std::this_thread::yield();
    }
  });
  for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
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

TEST(MpiDevice, Canonical) { is_bitwise<compose<all_reduce<collective::canonical>>>(); }
TEST(MpiDevice, CanonicalFusedByPriority) {
  is_bitwise<compose<all_reduce<collective::canonical>, fusion::up_to, partition::into,
                     schedule::by_priority>>(
      {.fusion = {.bytes = 3000}, .partition = {.bytes = 100'000}, .schedule = {.credit = 1}});
}
TEST(MpiDevice, CanonicalByAThread) {
  engine_options<compose<all_reduce<collective::canonical>>> options;
  options.run.progress = progress::by_thread;
  is_bitwise<compose<all_reduce<collective::canonical>>>(options);
}
TEST(MpiDevice, ServersThatUpdate) {
  is_bitwise<compose<parameter_server<consistency::synchronous, updated_by::servers>>>(
      {.architecture = {.servers = 2}});
}

TEST(MpiDevice, AGradientThatIsNotThereYetHoldsUpNobodyElses) {
  for (const device_path path : both_paths) {
    is_not_held_up_by_another(path);
  }
}

/// What the host sends needs no device: it neither waits for one nor is it copied.
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
  // Where a message is longer than its receive, Open MPI 4.1 copies all of it out of the sender's
  // process, past the end of memory: the law of sizes that disagree must not let it.
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  return tutti::test::run_tests_of_processes(argc, argv);
}
