#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/transports.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/transport.hpp"

/// Laws that every transport keeps. A world (see transports.hpp) joins with
/// `INSTANTIATE_TYPED_TEST_SUITE_P(Mine, TransportLaw, my_world)`. One file, because a suite is
/// registered as a whole and a world must keep all of it.
namespace tutti::test {

/// Returns pseudo-random bytes. They are made eight at a time, because sanitizers check every
/// store.
inline std::vector<std::byte> pattern(std::size_t bytes, std::size_t seed) {
  std::vector<std::uint64_t> words(bytes / 8 + 1);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (std::uint64_t& each : words) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    each = state;
  }
  const auto all = std::as_bytes(std::span(words)).first(bytes);
  return {all.begin(), all.end()};
}

inline tag data_tag(std::size_t chunk, std::uint32_t lane = 0) {
  return {channel::data, static_cast<std::uint32_t>(chunk), lane};
}

/// Adds bytes. It gives the right result also if it is called in pieces.
struct add_bytes {
  static constexpr std::size_t unit = 1;
  template <class Queue>
  void operator()(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
    queue.run([=] {
      for (std::size_t i = 0; i < bytes; ++i) {
        into[i] =
            static_cast<std::byte>(static_cast<unsigned>(into[i]) + static_cast<unsigned>(from[i]));
      }
    });
  }
};

/// Adds the bytes in reverse order, which is wrong unless it is called once with the whole message.
struct add_mirrored {
  template <class Queue>
  void operator()(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
    queue.run([=] {
      for (std::size_t i = 0; i < bytes; ++i) {
        into[i] = static_cast<std::byte>(static_cast<unsigned>(into[i]) +
                                         static_cast<unsigned>(from[bytes - 1 - i]));
      }
    });
  }
};

inline std::vector<std::byte> sum(std::vector<std::byte> a, const std::vector<std::byte>& b) {
  inline_queue here;
  add_bytes{}(here, a.data(), b.data(), a.size());
  return a;
}

template <class World>
class TransportLaw : public ::testing::Test {
 public:
  using transport = typename World::transport;
  using queue = typename transport::queue_type;
  using block = memory<queue>;

  template <class Body>
  static void on_every_number_of_ranks(Body body) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      World::run(ranks, body);
    }
  }

  /// Returns sizes around every boundary: nothing, odd, one cache line, eager limits, long.
  static std::vector<std::size_t> sizes() {
    return {0, 1, 3, 64, 4096, 4100, 65536, World::longest};
  }

  static task send_one(transport& world, int to, tag where, std::span<const std::byte> out) {
    co_await world.send(to, where, out);
  }
  static task receive_one(transport& world, int from, tag where, std::span<std::byte> in) {
    co_await world.receive(from, where, in);
  }
  /// Writes the message of the error that `body` ends with to `words`, or leaves it empty.
  static task words_of(task body, std::string& words) {
    try {
      co_await body;
    } catch (const communication_error& failure) {
      words = failure.what();
    }
  }
};
TYPED_TEST_SUITE_P(TransportLaw);

TYPED_TEST_P(TransportLaw, EveryPairExchangesEverySize) {
  using suite = TestFixture;
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const int p = world.size();
    const int r = world.rank();
    for (const std::size_t size : suite::sizes()) {
      for (int step = 0; step < p; ++step) {
        const int to = (r + step) % p;
        const int from = (r - step + p) % p;
        typename suite::block out(world.queue(), size);
        typename suite::block in(world.queue(), size);
        out.write(pattern(size, static_cast<std::size_t>(r)));
        co_await world.exchange(to, out.span(), from, in.span(), data_tag(size % 7));
        EXPECT_TRUE(same(in.read(), pattern(size, static_cast<std::size_t>(from))));
      }
    }
  });
}

TYPED_TEST_P(TransportLaw, SendAndReceiveStartTogetherAndAreAwaitedApart) {
  using suite = TestFixture;
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const int p = world.size();
    const int r = world.rank();
    for (const std::size_t size : suite::sizes()) {
      const int to = (r + 1) % p;
      const int from = (r - 1 + p) % p;
      typename suite::block out(world.queue(), size);
      typename suite::block in(world.queue(), size);
      out.write(pattern(size, static_cast<std::size_t>(r)));
      auto sent = world.send(to, data_tag(1, 3), out.span());
      auto received = world.receive(from, data_tag(1, 3), in.span());
      co_await received;
      co_await sent;
      EXPECT_TRUE(same(in.read(), pattern(size, static_cast<std::size_t>(from))));
    }
  });
}

