#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/transports.hpp"
#include "tutti/base/units.hpp"
#include "tutti/transport/any_transport.hpp"
#include "tutti/transport/mpi/arrivals.hpp"
#include "tutti/transport/recording.hpp"
#include "tutti/transport/segments.hpp"
#include "tutti/transport/staging.hpp"

namespace tutti::test {
namespace {

using transport::detail::segments;
using transport::detail::staging;

using cutting = segments (*)(std::size_t);
segments inside_a_host(std::size_t bytes) { return segments(bytes); }

/// Returns whether a receiver that expects `expected` notices, piece by piece, that `sent` is
/// coming. It does if a piece that it waits for has another length.
bool noticed(const segments& sent, const segments& expected) {
  for (std::size_t i = 0; i < std::min(sent.count(), expected.count()); ++i) {
    if (sent[i].size != expected[i].size) {
      return true;
    }
  }
  return false;
}

std::vector<std::size_t> awkward_sizes() {
  std::vector<std::size_t> sizes;
  const std::size_t whole = segments::whole_limit;
  const std::size_t piece = segments::piece_limit;
  const std::size_t far = segments::whole_limit_far;
  const std::size_t early = segments::early_limit;
  const std::size_t all = far + segments::most_early * early;
  for (const std::size_t base : {std::size_t{0}, whole, whole + piece, whole + 2 * piece,
                                 whole + 3 * piece, std::size_t{64_MiB}, far, far + early,
                                 far + 7 * early, all, all + 4_KiB, all + piece, all + 2 * piece}) {
    for (const std::size_t more : std::array<std::size_t, 9>{0, 1, 4, 63, 64, 65, 128, 512, 1000}) {
      sizes.push_back(base + more);
      sizes.push_back(base > more ? base - more : 0);
    }
  }
  return sizes;
}

}  // namespace

TEST(Segments, CoverTheMessage) {
  for (const cutting how : {inside_a_host, segments::between_hosts, segments::to_a_listener}) {
    for (const std::size_t bytes : awkward_sizes()) {
      const segments cut = how(bytes);
      std::vector<segments::piece> pieces;
      for (std::size_t i = 0; i < cut.count(); ++i) {
        pieces.push_back(cut[i]);
        EXPECT_LE(cut[i].size, cut.longest(i)) << bytes;
        EXPECT_TRUE(cut[i].size == 0 || cut[i].offset % segments::granule == 0)
            << "folds work on whole elements";
      }
      std::ranges::sort(pieces, {}, &segments::piece::offset);
      std::size_t next = 0;
      for (const segments::piece& each : pieces) {
        EXPECT_TRUE(each.size == 0 || each.offset == next) << bytes;
        next += each.size;
      }
      EXPECT_EQ(next, bytes);
      EXPECT_EQ(cut.bytes(), bytes);
    }
  }
}

TEST(Segments, TwoSizesDifferInAPiece) {
  const auto sizes = awkward_sizes();
  for (const cutting how : {inside_a_host, segments::between_hosts, segments::to_a_listener}) {
    for (const std::size_t a : sizes) {
      for (const std::size_t b : sizes) {
        EXPECT_EQ(noticed(how(a), how(b)), a != b) << a << " and " << b;
      }
    }
  }
}

/// A receiver that knows only the first piece expects pieces that can hold the message, and learns
/// its length from how much the last of them falls short.
TEST(Segments, ToAListenerAFirstPieceSaysHowManyFollow) {
  for (const std::size_t bytes : awkward_sizes()) {
    const segments sent = segments::to_a_listener(bytes);
    segments expected = segments::begun_by(sent[0].size);
    ASSERT_EQ(expected.count(), sent.count()) << bytes;
    std::size_t missing = 0;
    for (std::size_t i = 0; i < sent.count(); ++i) {
      ASSERT_GE(expected[i].size, sent[i].size) << bytes;
      EXPECT_TRUE(sent[i].size == 0 || expected[i].offset == sent[i].offset) << bytes;
      missing += expected[i].size - sent[i].size;
    }
    expected.end_at(expected.bytes() - missing);
    EXPECT_EQ(expected.bytes(), bytes);
  }
}

TEST(Segments, BetweenHostsFourMegabytesAskNobodyAndTheFirstQuestionsGoBefore) {
  constexpr std::size_t asks_beyond = 64_KiB - 128;  // with any header of Open MPI
  for (const std::size_t bytes : awkward_sizes()) {
    const segments cut = segments::between_hosts(bytes);
    std::size_t early = 0;
    std::size_t questions = 0;
    std::size_t asked_before = 0;
    for (std::size_t i = 0; i < cut.count(); ++i) {
      const bool asks = cut.early() > 0 && !cut.is_early(i);
      EXPECT_LE(cut[i].size, asks ? segments::piece_limit : asks_beyond) << bytes;
      questions += asks ? 1 : 0;
      early += asks ? 0 : cut[i].size;
      if (!asks && i > 0) {
        asked_before = questions;
      }
    }
    EXPECT_GE(early, std::min<std::size_t>(bytes, 4'200'000));
    EXPECT_EQ(asked_before, std::min(questions, segments::first_questions)) << bytes;
  }
}

/// No piece is longer than Open MPI's limit, and pieces are empty only where there are many.
TEST(Segments, ToAListenerNoPieceAsks) {
  auto sizes = awkward_sizes();
  for (std::size_t bytes = 1_MiB; bytes < 8'000_MiB; bytes += bytes / 7) {
    sizes.push_back(bytes);
  }
  for (const std::size_t bytes : sizes) {
    const segments cut = segments::to_a_listener(bytes);
    std::size_t empty = 0;
    for (std::size_t i = 0; i < cut.count(); ++i) {
      ASSERT_LE(cut[i].size, 64_KiB - 128) << bytes;
      empty += cut[i].size == 0 ? 1U : 0U;
    }
    EXPECT_LE(empty, std::max<std::size_t>(1, cut.count() / 16)) << bytes;
    EXPECT_EQ(cut.bytes(), bytes);
  }
}

TEST(Staging, GivesBackTheSameMemory) {
  inline_queue here;
  staging<inline_queue> pool(here);
  std::byte* first = pool.take(100);
  std::byte* second = pool.take(128);
  EXPECT_NE(first, second);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0U);
  pool.give(first, 100);
  EXPECT_EQ(pool.take(65), first) << "of one size class";
  EXPECT_NE(pool.take(129), second);
  EXPECT_NE(pool.take(0), nullptr);
}

