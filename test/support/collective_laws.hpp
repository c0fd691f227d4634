#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "consumer/readme_policies.hpp"
#include "support/dealt.hpp"
#include "support/extent.hpp"
#include "support/transports.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/collective/by_graph.hpp"
#include "tutti/collective/by_size.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/hierarchical_copy.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/rings.hpp"
#include "tutti/collective/shuffle.hpp"
#include "tutti/collective/sliced_ring.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/collective/torus.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/transport.hpp"

/// Laws that every collective keeps. A world joins with
/// `INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CollectiveLaw, collectives_on<my_placed_world>)`, a
/// collective by its place in `each_collective`. One file, because a suite is registered as a
/// whole.
namespace tutti::test {

/// Numbers of elements: none, one, some that no number of ranks divides, and enough for many
/// pieces. The last one runs on five ranks only. Between processes a fifth of it is still sent in
/// pieces; in threads, which are all that a sanitizer sees, half of it is longer than any block.
inline constexpr std::array<std::size_t, 6> sizes_of_laws{
    0, 1, 7, 10, 1001, all_of_a_product ? 100'003 : 50'023};

/// KungFu's topologies, and each topology's graphs, in turn. The choice follows from where the
/// ranks live and how many elements there are.
struct by_graphs_in_turn : collective::by_graph {
  template <class HostOf>
  static std::size_t turn_of(std::size_t elements, int ranks, HostOf host_of) {
    std::size_t turn = elements + at(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      turn += at(host_of(rank));
    }
    return turn;
  }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    constexpr std::size_t all = names(collective::topology()).size();
    const std::size_t turn =
        turn_of(data.elements, self.size(), [self](int rank) { return self.host_of(rank); });
    data.route = turn / all;
    return by_graph({.topology = collective::topology(turn % all)}).all_reduce(self, data);
  }
};

/// The grid of the hosts and those of one to four columns. The number of elements picks one.
struct grids_in_turn : collective::torus {
  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    return torus({.columns = static_cast<int>(data.elements % 5)}).all_reduce(self, data);
  }
};

/// One to three rings, as the number of elements says.
struct rings_in_turn : collective::rings {
  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    return rings({.shards = 1 + data.elements % 3}).all_reduce(self, data);
  }
};

/// One to three shards on hosts or on ranks, beginning at any of the hosts or ranks.
struct shuffles_in_turn : collective::shuffle<collective::gather_at::ranks> {
  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    data.route = data.elements / 3;
    const std::uint64_t shards = 1 + data.elements % 3;
    if ((data.elements + at(self.size())) % 2 == 0) {
      return collective::shuffle<collective::gather_at::hosts>({shards}).all_reduce(self, data);
    }
    return shuffle({shards}).all_reduce(self, data);
  }
};

/// Copies between any two ranks of the two halves.
struct copies_in_turn : collective::hierarchical_copy {
  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    data.route = data.elements;
    return hierarchical_copy::all_reduce(self, data);
  }
};

enum class small_or_large { small, large };
constexpr std::array<std::string_view, 2> names(small_or_large) { return {"small", "large"}; }

using by_small_and_large =
    collective::by_size<small_or_large, collective::canonical, collective::rings>;
struct small_and_large : by_small_and_large {
  small_and_large()
      : by_size({.ranges = {{{small_or_large::small, 1, 7}, {small_or_large::large, 2, 0}}}}) {}
};

template <template <class> class Each>
using each_collective = testing::Types<
    Each<collective::ring>, Each<collective::sliced_ring<64>>, Each<collective::halving_doubling>,
    Each<collective::star>, Each<collective::canonical>, Each<collective::addressable>,
    Each<by_graphs_in_turn>, Each<grids_in_turn>, Each<rings_in_turn>, Each<shuffles_in_turn>,
    Each<copies_in_turn>, Each<small_and_large>, Each<by_rank_0>, Each<collective::hierarchical<>>,
    Each<collective::hierarchical<collective::canonical, collective::halving_doubling,
                                  collective::crossing::all_ranks_if_even>>,
    Each<collective::hierarchical<collective::ring, collective::halving_doubling,
                                  collective::crossing::first_rank>>>;