TYPED_TEST_P(TransportLaw, FoldsCombineWithWhatIsThere) {
  using suite = TestFixture;
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const int p = world.size();
    const int r = world.rank();
    const int to = (r + 1) % p;
    const int from = (r - 1 + p) % p;
    for (const std::size_t size : suite::sizes()) {
      const auto mine = pattern(size, static_cast<std::size_t>(r));
      const auto theirs = pattern(size, static_cast<std::size_t>(from));
      typename suite::block out(world.queue(), size);
      typename suite::block into(world.queue(), size);
      out.write(mine);
      into.write(mine);
      co_await world.exchange_fold(to, out.span(), from, into.span(), data_tag(2), add_bytes{});
      auto expected = sum(mine, theirs);
      EXPECT_TRUE(same(into.read(), expected));
      auto sent = world.send(to, data_tag(2), out.span());
      co_await world.receive_fold(from, data_tag(2), into.span(), add_mirrored{});
      co_await sent;
      auto mirrored = theirs;
      std::ranges::reverse(mirrored);
      expected = sum(expected, mirrored);
      EXPECT_TRUE(same(into.read(), expected));
    }
  });
}

TYPED_TEST_P(TransportLaw, LoansShowThePeersBytes) {
  using suite = TestFixture;
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const int p = world.size();
    const int r = world.rank();
    const int from = (r - 1 + p) % p;
    for (const std::size_t size : suite::sizes()) {
      typename suite::block out(world.queue(), size);
      out.write(pattern(size, static_cast<std::size_t>(r)));
      auto sent = world.send((r + 1) % p, data_tag(3), out.span());
      {
        auto lent = co_await world.receive_loan(from, data_tag(3), size);
        EXPECT_EQ(lent.peer(), from);
        EXPECT_EQ(lent.where(), data_tag(3));
        EXPECT_TRUE(
            same(read(world.queue(), lent.bytes()), pattern(size, static_cast<std::size_t>(from))));
      }
      co_await sent;
    }
  });
}

TYPED_TEST_P(TransportLaw, MessagesOfOnePeerAndTagKeepTheirOrder) {
  using suite = TestFixture;
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const int p = world.size();
    const int r = world.rank();
    std::vector<task> tasks;
    std::vector<std::unique_ptr<typename suite::block>> out;
    std::vector<std::unique_ptr<typename suite::block>> in;
    const auto sizes = suite::sizes();
    const std::size_t rounds = 2 * sizes.size();
    for (std::size_t i = 0; i < rounds; ++i) {
      const std::size_t size = sizes[i % sizes.size()];
      out.push_back(std::make_unique<typename suite::block>(world.queue(), size));
      in.push_back(std::make_unique<typename suite::block>(world.queue(), size));
      out[i]->write(pattern(size, i));
      tasks.push_back(suite::send_one(world, (r + 1) % p, data_tag(4), out[i]->span()));
      tasks.push_back(suite::receive_one(world, (r - 1 + p) % p, data_tag(4), in[i]->span()));
    }
    for (task& each : tasks) {
      each.start(world.ready_coroutines());
    }
    for (task& each : tasks) {
      co_await each;
    }
    for (std::size_t i = 0; i < rounds; ++i) {
      EXPECT_TRUE(same(in[i]->read(), pattern(sizes[i % sizes.size()], i)));
    }
  });
}

TYPED_TEST_P(TransportLaw, ManyTagsMayBeInFlightInAnyOrder) {
  using suite = TestFixture;
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const auto p = static_cast<std::size_t>(world.size());
    const auto r = static_cast<std::size_t>(world.rank());
    constexpr std::size_t tags = 40;
    typename suite::block out(world.queue(), tags * p);
    typename suite::block in(world.queue(), tags * p);
    out.write(pattern(tags * p, r));
    std::vector<task> tasks;
    for (std::size_t i = 0; i < tags * p; ++i) {
      const std::size_t chunk = i / p;
      const int peer = static_cast<int>(i % p);
      const tag where = data_tag(chunk / 8, static_cast<std::uint32_t>(chunk % 8));
      // The byte chunk*p + r of the pattern of the peer's message to this rank.
      const auto sent = out.span().subspan(i, 1);
      const auto place = in.span().subspan(i, 1);
      tasks.push_back(suite::send_one(world, peer, where, sent));
      tasks.push_back(suite::receive_one(world, peer, where, place));
    }
    std::vector<std::size_t> order(tasks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937_64 random(r);
    std::ranges::shuffle(order, random);
    for (const std::size_t i : order) {
      tasks[i].start(world.ready_coroutines());
    }
    for (task& each : tasks) {
      co_await each;
    }
    const auto got = in.read();
    for (std::size_t i = 0; i < tags * p; ++i) {
      EXPECT_EQ(got[i], pattern(tags * p, i % p)[i / p * p + r]);
    }
  });
}

