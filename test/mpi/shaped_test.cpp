// Processes connected as over a network. The times of a message, of many senders and of a ring are
// worked out by hand, on the network's clock. The host's clock tells at most that a run does not
// count.
#include "tutti/transport/shaped.hpp"

#include <cstddef>
#include <exception>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/transport_laws.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/transport/mpi.hpp"
#include "tutti/transport/network.hpp"

namespace tutti::test {
namespace {

using transport::emulated_run;
using transport::link;
using transport::network;
using processes = tutti::transport::shaped<tutti::transport::mpi>;

/// Ranks are processes, over a network of such NICs.
template <class Nic>
struct processes_world {
  using transport = processes;
  static constexpr bool phantoms = true;
  static constexpr std::size_t longest = Nic::longest;

  template <class Body>
  static bool run(int ranks, Body body) {
    return among(ranks, [&](MPI_Comm some) {
      tutti::transport::mpi carrier(some);
      tutti::transport::run_shaped(carrier, network(ranks, Nic::kind), body);
    });
  }
};

struct as_fast_as_the_host {
  static constexpr link kind{1e9, 5e-6};
  static constexpr std::size_t longest = (1 << 20) + 12;
};
/// Every message is late.
struct faster_than_the_host {
  static constexpr link kind = network::at_once;
  static constexpr std::size_t longest = (9 << 20) + 12;  // so long that it is sent in pieces
};

}  // namespace

using as_fast = processes_world<as_fast_as_the_host>;
using too_fast = processes_world<faster_than_the_host>;
INSTANTIATE_TYPED_TEST_SUITE_P(Shaped, TransportLaw, as_fast);
INSTANTIATE_TYPED_TEST_SUITE_P(ShapedAndLate, TransportLaw, too_fast);

namespace {

constexpr link nic{1e8, 1e-3};
constexpr std::size_t bytes = 200'000;  // 2 ms of the NIC
constexpr seconds busy = 2e-3;
constexpr seconds rounding = 1e-9;

std::span<std::byte> phantom(std::size_t length) {
  return {static_cast<std::byte*>(nullptr), length};
}

/// Runs `body` on that network, if there are enough processes, and expects it to take `time`.
template <class Body>
void takes(seconds time, const network& over, Body body) {
  among(over.ranks(), [&](MPI_Comm some) {
    tutti::transport::mpi carrier(some);
    const emulated_run run = tutti::transport::run_shaped(carrier, over, body);
    EXPECT_NEAR(run.time, time, rounding) << over.ranks() << " ranks";
    EXPECT_GE(run.wall, run.time);
    EXPECT_GE(run.worst_lateness, run.mean_lateness);
  });
}

/// Expects `body` to take `time` where ranks share a NIC, whose turns go to the first that asks. If
/// this host reached a turn later than a turn lasts, the order may be another, and the run does not
/// count.
template <class Body>
void takes_in_turns(seconds time, const network& over, Body body) {
  among(over.ranks(), [&](MPI_Comm some) {
    tutti::transport::mpi carrier(some);
    for (int run_number = 0; run_number < 200; ++run_number) {
      const emulated_run run = tutti::transport::run_shaped(carrier, over, body);
      if (run.worst_lateness < busy) {
        EXPECT_NEAR(run.time, time, rounding) << over.ranks() << " ranks";
        return;
      }
    }
    GTEST_SKIP() << "this host was too busy for every one of 200 runs";
  });
}

/// Each rank of the first half sends to its counterpart in the second half.
task half_sends(processes& world) {
  const int half = world.size() / 2;
  if (world.rank() < half) {
    co_await world.send(world.rank() + half, data_tag(0), phantom(bytes));
  } else {
    co_await world.receive(world.rank() - half, data_tag(0), phantom(bytes));
  }
}

/// Every other rank sends to the last.
task all_send_to_the_last(processes& world) {
  const int last = world.size() - 1;
  if (world.rank() < last) {
    co_await world.send(last, data_tag(0), phantom(bytes));
    co_return;
  }
  for (int from = 0; from < last; ++from) {
    co_await world.receive(from, data_tag(0), phantom(bytes));
  }
}

/// Each rank forwards what it received, with one byte more.
task chain(processes& world) {
  std::vector<std::byte> all(bytes);
  if (world.rank() > 0) {
    co_await world.receive(world.rank() - 1, data_tag(0), all);
    EXPECT_EQ(all, pattern(bytes, 7));
    EXPECT_NEAR(world.now(), world.rank() * (nic.latency + busy), rounding);
  } else {
    all = pattern(bytes, 7);
  }
  if (world.rank() + 1 < world.size()) {
    co_await world.send(world.rank() + 1, data_tag(0), all);
  }
}

TEST(Shaped, AMessageTakesLatencyAndItsBytes) {
  takes(nic.latency + busy, network(2, nic), half_sends);
  takes(nic.latency + busy / 0.8, network(2, {1e8, 1e-3, 0.8}), half_sends);
}

TEST(Shaped, AChainAddsUpAndCarriesPayloads) {
  for (const int ranks : {2, 3, 5}) {
    takes((ranks - 1) * (nic.latency + busy), network(ranks, nic), chain);
  }
}

TEST(Shaped, ManySendersShareTheReceiversNic) {
  for (const int ranks : {2, 3, 5}) {
    takes(nic.latency + (ranks - 1) * busy, network(ranks, nic), all_send_to_the_last);
  }
}

TEST(Shaped, RanksOfAHostShareItsNic) {
  takes(nic.latency + busy, network(4, nic), half_sends);
  takes_in_turns(nic.latency + 2 * busy, network(4, nic, 2, network::at_once), half_sends);
}

TEST(Shaped, WhatStaysInsideAHostDoesNotPassItsNic) {
  takes(1e-4 + busy / 10, network(4, nic, 4, {1e9, 1e-4}), half_sends);
}

TEST(Shaped, TheSlowerOfTwoNicsSetsTheRate) {
  network slow_receiver(2, nic);
  slow_receiver.isolate(1, {1e7, 1e-3});
  takes(nic.latency + 10 * busy, slow_receiver, half_sends);
  network slow_sender(2, nic);
  slow_sender.isolate(0, {1e7, 1e-3});
  takes(nic.latency + 10 * busy, slow_sender, half_sends);
}

TEST(Shaped, ASleepGoesOnWhereItIsDue) {
  takes(20 * 3e-4, network(1, nic), [](processes& world) -> task {
    for (int step = 1; step <= 20; ++step) {
      co_await world.sleep(3e-4);
      EXPECT_NEAR(world.now(), step * 3e-4, rounding);
    }
  });
}

TEST(Shaped, AMessageToOneselfIsThereAtOnce) {
  takes(0, network(1, nic), [](processes& world) -> task {
    auto sent = world.send(0, data_tag(0), phantom(bytes));
    co_await world.receive(0, data_tag(0), phantom(bytes));
    co_await sent;
  });
}

TEST(Shaped, ASendEndsWhenItIsRead) {
  takes(10e-3, network(2, nic), [](processes& world) -> task {
    if (world.rank() == 0) {
      co_await world.send(1, data_tag(0), phantom(bytes));
      EXPECT_NEAR(world.now(), 10e-3, rounding);
    } else {
      co_await world.sleep(10e-3);
      co_await world.receive(0, data_tag(0), phantom(bytes));
      EXPECT_NEAR(world.now(), 10e-3, rounding);
    }
  });
}

TEST(Shaped, TheRingTakesTwiceItsSteps) {
  for (const int ranks : {2, 3, 4, 5}) {
    const std::size_t elements = 12'000 * static_cast<std::size_t>(ranks);
    const double part = 48'000 / nic.bytes_per_second;
    takes(2 * (ranks - 1) * (nic.latency + part), network(ranks, nic),
          [elements](processes& world) -> task {
            std::vector<float> mine(elements, static_cast<float>(world.rank() + 1));
            std::vector<float> sums(elements);
            const int right = (world.rank() + 1) % world.size();
            const int left = (world.rank() + world.size() - 1) % world.size();
            const auto part_of = [&](int index) {
              const auto which =
                  static_cast<std::size_t>((index + 2 * world.size()) % world.size());
              return std::as_writable_bytes(std::span(mine).subspan(12'000 * which, 12'000));
            };
            const auto add = [](auto&, std::byte* into, const std::byte* from, std::size_t count) {
              for (std::size_t i = 0; i < count / sizeof(float); ++i) {
                reinterpret_cast<float*>(into)[i] += reinterpret_cast<const float*>(from)[i];
              }
            };
            for (int step = 1; step < world.size(); ++step) {
              co_await world.exchange_fold(right, part_of(world.rank() - step), left,
                                           part_of(world.rank() - step - 1), data_tag(0), add);
            }
            for (int step = 0; step < world.size() - 1; ++step) {
              co_await world.exchange(right, part_of(world.rank() - step), left,
                                      part_of(world.rank() - step - 1), data_tag(0));
            }
            const int p = world.size();
            EXPECT_EQ(mine, std::vector<float>(elements, static_cast<float>(p * (p + 1) / 2)));
          });
  }
}

TEST(Shaped, RefusesANetworkForOthers) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  tutti::transport::mpi carrier(MPI_COMM_WORLD);
  EXPECT_THROW(tutti::transport::run_shaped(carrier, network(size + 1, nic), half_sends), error);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) { return tutti::test::run_tests_of_processes(argc, argv); }