namespace {

struct arriving {
  int peer{};
  int number{};
  bool whole{};
  bool failed{};
  arriving* next{};

  bool over() const { return whole; }
};

/// Returns the numbers of the messages that are delivered now, as "1 2".
std::string handed_on(transport::detail::arrivals<arriving>& coming) {
  std::string numbers;
  while (const arriving* each = coming.take()) {
    numbers += (numbers.empty() ? "" : " ") + std::to_string(each->number);
  }
  return numbers;
}

}  // namespace

TEST(Arrivals, AreHandedOnWholeAndEachSendersInItsOrder) {
  transport::detail::arrivals<arriving> coming;
  for (int round = 0; round < 2; ++round) {  // the second round reuses what the first has used
    arriving& long_one = coming.begin({.peer = 1, .number = 1});
    arriving& behind_it = coming.begin({.peer = 1, .number = 2});
    arriving& of_another = coming.begin({.peer = 2, .number = 3});
    EXPECT_EQ(handed_on(coming), "");
    behind_it.whole = true;
    EXPECT_EQ(handed_on(coming), "") << "what its sender sent before has not come";
    of_another.whole = true;
    EXPECT_EQ(handed_on(coming), "3") << "another sender's holds up nobody else's";
    long_one.whole = true;
    EXPECT_EQ(handed_on(coming), "1 2");
  }
  arriving& refused = coming.begin({.peer = 1, .number = 1});
  refused.whole = refused.failed = true;
  EXPECT_EQ(handed_on(coming), "") << "nobody gets half of a message";
}

TEST(Recording, WritesDownWhatBeginsAndForgetsNothingSilently) {
  transport::run_ranks(1, [](transport::in_process& inner) {
    transport::recording<transport::in_process> world(inner, 4);
    const auto body = [](auto& on) -> task {
      int value = 1;
      const auto bytes = std::as_writable_bytes(std::span(&value, 1));
      co_await on.exchange(0, bytes, 0, bytes.first(4), tag{channel::data, 5, 1});
      co_await on.rendezvous(tag{channel::data, 6, 0}, bytes);
      auto any = on.receive_any(channel::service);
      auto sent = on.send(0, tag{channel::service, 7, 0}, bytes.first(2));
      co_await any;
      co_await sent;
    };
    drive(world, body(world));
    const auto log = world.log();
    ASSERT_EQ(log.size(), 4U);
    using kind = transport::recorded::kind;
    EXPECT_EQ(log[0].what, kind::send);
    EXPECT_EQ(log[0].bytes, 4U);
    EXPECT_EQ(log[0].where, (tag{channel::data, 5, 1}));
    EXPECT_EQ(log[1].what, kind::receive);
    EXPECT_EQ(log[2].what, kind::rendezvous);
    EXPECT_EQ(log[2].peer, -1);
    EXPECT_EQ(log[3].what, kind::any);
    EXPECT_LE(log[0].time, log[3].time);
    EXPECT_EQ(world.missed(), 1U);
  });
}

/// Throws a description of how its job is to be ended instead of ending it.
class made_for_one_thread : public transport::recording<transport::in_process> {
 public:
  using recording::recording;
  bool single_threaded() const { return true; }
  [[noreturn]] void abort_job(const std::string& sentence) const {
    throw std::runtime_error("ended: " + sentence);
  }
};

/// A transport that has a type of place of its own does not share memory, and is not taken for one
/// that shows pointers, either.
struct with_places_of_its_own : transport::any_transport {
  int place_of(std::span<const std::byte>) const { return 0; }
  std::byte* at(int, int) const { return nullptr; }
};
static_assert(has_rendezvous<with_places_of_its_own> && !has_host_memory<with_places_of_its_own> &&
              !has_addressable_peers<with_places_of_its_own>);

TEST(AnyTransport, KnowsWhatTheTransportBehindItMayAndHowItsJobEnds) {
  transport::run_ranks(1, [](transport::in_process& inner) {
    made_for_one_thread one(inner, 1);
    const transport::any_transport any_one(one);
    EXPECT_TRUE(any_one.single_threaded());
    try {
      abandon(any_one, "a peer is dead");
      ADD_FAILURE();
    } catch (const std::runtime_error& ended) {
      EXPECT_STREQ(ended.what(), "ended: a peer is dead");
    }
    const transport::any_transport any_other(inner);
    EXPECT_FALSE(any_other.single_threaded());
  });
}

}  // namespace tutti::test
