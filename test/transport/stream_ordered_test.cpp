// Laws of a stream-ordered transport: groups, the order of messages, both directions, and the end
// of all ranks.
#include "tutti/transport/stream_ordered.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/transport_laws.hpp"
#include "support/transports.hpp"
#include "support/unbuffered_library.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/any_transport.hpp"

namespace tutti::test {
namespace {

using block = memory<host_stream>;

constexpr std::size_t sizes[] = {0, 1, 3, 64, 4100, 262143};

template <class Body>
void on_every_number_of_ranks(Body body) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    run_streamed(ranks, [&](streamed& world) { drive(world, body(world)); });
  }
}

TEST(StreamOrdered, EveryPairExchangesEverySize) {
  on_every_number_of_ranks([](streamed& world) -> task {
    const int p = world.size();
    const int r = world.rank();
    for (const std::size_t size : sizes) {
      for (int step = 0; step < p; ++step) {
        const int to = (r + step) % p;
        const int from = (r - step + p) % p;
        block out(world.queue(), size);
        block in(world.queue(), size);
        out.write(pattern(size, static_cast<std::size_t>(r)));
        co_await world.exchange(to, out.span(), from, in.span(), data_tag(size % 7));
        EXPECT_TRUE(same(in.read(), pattern(size, static_cast<std::size_t>(from))));
      }
    }
  });
}

TEST(StreamOrdered, WhatBeginsTogetherMovesTogether) {
  on_every_number_of_ranks([](streamed& world) -> task {
    const int to = (world.rank() + 1) % world.size();
    const int from = (world.rank() - 1 + world.size()) % world.size();
    for (const std::size_t size : sizes) {
      block out(world.queue(), size);
      block in(world.queue(), size);
      block lent(world.queue(), size);
      block sum(world.queue(), size);
      const auto mine = pattern(size, static_cast<std::size_t>(world.rank()));
      const auto theirs = pattern(size, static_cast<std::size_t>(from));
      out.write(mine);
      sum.write(mine);
      auto first = world.send(to, data_tag(1, 3), out.span());
      auto second = world.send(to, data_tag(7), out.span());
      auto third = world.send(to, data_tag(1), out.span());
      auto received = world.receive(from, data_tag(1, 3), in.span());
      auto loan = world.receive_loan(from, data_tag(7), size);
      auto folded = world.receive_fold(from, data_tag(1), sum.span(), add_mirrored{});
      co_await received;
      {
        const auto held = co_await loan;
        EXPECT_EQ(held.peer(), from);
        EXPECT_EQ(held.where(), data_tag(7));
        EXPECT_EQ(read(world.queue(), held.bytes()), theirs);
      }
      co_await folded;
      co_await first;
      co_await second;
      co_await third;
      EXPECT_TRUE(same(in.read(), theirs));
      auto mirrored = theirs;
      std::ranges::reverse(mirrored);
      EXPECT_TRUE(same(sum.read(), tutti::test::sum(mine, mirrored)));
    }
  });
}

TEST(StreamOrdered, MessagesOfAPairMatchInTheOrderEnqueuedWhateverTheirTags) {
  on_every_number_of_ranks([](streamed& world) -> task {
    const int to = (world.rank() + 1) % world.size();
    const int from = (world.rank() - 1 + world.size()) % world.size();
    std::vector<std::unique_ptr<block>> in;
    block out(world.queue(), 100);
    for (std::size_t round = 0; round < 50; ++round) {
      out.write(pattern(100, round));
      in.push_back(std::make_unique<block>(world.queue(), 100));
      auto sent = world.send(to, data_tag(round), out.span());
      co_await world.receive(from, data_tag(99 - round), in.back()->span());
      co_await sent;
    }
    for (std::size_t round = 0; round < 50; ++round) {
      EXPECT_TRUE(same(in[round]->read(), pattern(100, round)));
    }
  });
}

