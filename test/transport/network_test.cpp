// Where ranks live decides which cards their messages share.
#include "tutti/transport/network.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <stdexcept>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::transport {
namespace {

constexpr link card{1e6, 1e-3};
constexpr tag chunk_0{channel::data, 0, 0};

std::span<std::byte> phantom(std::size_t bytes) {
  return {static_cast<std::byte*>(nullptr), bytes};
}

/// Each of the first `senders` ranks sends `bytes` to the rank `senders` further; the answer is
/// when the last has come.
seconds all_send(const network& over, int senders, std::size_t bytes) {
  return run_simulated(over,
                       [=](simulated& world) -> task {
                         if (world.rank() < senders) {
                           co_await world.send(world.rank() + senders, chunk_0, phantom(bytes));
                         } else {
                           co_await world.receive(world.rank() - senders, chunk_0, phantom(bytes));
                         }
                       })
      .time;
}

/// Every other rank sends `bytes` to the last.
seconds all_send_to_the_last(const network& over, std::size_t bytes) {
  return run_simulated(over,
                       [=](simulated& world) -> task {
                         const int last = world.size() - 1;
                         if (world.rank() < last) {
                           co_await world.send(last, chunk_0, phantom(bytes));
                           co_return;
                         }
                         for (int from = 0; from < last; ++from) {
                           co_await world.receive(from, chunk_0, phantom(bytes));
                         }
                       })
      .time;
}

TEST(Network, RanksOfAHostShareItsCard) {
  EXPECT_DOUBLE_EQ(all_send(network(8, card), 4, 500), 1e-3 + 500e-6);
  EXPECT_DOUBLE_EQ(all_send(network(8, card, 4, network::at_once), 4, 500), 1e-3 + 4 * 500e-6);
  EXPECT_DOUBLE_EQ(all_send(network(8, card, 2, network::at_once), 4, 500), 1e-3 + 2 * 500e-6);
}

TEST(Network, WhatStaysInsideAHostDoesNotPassItsCard) {
  EXPECT_DOUBLE_EQ(all_send(network(8, card, 8, network::at_once), 4, 500), 0);
  EXPECT_DOUBLE_EQ(all_send(network(8, card, 8, {1e7, 1e-5}), 4, 500), 1e-5 + 50e-6);
  EXPECT_DOUBLE_EQ(all_send_to_the_last(network(5, card, 5, {1e7, 1e-5}), 500), 1e-5 + 4 * 50e-6);
}

TEST(Network, TheSlowerOfTwoCardsSetsTheRate) {
  network slow_receiver(2, card);
  slow_receiver.isolate(1, {1e5, 1e-3});
  EXPECT_DOUBLE_EQ(all_send(slow_receiver, 1, 500), 1e-3 + 5000e-6);
  network slow_sender(2, card);
  slow_sender.isolate(0, {1e5, 1e-3});
  EXPECT_DOUBLE_EQ(all_send(slow_sender, 1, 500), 1e-3 + 5000e-6);
}

TEST(Network, AServerBehindASlowerCardSuffersIncast) {
  network over(5, card);
  EXPECT_DOUBLE_EQ(all_send_to_the_last(over, 500), 1e-3 + 4 * 500e-6);
  over.isolate(4, {1e5, 1e-3});
  EXPECT_DOUBLE_EQ(all_send_to_the_last(over, 500), 1e-3 + 4 * 5000e-6);
}

TEST(Network, SlowSendersDoNotHoldTheReceiversCard) {
  network over(5, {1e5, 1e-3});
  over.isolate(4, {1e6, 1e-3});
  EXPECT_DOUBLE_EQ(all_send_to_the_last(over, 500), 1e-3 + 5000e-6);
}

TEST(Network, ARankMayJoinAnothersHost) {
  network over(3, card);
  over.join(2, 0);
  EXPECT_EQ(over.host(2), over.host(0));
  EXPECT_DOUBLE_EQ(all_send_to_the_last(over, 500), 1e-3 + 500e-6);
}

TEST(Network, RefusesWhatCannotBe) {
  EXPECT_THROW(network(0, card), usage_error);
  EXPECT_THROW(network(4, card, 0, network::at_once), usage_error);
  EXPECT_THROW(network(4, {0, 1e-3}), usage_error);
  EXPECT_THROW(network(4, {1e6, -1}), usage_error);
  EXPECT_THROW(network(4, card, 2, {-1, 0}), usage_error);
  EXPECT_THROW(network(4, card).isolate(4, card), std::out_of_range);
}

TEST(Emulated, TakesAsLongAsTheNetworkAndCountsAsTheSimulation) {
  const network over(4, {1e6, 1e-3});
  const auto ring = [](simulated& world) -> task {
    const int right = (world.rank() + 1) % world.size();
    const int left = (world.rank() + world.size() - 1) % world.size();
    std::vector<std::byte> mine(500, static_cast<std::byte>(world.rank()));
    std::vector<std::byte> other(500);
    for (int step = 0; step < 20; ++step) {
      co_await world.exchange(right, mine, left, other, chunk_0);
      EXPECT_EQ(other.front(), static_cast<std::byte>(left));
    }
  };
  const simulated_run simulation = run_simulated(over, ring);
  const emulated_run emulation = run_emulated(over, device(), ring);
  EXPECT_NEAR(simulation.time, 20 * (1e-3 + 500e-6), 1e-12);
  EXPECT_EQ(emulation.time, simulation.time);
  EXPECT_EQ(emulation.events, simulation.events);
  EXPECT_GE(emulation.wall, emulation.time);
  EXPECT_GE(emulation.worst_lateness, emulation.mean_lateness);
}

}  // namespace
}  // namespace tutti::transport