TYPED_TEST_P(TransportLaw, ReceiveAnyTakesFromEverybodyOnItsChannelOnly) {
  using suite = TestFixture;
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const auto p = static_cast<std::size_t>(world.size());
    const auto r = static_cast<std::size_t>(world.rank());
    constexpr std::uint32_t rounds = 10;
    typename suite::block out(world.queue(), rounds);
    typename suite::block other(world.queue(), 1);
    const auto question = pattern(1, 78);  // host memory, as the control channel needs
    out.write(pattern(rounds, r));
    other.write(pattern(1, 77));
    std::vector<task> tasks;
    tasks.push_back(suite::send_one(world, 0, data_tag(0), other.span()));
    tasks.push_back(suite::send_one(world, 0, tag{channel::control, 0, 0}, question));
    for (std::uint32_t i = 0; i < rounds; ++i) {
      tasks.push_back(
          suite::send_one(world, 0, tag{channel::service, i / 8, i % 8}, out.span().subspan(0, i)));
    }
    for (task& each : tasks) {
      each.start(world.ready_coroutines());
    }
    if (r == 0) {
      std::vector<std::uint32_t> seen(p);
      for (std::size_t i = 0; i < p * rounds; ++i) {
        auto lent = co_await world.receive_any(channel::service);
        const auto peer = static_cast<std::size_t>(lent.peer());
        EXPECT_EQ(lent.where().channel, channel::service);
        EXPECT_EQ(lent.where().chunk, seen[peer] / 8);
        EXPECT_EQ(lent.where().lane, seen[peer] % 8);
        auto expected = pattern(rounds, peer);
        expected.resize(seen[peer]);
        EXPECT_TRUE(same(read(world.queue(), lent.bytes()), expected));
        ++seen[peer];
      }
      typename suite::block in(world.queue(), 1);
      for (std::size_t peer = 0; peer < p; ++peer) {
        auto lent = co_await world.receive_any(channel::control);
        EXPECT_EQ(lent.where().channel, channel::control);
        EXPECT_TRUE(same({lent.bytes().begin(), lent.bytes().end()}, question));
        co_await world.receive(static_cast<int>(peer), data_tag(0), in.span());
        EXPECT_TRUE(same(in.read(), pattern(1, 77)));
      }
    }
    for (task& each : tasks) {
      co_await each;
    }
  });
}

TYPED_TEST_P(TransportLaw, LoansOfTheServiceChannelMayBeOfShorterMessages) {
  using suite = TestFixture;
  static constexpr std::size_t room = TypeParam::longest;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    TypeParam::run(ranks, [](auto& world) -> task {
      const int to = (world.rank() + 1) % world.size();
      const int from = (world.rank() + world.size() - 1) % world.size();
      const std::vector<std::size_t> sizes{1000, 0, 1, room / 2, 1000};
      typename suite::block out(world.queue(), room);
      out.write(pattern(room, static_cast<std::size_t>(world.rank())));
      std::vector<task> tasks;
      for (const std::size_t each : sizes) {
        tasks.push_back(
            suite::send_one(world, to, tag{channel::coded, 4, 1}, out.span().first(each)));
        tasks.back().start(world.ready_coroutines());
      }
      for (const std::size_t each : sizes) {
        auto lent = co_await world.receive_loan(from, tag{channel::coded, 4, 1}, room);
        auto expected = pattern(room, static_cast<std::size_t>(from));
        expected.resize(each);
        EXPECT_EQ(lent.bytes().size(), each);
        EXPECT_TRUE(same(read(world.queue(), lent.bytes()), expected));
      }
      for (task& each : tasks) {
        co_await each;
      }
    });
  }
}