/// A world has `run(hosts, body)`, which runs the coroutine `body(transport)` on one rank for each
/// entry of `hosts`, the number of the host on which that rank lives. It returns false if this
/// process is not among these ranks. Where ranks are processes, `share(held)` tells each process
/// what the others hold.
template <class World, class Collective>
struct collective_on {
  using world = World;
  using collective = Collective;
};

template <class World>
struct in_world {
  template <class Collective>
  using pair = collective_on<World, Collective>;
};

template <class World>
using collectives_on = each_collective<in_world<World>::template pair>;

using placement_of_ranks = std::vector<int>;

/// Returns placements on one host, on a host for each rank, on even and uneven hosts, and on hosts
/// whose ranks are not neighbours.
inline std::vector<placement_of_ranks> placements() {
  std::vector<placement_of_ranks> all;
  for (std::size_t hosts = 1; hosts <= 3; ++hosts) {
    for (std::size_t ranks = 1; ranks <= 3; ++ranks) {
      placement_of_ranks even;
      for (std::size_t rank = 0; rank < hosts * ranks; ++rank) {
        even.push_back(static_cast<int>(rank / ranks));
      }
      all.push_back(even);
    }
  }
  for (const placement_of_ranks& uneven : {placement_of_ranks{0, 0, 1},
                                           {0, 1, 0},
                                           {0, 0, 0, 0, 0},
                                           {1, 1, 0, 1},
                                           {0, 1, 2, 1},
                                           {0, 1, 1, 0, 1},
                                           {0, 0, 0, 0, 1, 1, 1, 1},
                                           {2, 0, 2, 2, 1},
                                           {0, 0, 0, 1, 1, 2},
                                           {0, 1, 0, 1, 0, 0, 0}}) {
    all.push_back(uneven);
  }
  std::erase_if(all, [](const placement_of_ranks& hosts) { return hosts.size() > most_placed; });
  return all;
}

/// Runs work of the host in a queue's order. Queues that take no such work have an overload of
/// their own.
template <class Queue, class Work>
void run_in_order(Queue& queue, Work work) {
  queue.run(work);
}

/// Adds elements that are floats or integers of two bytes.
struct add_elements {
  std::size_t element_bytes;

  template <class Queue>
  void operator()(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
    run_in_order(queue, [=, two = element_bytes == 2] {
      if (two) {
        add<std::uint16_t>(into, from, bytes);
      } else {
        add<float>(into, from, bytes);
      }
    });
  }

 private:
  template <class T>
  static void add(std::byte* into, const std::byte* from, std::size_t bytes) {
    auto* const sums = reinterpret_cast<T*>(into);
    const auto* const others = reinterpret_cast<const T*>(from);
    for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
      sums[i] = static_cast<T>(sums[i] + others[i]);
    }
  }
};

enum class verb { all_reduce, reduce_scatter, all_gather };

/// One run of a collective: where ranks live, the elements' size, and what each rank holds before
/// and afterwards. Where ranks have colours, those of one colour form a group and see no other
/// rank.
struct collective_run {
  placement_of_ranks hosts{};
  verb what{};
  std::size_t element_bytes{};
  std::size_t first_element{};
  std::vector<std::vector<std::byte>> held{};
  std::vector<int> colours{};
  /// The bytes that each rank's transport has counted; empty where ranks are processes, which know
  /// only their own.
  std::vector<std::uint64_t> sent = std::vector<std::uint64_t>(hosts.size());
};

/// Returns how many elements a rank sends of `n`, for collectives whose paper states that by rank.
using sent_by_rank = std::size_t (*)(std::size_t rank, std::size_t ranks, std::size_t n);