TEST(StreamOrdered, TheLibraryAdds) {
  on_every_number_of_ranks([](streamed& world) -> task {
    for (const std::size_t elements : {std::size_t{0}, std::size_t{1}, std::size_t{1001}}) {
      std::vector<float> mine(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        mine[i] = static_cast<float>(i + 1) * static_cast<float>(world.rank() + 1);
      }
      host_stream::buffer<float> data(world.queue(), elements);
      data.write(mine);
      co_await world.all_reduce(data_tag(3), data.span());
      const auto got = data.read_back();
      const auto ranks = static_cast<float>(world.size());
      for (std::size_t i = 0; i < elements; ++i) {
        EXPECT_EQ(got[i], static_cast<float>(i + 1) * ranks * (ranks + 1) / 2);
      }
    }
  });
}

TEST(StreamOrdered, HostMemoryTakesTheOtherChannels) {
  on_every_number_of_ranks([](streamed& world) -> task {
    const int p = world.size();
    const int to = (world.rank() + 1) % p;
    const int from = (world.rank() - 1 + p) % p;
    std::uint32_t out = static_cast<std::uint32_t>(world.rank()) + 100;
    std::uint32_t in = 0;
    constexpr tag beside{channel::host, 4, 0};
    const auto bytes = std::as_bytes(std::span(&out, 1));
    auto first = world.send(to, beside, bytes);
    auto second = world.send(to, beside, bytes);
    auto third = world.send(to, tag{channel::service, 5, 0}, bytes);
    co_await world.receive(from, beside, std::as_writable_bytes(std::span(&in, 1)));
    EXPECT_EQ(in, static_cast<std::uint32_t>(from) + 100);
    {
      auto lent = co_await world.receive_loan(from, beside, sizeof in);
      const auto moved = std::move(lent);
      EXPECT_EQ(moved.peer(), from);
      EXPECT_EQ(moved.where(), beside);
      EXPECT_EQ(std::memcmp(moved.bytes().data(), &in, sizeof in), 0);
    }
    {
      const auto any = co_await world.receive_any(channel::service);
      EXPECT_EQ(any.peer(), from);
      EXPECT_EQ(any.where().chunk, 5U);
    }
    co_await first;
    co_await second;
    co_await third;
    EXPECT_EQ(world.in_flight(), 0U);
  });
}

TEST(StreamOrdered, BytesAreCountedWhereTheyLeave) {
  on_every_number_of_ranks([](streamed& world) -> task {
    const int p = world.size();
    block out(world.queue(), 1000);
    block in(world.queue(), 1000);
    out.write(pattern(1000, 1));
    in.write(pattern(1000, 2));
    co_await world.exchange_fold((world.rank() + 1) % p, out.span(), (world.rank() - 1 + p) % p,
                                 in.span(), data_tag(5), add_bytes{});
    EXPECT_EQ(world.counted().bytes_sent, 1000U);
    EXPECT_EQ(world.counted().messages_sent, 1U);
    EXPECT_TRUE(same(in.read(), sum(pattern(1000, 2), pattern(1000, 1))));
  });
}

/// An operation that a coroutine has begun is sent although the coroutine waits for something else.
TEST(StreamOrdered, WhatNobodyAwaitsGoesAtTheNextPoll) {
  on_every_number_of_ranks([](streamed& world) -> task {
    const int p = world.size();
    block out(world.queue(), 9);
    block in(world.queue(), 9);
    out.write(pattern(9, 4));
    auto sent = world.send((world.rank() + 1) % p, data_tag(1), out.span());
    auto received = world.receive((world.rank() - 1 + p) % p, data_tag(1), in.span());
    co_await world.sleep(0.0005);
    EXPECT_TRUE(same(in.read(), pattern(9, 4)));
    co_await sent;
    co_await received;
  });
}