TYPED_TEST_P(TransportLaw, BytesAreCountedWhereTheyLeave) {
  using suite = TestFixture;
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const int p = world.size();
    const int r = world.rank();
    const traffic before = world.counted();
    std::uint64_t bytes = 0;
    for (const std::size_t size : suite::sizes()) {
      typename suite::block out(world.queue(), size);
      typename suite::block in(world.queue(), size);
      out.write(pattern(size, 1));
      in.write(pattern(size, 2));
      co_await world.exchange((r + 1) % p, out.span(), (r - 1 + p) % p, in.span(), data_tag(5));
      auto sent = world.send((r + 1) % p, data_tag(5), out.span());
      co_await world.receive((r - 1 + p) % p, data_tag(5), in.span());
      co_await sent;
      bytes += 2 * size;
    }
    EXPECT_EQ(world.counted().bytes_sent - before.bytes_sent, bytes);
    EXPECT_EQ(world.counted().messages_sent - before.messages_sent, 2 * suite::sizes().size());
    EXPECT_EQ(world.in_flight(), 0U);
  });
}

TYPED_TEST_P(TransportLaw, AnEndpointFillsInItsTag) {
  using suite = TestFixture;
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const endpoint self(world, data_tag(6));
    const auto side = self.lane(2);
    const int p = self.size();
    const int to = (self.rank() + 1) % p;
    const int from = (self.rank() - 1 + p) % p;
    typename suite::block out(world.queue(), 8);
    typename suite::block in(world.queue(), 8);
    out.write(pattern(8, static_cast<std::size_t>(self.rank())));
    auto sent = side.send(to, out.span());
    co_await self.exchange(to, out.span(), from, in.span());
    EXPECT_TRUE(same(in.read(), pattern(8, static_cast<std::size_t>(from))));
    {
      auto lent = co_await side.receive_loan(from, 8);
      EXPECT_EQ(lent.where(), data_tag(6, 2));
      const auto moved = std::move(lent);
      EXPECT_TRUE(
          same(read(self.queue(), moved.bytes()), pattern(8, static_cast<std::size_t>(from))));
    }
    co_await sent;
  });
}

TYPED_TEST_P(TransportLaw, SleepersWakeInTheOrderOfTheirTimes) {
  using suite = TestFixture;
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const seconds before = world.now();
    std::vector<int> woken;
    const auto nap = [](auto& on, seconds long_, int id, std::vector<int>& log) -> task {
      co_await on.sleep(long_);
      log.push_back(id);
    };
    task late = nap(world, 0.004, 2, woken);
    task early = nap(world, 0.001, 1, woken);
    late.start(world.ready_coroutines());
    early.start(world.ready_coroutines());
    co_await late;
    co_await early;
    EXPECT_EQ(woken, (std::vector<int>{1, 2}));
    co_await world.sleep(-0.002);  // which is over
    EXPECT_GE(world.now() - before, 0.004);
  });
}

TYPED_TEST_P(TransportLaw, SizesThatDisagreeEndEveryRankWithBothSizes) {
  using suite = TestFixture;
  constexpr std::size_t big = TypeParam::longest;
  const std::vector<std::pair<std::size_t, std::size_t>> pairs{
      {100, 101}, {101, 100}, {0, 1},         {1, 0},
      {100, big}, {big, 100}, {big, big + 4}, {big, 3 * big}};
  for (const auto& [sent, expected] : pairs) {
    const std::size_t send_bytes = sent;
    const std::size_t receive_bytes = expected;
    TypeParam::run(3, [=](auto& world) -> task {
      typename suite::block bytes(world.queue(), std::max(send_bytes, receive_bytes));
      bytes.write(pattern(bytes.span().size(), 1));
      std::string words;
      const auto part = [](auto& on, std::span<std::byte> all, std::size_t s,
                           std::size_t e) -> task {
        auto waits = on.receive((on.rank() + 1) % 3, data_tag(9), all.first(1));
        if (on.rank() == 0) {
          co_await on.send(1, data_tag(8), all.first(s));
        } else if (on.rank() == 1) {
          co_await on.receive(0, data_tag(8), all.first(e));
        }
        co_await waits;
      };
      co_await suite::words_of(part(world, bytes.span(), send_bytes, receive_bytes), words);
      EXPECT_NE(words.find("rank 0 sent "), std::string::npos) << words;
      EXPECT_NE(words.find("where rank 1 expects " + std::to_string(receive_bytes)),
                std::string::npos)
          << words;
      if (send_bytes < 200) {
        EXPECT_NE(words.find("sent " + std::to_string(send_bytes) + " bytes of chunk 8"),
                  std::string::npos)
            << words;
      }
      EXPECT_EQ(world.in_flight(), 0U);
    });
  }
}