/// A collective in a world, with its type erased so that the laws are compiled once for all of
/// them.
struct collective_subject {
  bool rank_ordered;
  bool has_halves;
  bool runs_among_some;
  bool sends;  // false: it reads its peers' memory
  sent_by_rank sent;
  bool (*run)(collective_run&);  // returns false if this process took no part
};

template <class Transport, class Collective>
class collective_rank {
 public:
  collective_rank(collective_run& shared) : shared_(&shared) {}

  task operator()(Transport& world) const {
    std::vector<std::byte>& mine = shared_->held[at(world.rank())];
    std::vector<int> members;
    for (std::size_t rank = 0; rank < shared_->colours.size(); ++rank) {
      if (shared_->colours[rank] == shared_->colours[at(world.rank())]) {
        members.push_back(static_cast<int>(rank));
      }
    }
    const std::size_t element = shared_->element_bytes;
    const int ranks = members.empty() ? world.size() : static_cast<int>(members.size());
    memory<typename Transport::queue_type> data(world.queue(), mine.size());
    memory<typename Transport::queue_type> scratch(
        world.queue(), Collective{}.scratch_bytes(mine.size() / element, element, ranks));
    reduction<add_elements> sum{
        data.span().data(), mine.size() / element, element, {element}, scratch.span()};
    sum.first_element = shared_->first_element;
    const endpoint self(world, tag{channel::data, 1, 0});
    const std::uint64_t before = world.counted().bytes_sent;
    for (int again = 0; again < 2; ++again) {  // so that a lane is used again in the next step
      data.write(mine);
      if constexpr (group_collective<Collective>) {
        if (!members.empty()) {
          co_await Collective{}.all_reduce(self.group(members), sum);
          continue;
        }
      }
      co_await begin(self, sum);
    }
    mine = data.read();
    shared_->sent[at(world.rank())] = (world.counted().bytes_sent - before) / 2;
  }

 private:
  task begin(endpoint<Transport> self, reduction<add_elements> data) const {
    if constexpr (splitting_collective<Collective>) {
      if (shared_->what == verb::reduce_scatter) {
        return Collective{}.reduce_scatter(self, data);
      }
      if (shared_->what == verb::all_gather) {
        return Collective{}.all_gather(self, data);
      }
    }
    return Collective{}.all_reduce(self, data);
  }

  collective_run* shared_;
};

/// Returns the elements of part `which` when `n` are cut evenly into `parts`. The first parts are
/// one element longer where the division leaves a remainder.
constexpr std::size_t even_part(std::size_t n, std::size_t parts, std::size_t which) {
  return n / parts + (which % parts < n % parts ? 1 : 0);
}

/// Patarasuk and Yuan: a rank sends every part but its own, then every sum but its successor's.
inline std::size_t sent_around_a_ring(std::size_t rank, std::size_t ranks, std::size_t n) {
  return 2 * n - even_part(n, ranks, rank) - even_part(n, ranks, rank + 1);
}
/// Each part goes to its owner, and its sum goes from the owner to all other ranks.
inline std::size_t sent_to_owners(std::size_t rank, std::size_t ranks, std::size_t n) {
  return n + (ranks - 2) * even_part(n, ranks, rank);
}
inline std::size_t sent_over_a_star(std::size_t rank, std::size_t ranks, std::size_t n) {
  return rank == 0 ? (ranks - 1) * n : n;
}

template <class Collective>
constexpr sent_by_rank sent_of = nullptr;
template <>
inline constexpr sent_by_rank sent_of<collective::ring> = sent_around_a_ring;
template <>
inline constexpr sent_by_rank sent_of<collective::canonical> = sent_to_owners;
template <>
inline constexpr sent_by_rank sent_of<collective::star> = sent_over_a_star;

