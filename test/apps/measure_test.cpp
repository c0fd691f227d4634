// What replaces a device in tutti-compare's real world, and where a row pays.
#include "compare/measure.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>

#include "compare/break_even.hpp"
#include "compare/kernel_rates.hpp"
#include "compare/kernels_queue.hpp"

namespace tutti::test {
namespace {

TEST(KernelsQueue, RunsWhatItIsGivenUntilItSleeps) {
  compare::kernels_queue queue;
  std::array<int, 3> written{};
  const auto write = [&](int value) {
    queue.for_each(written.size(), [&written, value](std::size_t i) { written[i] = value; });
  };
  charge(queue, std::size_t{1} << 40);
  write(1);
  EXPECT_EQ(written, (std::array<int, 3>{1, 1, 1}));
  queue.sleep_at(1e15);
  write(2);
  EXPECT_EQ(written, (std::array<int, 3>{1, 1, 1})) << "the device that writes is not here";
}

TEST(KernelsQueue, SleepsForWhatItIsCharged) {
  compare::kernels_queue queue;
  queue.sleep_at(1e9);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    charge(queue, 100'000);  // 100 us, less than is slept at a time
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
  EXPECT_GE(taken.count(), 100 * 100e-6 - 300e-6);
}

/// A host that sets the time at which it looks at the clock.
struct host {
  seconds time = 0;
  seconds now() const { return time; }
};

TEST(SleptDevice, GoesOnFromWhenItWasDueAndNotFromWhenTheHostWokeUp) {
  host late{.time = 10};
  compare::slept_device device(late);
  late.time = 10.5;
  device.compute(0.25);
  device.compute(0.125);
  EXPECT_EQ(device.due(), 10.375);
  device.starved();
  EXPECT_EQ(device.due(), 10.5) << "it had to wait for what has just come";
  device.starved();
  device.compute(0);
  EXPECT_EQ(device.due(), 10.5);
}

TEST(BreakEven, IsTheRateWhereASlowerEncoderOfFewerBytesIsBeaten) {
  for (const double bits : {1e3, 3e7, 2e8}) {
    const auto seconds = [](double encoding, double sent) {
      return [=](double rate) { return encoding + sent / rate; };
    };
    const auto lossy = seconds(0.01, bits);
    const auto dense = seconds(0.002, 16 * bits);
    const double where = 15 * bits / 0.008;
    const double found =
        compare::pays_below([&](double rate) { return lossy(rate) < dense(rate); });
    EXPECT_LE(found, where * (1 + 1e-9));
    EXPECT_GE(found, where / 1.02);
  }
}

TEST(BreakEven, MayBeOnNoLinkOrOnEvery) {
  EXPECT_EQ(compare::pays_below([](double) { return false; }), 0);
  EXPECT_EQ(compare::pays_below([](double) { return true; }),
            std::numeric_limits<double>::infinity());
  const double first = compare::pays_below([](double rate) { return rate < 3e7 || rate > 2e10; });
  EXPECT_LE(first, 3e7);
  EXPECT_GE(first, 3e7 / 1.02);
}

TEST(KernelTimes, AddAsOftenAsThereAreWorkers) {
  const compare::kernel_times each{
      .encode_seconds = 4e-9, .encode_bytes = 12, .add_seconds = 1e-9, .add_bytes = 8};
  EXPECT_DOUBLE_EQ(compare::rate_of(each, 1), 4e9);
  EXPECT_DOUBLE_EQ(compare::rate_of(each, 4), 5.5e9);
}

}  // namespace
}  // namespace tutti::test