TYPED_TEST_P(TransportLaw, AnAbortWakesEverybodyWithItsReason) {
  using suite = TestFixture;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    TypeParam::run(ranks, [](auto& world) -> task {
      // Every rank holds a peer's bytes, has lent bytes of its own, and waits. No rank may wait for
      // another while it ends.
      const int p = world.size();
      typename suite::block mine(world.queue(), 3 << 20);
      mine.write(pattern(3 << 20, 1));
      std::string words;
      const auto part = [](auto& on, std::span<std::byte> all, int n) -> task {
        auto sent = on.send((on.rank() + 1) % n, data_tag(1), all);
        auto never_read = on.send((on.rank() + 1) % n, data_tag(2), all);
        auto lent = co_await on.receive_loan((on.rank() - 1 + n) % n, data_tag(1), all.size());
        auto never = on.receive_any(channel::service);
        if (on.rank() == n - 1) {
          co_await on.sleep(0.002);
          on.abort("rank 3 of the song is missing");
        }
        co_await on.receive_loan((on.rank() + 1) % n, data_tag(3), 5);
        co_await never;
        co_await never_read;
        co_await sent;
      };
      co_await suite::words_of(part(world, mine.span(), p), words);
      EXPECT_EQ(words, "rank 3 of the song is missing");
      std::string again;
      const auto refused = [](auto& on, std::span<std::byte> all) -> task {
        co_await on.send(0, data_tag(1), all);
      };
      co_await suite::words_of(refused(world, mine.span()), again);
      EXPECT_EQ(again, "rank 3 of the song is missing");
      EXPECT_EQ(world.in_flight(), 0U);
    });
  }
}

TYPED_TEST_P(TransportLaw, ARankThatThrowsEndsAll) {
  using suite = TestFixture;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    bool ended = false;
    std::string words = "nothing";
    try {
      ended = !TypeParam::run(ranks, [](auto& world) -> task {
        typename suite::block bytes(world.queue(), 8);
        bytes.write(pattern(8, 1));
        if (world.rank() == world.size() / 2) {
          throw usage_error("out of tune");
        }
        co_await world.receive(world.size() / 2, data_tag(0), bytes.span());
      });
    } catch (const error& first) {
      words = first.what();
      ended = words.find("out of tune") != std::string::npos;
    }
    EXPECT_TRUE(ended) << ranks << " ranks: " << words;
  }
}

TYPED_TEST_P(TransportLaw, PhantomsMoveTheirLength) {
  using suite = TestFixture;
  if (!TypeParam::phantoms) {
    GTEST_SKIP() << "this transport moves real bytes";
  }
  suite::on_every_number_of_ranks([](auto& world) -> task {
    const int p = world.size();
    const int to = (world.rank() + 1) % p;
    const int from = (world.rank() - 1 + p) % p;
    const std::span<std::byte> phantom(static_cast<std::byte*>(nullptr), 10 << 20);
    const traffic before = world.counted();
    co_await world.exchange(to, phantom, from, phantom, data_tag(1));
    co_await world.exchange_fold(to, phantom, from, phantom, data_tag(1), add_bytes{});
    auto sent = world.send(to, data_tag(1), phantom);
    {
      auto lent = co_await world.receive_loan(from, data_tag(1), phantom.size());
      EXPECT_EQ(lent.bytes().size(), phantom.size());
      EXPECT_EQ(lent.bytes().data(), nullptr);
    }
    co_await sent;
    EXPECT_EQ(world.counted().bytes_sent - before.bytes_sent, 3 * phantom.size());
  });
}

REGISTER_TYPED_TEST_SUITE_P(
    TransportLaw, EveryPairExchangesEverySize, SendAndReceiveStartTogetherAndAreAwaitedApart,
    FoldsCombineWithWhatIsThere, LoansShowThePeersBytes, MessagesOfOnePeerAndTagKeepTheirOrder,
    ManyTagsMayBeInFlightInAnyOrder, ReceiveAnyTakesFromEverybodyOnItsChannelOnly,
    LoansOfTheServiceChannelMayBeOfShorterMessages, BytesAreCountedWhereTheyLeave,
    AnEndpointFillsInItsTag, SleepersWakeInTheOrderOfTheirTimes,
    SizesThatDisagreeEndEveryRankWithBothSizes, AnAbortWakesEverybodyWithItsReason,
    ARankThatThrowsEndsAll, PhantomsMoveTheirLength);

}  // namespace tutti::test