template <class Pair>
class CollectiveLaw : public ::testing::Test {
  using transport = typename Pair::world::transport;
  using collective = typename Pair::collective;
  static constexpr bool possible =
      has_addressable_peers<transport> || !facts::requires_addressable_peers<collective>;

 public:
  void SetUp() override {
    if (!possible) {
      GTEST_SKIP() << "this transport's peers are not addressable";
    }
  }

  static collective_subject subject() {
    return {collective::rank_ordered,
            splitting_collective<collective>,
            group_collective<collective>,
            !facts::requires_addressable_peers<collective>,
            sent_of<collective>,
            [](collective_run& shared) {
              if constexpr (possible) {
                const bool took_part =
                    Pair::world::run(shared.hosts, collective_rank<transport, collective>(shared));
                if constexpr (requires { Pair::world::share(shared.held); }) {
                  shared.sent.clear();
                  if (took_part) {
                    Pair::world::share(shared.held);
                  }
                }
                return took_part;
              } else {
                return false;
              }
            }};
  }
};
TYPED_TEST_SUITE_P(CollectiveLaw);

namespace laws {

using bytes_by_rank = std::vector<std::vector<std::byte>>;

template <class T, class Value>
bytes_by_rank hold(std::size_t ranks, std::size_t elements, Value value) {
  bytes_by_rank all(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    all[rank].resize(elements * sizeof(T));
    for (std::size_t i = 0; i < elements; ++i) {
      const T each = static_cast<T>(value(rank, i));
      std::memcpy(all[rank].data() + i * sizeof(T), &each, sizeof(T));
    }
  }
  return all;
}

/// Returns what `make(ranks, n)` makes, cached for all collectives and placements, because in an
/// unoptimised build it takes longer than the collectives do.
template <class Make>
const auto& made_once(std::size_t ranks, std::size_t n, Make make) {
  static std::map<std::pair<std::size_t, std::size_t>, decltype(make(ranks, n))> all;
  const auto found = all.find({ranks, n});
  return found != all.end() ? found->second
                            : all.try_emplace({ranks, n}, make(ranks, n)).first->second;
}

inline bool all_same(const bytes_by_rank& some, const bytes_by_rank& others) {
  return std::ranges::equal(some, others,
                            [](const auto& one, const auto& other) { return same(one, other); });
}

/// Expects all ranks together to send 2(p-1) times the data's bytes, wherever they live. No
/// all-reduce that sends whole values does with less: the elements of p-1 ranks must travel to be
/// added, and every sum must travel back.
inline void sends_no_byte_more(const collective_subject& each, const collective_run& run,
                               std::size_t n) {
  const std::size_t ranks = run.hosts.size();
  std::uint64_t all = 0;
  for (std::size_t rank = 0; rank < run.sent.size(); ++rank) {
    all += run.sent[rank];
    if (each.sent != nullptr && ranks > 1) {
      ASSERT_EQ(run.sent[rank], run.element_bytes * each.sent(rank, ranks, n))
          << "rank " << rank << " of " << ranks << ", " << n << " elements";
    }
  }
  ASSERT_TRUE(run.sent.empty() || all == (each.sends ? 2 * (ranks - 1) * n * run.element_bytes : 0))
      << all << " bytes, " << ranks << " ranks, " << n << " elements";
}

/// Calls `check(ranks, n, after)` for every placement and size; `value(ranks, n)` makes the data.
/// For a reduce-scatter or an all-gather the data are taken for a part of a model that begins at
/// element `n`.
template <class T, class Data, class Check>
void everywhere(const collective_subject& each, verb what, Data data, Check check) {
  for (const placement_of_ranks& hosts : placements()) {
    for (const std::size_t n : sizes_of_laws) {
      if (n == sizes_of_laws.back() && hosts.size() != 5) {
        continue;
      }
      collective_run run{hosts, what, sizeof(T), what == verb::all_reduce ? 0 : n,
                         made_once(hosts.size(), n, data)};
      if (each.run(run)) {
        check(hosts.size(), n, run.held);
        if (what == verb::all_reduce) {
          sends_no_byte_more(each, run, n);
        }
      }
    }
  }
}

inline float fraction(std::size_t rank, std::size_t i) {
  const auto mixed =
      static_cast<std::uint32_t>(rank * 7919) * 31u + static_cast<std::uint32_t>(i) * 2654435761u;
  return static_cast<float>(mixed >> 8) / 16777216.0f - 0.5f;
}

/// The exact sums of what the ranks hold, and the largest error of a sum that is rounded once for
/// each peer.
struct sums_of_fractions {
  bytes_by_rank in_rank_order;
  std::vector<double> exact;
  std::vector<double> bound;
};
inline sums_of_fractions sums_of(std::size_t ranks, std::size_t n) {
  sums_of_fractions made{{}, std::vector<double>(n), std::vector<double>(n)};
  made.in_rank_order = hold<float>(1, n, [&](std::size_t, std::size_t i) {
    float in_rank_order = fraction(0, i);
    double exact = double{in_rank_order};
    double magnitude = std::abs(exact);
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      const float each = fraction(rank, i);
      in_rank_order += each;
      exact += double{each};
      magnitude += std::abs(double{each});
    }
    made.exact[i] = exact;
    made.bound[i] = static_cast<double>(ranks - 1) * std::ldexp(magnitude, -24);
    return in_rank_order;
  });
  return made;
}