TEST(StreamOrdered, WhatCannotBeIsRefusedInASentence) {
  run_streamed(1, [](streamed& world) {
    EXPECT_THROW(world.receive_any(channel::data), usage_error);
    const std::span<std::byte> phantom(static_cast<std::byte*>(nullptr), 8);
    EXPECT_THROW(world.send(0, data_tag(1), phantom), usage_error);
    EXPECT_THROW(world.receive(0, data_tag(1), phantom), usage_error);
    std::byte here{};
    const std::span<std::byte> one(&here, 1);
    const tag beside{channel::host, 0, 0};
    EXPECT_THROW(world.exchange(0, one, 0, one, beside), usage_error);
    EXPECT_THROW(world.receive_fold(0, beside, one, add_bytes{}), usage_error);
    EXPECT_EQ(world.in_flight(), 0U);
  });
}

/// Writes what `part` throws to `heard`, or leaves it empty.
task words_of(task part, std::string& heard) {
  try {
    co_await part;
  } catch (const std::exception& failure) {
    heard = failure.what();
  }
}

/// One rank gives up. Streams that wait for a peer end, and every rank learns why.
TEST(StreamOrdered, AnAbortEndsStreamsAndCoroutines) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    run_streamed(ranks, [](streamed& world) {
      block never(world.queue(), 64);
      std::string words;
      const auto part = [](streamed& on, std::span<std::byte> into) -> task {
        const int peer = (on.rank() + 1) % on.size();
        co_await on.receive(peer, data_tag(3), into);  // enqueued, but no rank sends
        auto open = on.receive(peer, data_tag(3), into);
        auto waits = on.receive_any(channel::service);
        if (on.rank() == on.size() - 1) {
          on.abort("rank 3 of the song is missing");
        }
        co_await waits;
        co_await open;
      };
      drive(world, words_of(part(world, never.span()), words));
      EXPECT_EQ(words, "rank 3 of the song is missing");
      std::string again;
      const auto late = [](streamed& on, std::span<std::byte> all) -> task {
        co_await on.send(0, data_tag(1), all);
      };
      drive(world, words_of(late(world, never.span()), again));
      EXPECT_EQ(again, words);
      EXPECT_EQ(world.in_flight(), 0U);
      world.queue().synchronize();
    });
  }
}

/// Fails as a kernel does that cannot be launched.
struct refuses_to_fold {
  template <class Queue>
  void operator()(Queue&, std::byte*, const std::byte*, std::size_t) const {
    throw std::runtime_error("no such kernel");
  }
};

/// Waits, with nothing of its own under way, until the others tell why the job ends.
template <class Transport>
task listen(Transport& on) {
  co_await on.receive_any(channel::service);
}

TEST(StreamOrdered, AFoldThatThrowsEndsEveryRank) {
  run_streamed(2, [](streamed& world) {
    block out(world.queue(), 64);
    block in(world.queue(), 64);
    const auto part = [](streamed& on, std::span<std::byte> from, std::span<std::byte> to) -> task {
      if (on.rank() == 1) {
        co_await on.exchange_fold(0, from, 0, to, data_tag(0), refuses_to_fold{});
      } else {
        co_await on.exchange_fold(1, from, 1, to, data_tag(0), add_bytes{});
        co_await listen(on);
      }
    };
    std::string words;
    drive(world, words_of(part(world, out.span(), in.span()), words));
    EXPECT_EQ(words, world.rank() == 1 ? "no such kernel" : "rank 1 failed: no such kernel");
    EXPECT_EQ(world.in_flight(), 0U);
    world.queue().synchronize();
  });
}

/// Refuses every group on rank 1.
class refusing_library : public unbuffered_library {
 public:
  refusing_library(transport::in_process& carrier, unbuffered_job& shared)
      : unbuffered_library(carrier, shared), refuses_(carrier.rank() == 1) {}

  void end_group() {
    if (refuses_) {
      throw std::runtime_error("no such device");
    }
    unbuffered_library::end_group();
  }

