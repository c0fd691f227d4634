// How long a rank sleeps while nothing arrives.
#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>

#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/backoff.hpp"
#include "tutti/transport/mpi/transfer_counts.hpp"
#include "tutti/transport/operation.hpp"

namespace tutti::transport::detail {
namespace {

TEST(Idle, NapsAreAShareOfTheWaitAndEnd) {
  struct naps {
    urgency who;
    seconds first;
    double share;
    seconds longest;
  };
  const backoff alone(1);
  for (const auto& [who, first, share, last] :
       {naps{urgency::waited_for, 50e-6, 1.0 / 32, 3.2e-3},
        naps{urgency::unhurried, 200e-6, 1.0 / 8, 6.4e-3}}) {
    for (const std::size_t early : {0UL, 999UL, 1000UL, naps_from - 1}) {
      EXPECT_EQ(alone.idle(early, who), 0) << early;
    }
    EXPECT_DOUBLE_EQ(alone.idle(naps_from, who), first);
    seconds waited = 0;
    seconds longest = 0;
    for (std::size_t nap = 0; nap < 1000; ++nap) {
      const seconds next = alone.idle(naps_from + nap, who);
      EXPECT_GT(next, 0);
      EXPECT_LE(next, first + waited * share) << nap;
      waited += next;
      longest = std::max(longest, next);
    }
    EXPECT_DOUBLE_EQ(longest, last);
  }
}

TEST(Idle, NobodyWhoSleepsIsSleptThrough) {
  run_queue ready;
  under_way flights;
  sleepers all;
  EXPECT_EQ(all.cut_short(0.5, 10), 0.5);
  sleep_operation late(ready, flights, 12, [&](sleep_operation& fresh) { all.add(fresh); });
  EXPECT_EQ(all.cut_short(0.5, 10), 0.5);
  sleep_operation soon(ready, flights, 10.25, [&](sleep_operation& fresh) { all.add(fresh); });
  EXPECT_EQ(all.cut_short(0.5, 10), 0.25);
  EXPECT_EQ(all.cut_short(0.5, 11), 0);
  EXPECT_TRUE(all.wake(11, flights));
  EXPECT_EQ(all.cut_short(0.5, 11.75), 0.25);
  EXPECT_TRUE(all.wake(12, flights));
  EXPECT_EQ(all.cut_short(0.5, 12), 0.5);
}

TEST(TransferCounts, WhatIsDueSoonIsNotSleptThrough) {
  using due = transfer_counts::due;
  transfer_counts its;
  EXPECT_EQ(its.nap(), 0) << "nothing is promised";
  its.begin(due::late, 1);
  its.begin(due::late, 1);
  its.begin(due::late, 1);
  EXPECT_EQ(its.nap(), 0) << "of this wire nothing is known yet";
  its.end(due::late);
  its.came(1.0032);
  EXPECT_LE(its.nap(), 0.0032 / 32);
  its.end(due::late);
  its.came(1.0064);
  const seconds usual = its.nap();
  EXPECT_GT(usual, 20e-6);
  EXPECT_LE(usual, 0.0032 / 32);
  its.begin(due::soon, 1.0064);
  EXPECT_EQ(its.nap(), 0);
  its.end(due::soon);
  EXPECT_EQ(its.nap(), usual);
  its.begin(due::behind, 1.0064);
  EXPECT_EQ(its.nap(), usual) << "it comes with what is long";
  its.came(1.0064);
  EXPECT_GT(its.nap(), 0) << "two that come together tell of no faster wire than one";
  its.end(due::late);
  its.came(1.0064 + 320e-6);
  EXPECT_EQ(its.nap(), 0) << "only a short one is due, and a nap would be most of its way";
  its.end(due::behind);
  its.begin(due::late, 2);
  for (int piece = 1; piece <= 16; ++piece) {
    its.came(2 + 320e-6 * piece);
  }
  EXPECT_EQ(its.nap(), 0) << "a wire so fast that a nap would cost more than it spares";
}

TEST(TransferCounts, NoNapOutlastsWhatBuffersHold) {
  transfer_counts its;
  its.begin(transfer_counts::due::late, 0);
  its.begin(transfer_counts::due::late, 0);
  its.came(100);
  EXPECT_DOUBLE_EQ(its.nap(), 200e-6);
  for (int piece = 1; piece <= 20; ++piece) {
    its.came(100 + 100e-6 * piece);
  }
  EXPECT_EQ(its.nap(), 0) << "what ends a long wait is soon forgotten";
}

}  // namespace
}  // namespace tutti::transport::detail