inline void adds_within_one_rounding_a_peer(const collective_subject& each) {
  everywhere<float>(
      each, verb::all_reduce,
      [](std::size_t ranks, std::size_t n) { return hold<float>(ranks, n, fraction); },
      [&](std::size_t ranks, std::size_t n, const auto& held) {
        for (const auto& bytes : held) {
          ASSERT_TRUE(same(bytes, held[0])) << "ranks must hold the same bits";
        }
        const auto& expected = made_once(
            ranks, n, [](std::size_t p, std::size_t elements) { return sums_of(p, elements); });
        if (each.rank_ordered) {
          ASSERT_TRUE(same(held[0], expected.in_rank_order[0]))
              << "in the ranks' order, " << ranks << " ranks, " << n << " elements";
          return;
        }
        for (std::size_t i = 0; i < n; ++i) {
          float sum = 0;
          std::memcpy(&sum, held[0].data() + i * sizeof sum, sizeof sum);
          const bool near = std::abs(double{sum} - expected.exact[i]) <= expected.bound[i];
          if (!near) {  // because GoogleTest's conditions take many times as long
            FAIL() << sum << " instead of " << expected.exact[i] << ", " << i << " of " << n;
          }
        }
      });
}

inline void adds_integers_of_two_bytes_exactly(const collective_subject& each) {
  using integer = std::uint16_t;
  everywhere<integer>(
      each, verb::all_reduce,
      [](std::size_t ranks, std::size_t n) {
        return hold<integer>(ranks, n,
                             [](std::size_t rank, std::size_t i) { return 31 * rank + i % 1000; });
      },
      [](std::size_t ranks, std::size_t n, const auto& held) {
        const auto sum = [](std::size_t p, std::size_t elements) {
          return hold<integer>(p, elements, [p](std::size_t, std::size_t i) {
            return 31 * (p * (p - 1) / 2) + p * (i % 1000);
          });
        };
        ASSERT_TRUE(all_same(held, made_once(ranks, n, sum)))
            << ranks << " ranks, " << n << " elements";
      });
}