 private:
  bool refuses_;
};

/// Rank 1 stays for a while, so that the other rank does not learn of it from rank 1's leaving.
TEST(StreamOrdered, WhatALibraryRefusesEndsEveryRank) {
  unbuffered_job shared(2);
  std::atomic<bool> heard{false};
  transport::run_ranks(2, [&](transport::in_process& carrier) {
    using refusing = transport::stream_ordered<refusing_library, transport::in_process>;
    refusing world(carrier, shared);
    block bytes(world.queue(), 8);
    const auto part = [](refusing& on, std::span<std::byte> all) -> task {
      if (on.rank() == 1) {
        co_await on.send(0, data_tag(0), all);
      } else {
        co_await on.receive(1, data_tag(0), all);
        co_await listen(on);
      }
    };
    std::string words;
    drive(world, words_of(part(world, bytes.span()), words));
    EXPECT_EQ(words, world.rank() == 1 ? "no such device" : "rank 1 failed: no such device");
    EXPECT_EQ(world.in_flight(), 0U);
    if (world.rank() == 0) {
      heard = true;
    }
    for (const seconds end = world.now() + 2; !heard && world.now() < end;) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(heard);
    world.queue().synchronize();
  });
}

TEST(StreamOrdered, TheLibrarysComplaintIsHeard) {
  run_streamed(2, [](streamed& world) {
    block bytes(world.queue(), 8);
    bytes.write(pattern(8, 1));
    const auto part = [](streamed& on, std::span<std::byte> all) -> task {
      if (on.rank() == 0) {
        co_await on.send(1, data_tag(0), all.first(7));
      } else {
        co_await on.receive(0, data_tag(0), all);
      }
    };
    drive(world, part(world, bytes.span()));
    while (!world.troubled()) {
      world.poll();
    }
    // The other rank may have heard of it first, and ended.
    const auto words = world.failure() ? what(world.failure()) : world.complaint();
    EXPECT_EQ(words, "rank 0 sends 7 bytes where rank 1 expects 8");
    world.fail(std::make_exception_ptr(communication_error(world.complaint())));
    world.queue().synchronize();
  });
}

/// Proves that these tests can detect a deadlock: the same exchange hangs without its group.
TEST(StreamOrdered, WithoutGroupsAnExchangeHangs) {
  for (const groups wanted : {groups::honoured, groups::ignored}) {
    std::vector<int> stuck(2);
    run_streamed(
        2,
        [&](streamed& world) {
          block out(world.queue(), 8);
          block in(world.queue(), 8);
          out.write(pattern(8, 1));
          const auto part = [](streamed& on, std::span<std::byte> from,
                               std::span<std::byte> to) -> task {
            co_await on.exchange(1 - on.rank(), from, 1 - on.rank(), to, data_tag(0));
          };
          drive(world, part(world, out.span(), in.span()));
          const auto end = world.queue().record();
          const seconds deadline = world.now() + (wanted == groups::honoured ? 10 : 0.2);
          while (!world.queue().passed(end) && world.now() < deadline) {
            std::this_thread::yield();
          }
          stuck[static_cast<std::size_t>(world.rank())] = !world.queue().passed(end);
          world.fail(std::make_exception_ptr(communication_error("done")));
          world.queue().synchronize();
        },
        wanted);
    EXPECT_EQ(stuck, (wanted == groups::honoured ? std::vector{0, 0} : std::vector{1, 1}));
  }
}

/// Behind any_like an engine would not know in which order messages are sent, so a stream-ordered
/// transport cannot be wrapped.
using host_streams = host_stream_world::transport;
using any_stream = tutti::transport::any_like<host_streams>;
static_assert(std::is_constructible_v<any_stream, host_streams&>);
static_assert(!std::is_constructible_v<any_stream, streamed&>);

}  // namespace
}  // namespace tutti::test