inline void halves_are_of_use_alone(const collective_subject& each) {
  everywhere<float>(
      each, verb::reduce_scatter,
      [](std::size_t ranks, std::size_t n) {
        return hold<float>(ranks, n, [](std::size_t rank, std::size_t i) { return 9 * rank + i; });
      },
      [](std::size_t ranks, std::size_t n, const auto& held) {
        const auto sum = [](std::size_t p, std::size_t elements) {
          return hold<float>(1, elements, [p](std::size_t, std::size_t i) {
            return 9 * (p * (p - 1) / 2) + p * i;
          });
        };
        const std::span<const std::byte> expected = made_once(ranks, n, sum)[0];
        std::size_t begin = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const std::size_t bytes = sizeof(float) * dealt(n, n, rank, ranks);
          ASSERT_TRUE(
              same(std::span(held[rank]).subspan(begin, bytes), expected.subspan(begin, bytes)))
              << "rank " << rank << " of " << ranks << ", " << n << " elements";
          begin += bytes;
        }
      });
  everywhere<float>(
      each, verb::all_gather,
      [](std::size_t ranks, std::size_t n) {
        std::size_t end = 0;
        bytes_by_rank all;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const std::size_t begin = std::exchange(end, end + dealt(n, n, rank, ranks));
          all.push_back(hold<float>(1, n, [&](std::size_t, std::size_t i) {
            return begin <= i && i < end ? static_cast<float>(i) : -1.0f;
          })[0]);
        }
        return all;
      },
      [](std::size_t ranks, std::size_t n, const auto& held) {
        const auto all = [](std::size_t p, std::size_t elements) {
          return hold<float>(p, elements, [](std::size_t, std::size_t i) { return i; });
        };
        ASSERT_TRUE(all_same(held, made_once(ranks, n, all)))
            << ranks << " ranks, " << n << " elements";
      });
}

inline void runs_among_some_of_the_ranks(const collective_subject& each) {
  for (const std::vector<int>& colours :
       {std::vector<int>{0}, {0, 1}, {0, 1, 0}, {1, 0, 0, 1}, {0, 1, 0, 1, 1}, {0, 1, 2, 0, 0}}) {
    constexpr std::size_t n = 1001;
    const std::size_t ranks = colours.size();
    const auto value = [](std::size_t rank, std::size_t i) {
      return (std::size_t{1} << rank) + i % 9;
    };
    collective_run run{placement_of_ranks(ranks),    verb::all_reduce, sizeof(float), 0,
                       hold<float>(ranks, n, value), colours};
    if (each.run(run)) {
      const auto sum = [&](std::size_t rank, std::size_t i) {
        std::size_t all = 0;
        for (std::size_t peer = 0; peer < ranks; ++peer) {
          all += colours[peer] == colours[rank] ? value(peer, i) : 0;
        }
        return all;
      };
      ASSERT_TRUE(all_same(run.held, hold<float>(ranks, n, sum))) << ranks << " ranks";
    }
  }
}

}  // namespace laws

TYPED_TEST_P(CollectiveLaw, AddsWithinOneRoundingAPeer) {
  laws::adds_within_one_rounding_a_peer(TestFixture::subject());
}
TYPED_TEST_P(CollectiveLaw, AddsIntegersOfTwoBytesExactlyAndSendsNoByteMore) {
  laws::adds_integers_of_two_bytes_exactly(TestFixture::subject());
}
TYPED_TEST_P(CollectiveLaw, ItsHalvesAreOfUseAlone) {
  if (!TestFixture::subject().has_halves) {
    GTEST_SKIP() << "it has no halves";
  }
  laws::halves_are_of_use_alone(TestFixture::subject());
}
TYPED_TEST_P(CollectiveLaw, RunsAmongSomeOfTheRanks) {
  if (!TestFixture::subject().runs_among_some) {
    GTEST_SKIP() << "it takes all ranks";
  }
  laws::runs_among_some_of_the_ranks(TestFixture::subject());
}

REGISTER_TYPED_TEST_SUITE_P(CollectiveLaw, AddsWithinOneRoundingAPeer,
                            AddsIntegersOfTwoBytesExactlyAndSendsNoByteMore, ItsHalvesAreOfUseAlone,
                            RunsAmongSomeOfTheRanks);

}  // namespace tutti::test
