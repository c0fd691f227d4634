// Which server owns which chunk, compared with plain loops and with the answers of the originals'
// own functions.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <vector>

#include "models/replayed/replayed.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/bounds.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/partition/over_servers.hpp"

namespace tutti::test {
namespace {

using architecture::placed_by;
using server = architecture::parameter_server<>;

/// A piece of a tensor, or of several that are sent together. `tensor` is then the first of them,
/// which is the earliest in forward order.
struct piece {
  std::size_t tensor{};
  std::size_t number{};
  std::size_t elements{};
  int server{};

  friend bool operator==(const piece&, const piece&) = default;
  friend std::ostream& operator<<(std::ostream& out, const piece& its) {
    return out << its.tensor << "." << its.number << " (" << its.elements << ") on " << its.server;
  }
};
using pieces = std::vector<piece>;

std::vector<tensor> model_of(const std::vector<std::size_t>& elements) {
  std::vector<tensor> all;
  for (const std::size_t each : elements) {
    char name[16];
    std::snprintf(name, sizeof name, "t%05zu", all.size());
    all.push_back(tensor::phantom(name, each));
  }
  return all;
}

std::vector<tensor> recorded(const std::string& name) {
  std::vector<tensor> all;
  for (const auto& each : models::replay(name).tensors) {
    all.push_back(tensor::phantom(each.name, each.elements));
  }
  return all;
}

/// Returns the pieces in forward order, with servers counted from 0.
template <class Partition, class Fusion = fusion::none>
pieces placed(const std::vector<tensor>& forward, const Partition& partition, int workers,
              server::options set, const Fusion& fusion = {}) {
  const plan made = make_plan(forward, fusion, partition, {},
                              [&](plan& its) { server::place(its, set, workers + set.servers); });
  pieces all;
  for (std::size_t i = made.buckets.size(); i-- > 0;) {
    const bucket& group = made.buckets[i];
    std::size_t first = forward.size();
    for (std::size_t position = 0; position < group.tensors; ++position) {
      first = std::min(first, index(made.at(group.first_tensor + position)));
    }
    for (std::uint32_t number = 0; number < group.chunks; ++number) {
      const chunk& each = made.chunks[group.first_chunk + number];
      all.push_back({first, number, each.elements, each.placed_on - workers});
    }
  }
  return all;
}

std::vector<std::size_t> loads(const pieces& all, int servers) {
  std::vector<std::size_t> each(static_cast<std::size_t>(servers));
  for (const piece& one : all) {
    each.at(static_cast<std::size_t>(one.server)) += one.elements;
  }
  return each;
}

/// Returns the hashes that BytePS's documentation names, of the key's decimal digits.
std::uint64_t hash_of(placed_by how, std::uint64_t key) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%llu", static_cast<unsigned long long>(key));
  std::uint64_t hash = how == placed_by::sdbm ? 0 : 5381;
  for (const char* at = digits; *at != 0; ++at) {
    const auto c = static_cast<std::uint64_t>(*at);
    hash = how == placed_by::sdbm ? c + (hash << 6) + (hash << 16) - hash : (hash << 5) + hash + c;
  }
  return how == placed_by::naive      ? (key / 65536 + key % 65536) * 9973
         : how == placed_by::built_in ? std::hash<std::string>()(digits)
                                      : hash;
}

/// The shares of all sums that one host's server adds, with n hosts of workers and k others.
double share_of_another(double n, double k) { return 2 * (n - 1) / (n * n + k * n - 2 * k); }
double share_of_a_workers(double n, double k) { return (n - k) / (n * n + k * n - 2 * k); }

/// Assigns pieces in forward order to servers.
void place_plainly(pieces& all, const std::vector<tensor>& forward, placed_by how, int workers,
                   int servers) {
  const auto count = static_cast<std::uint64_t>(servers);
  std::vector<std::size_t> load(count);
  std::uint64_t turn = 0;
  for (piece& each : all) {
    const auto pieces_of_it = std::ranges::count(all, each.tensor, &piece::tensor);
    const auto smaller_names = std::ranges::count_if(
        forward, [&](const tensor& other) { return other.name < forward[each.tensor].name; });
    const std::uint64_t key = static_cast<std::uint64_t>(smaller_names) * 65536 + each.number;
    std::uint64_t to = 0;
    if (how == placed_by::least_loaded) {
      to = static_cast<std::uint64_t>(std::ranges::min_element(load) - load.begin());
    } else if (how == placed_by::round_robin) {
      to = turn++ % count;
    } else if (how == placed_by::kvstore) {
      to = pieces_of_it == 1 ? each.tensor * 9973 % count : each.number % count;
    } else if (how == placed_by::mixed) {
      const auto others = static_cast<std::uint64_t>(servers - workers);
      const double part =
          static_cast<double>(others) * share_of_another(workers, static_cast<double>(others));
      const std::uint64_t category = hash_of(placed_by::djb2, key) % 101;
      const std::uint64_t hash = hash_of(placed_by::djb2, category);
      to = static_cast<double>(category) < part * 101
               ? hash % others
               : others + hash % static_cast<std::uint64_t>(workers);
    } else {
      to = hash_of(how, key) % count;
    }
    load[to] += each.elements;
    each.server = static_cast<int>(to);
  }
}

template <class Partition>
void expect_as_plainly(const std::vector<tensor>& forward, const Partition& partition,
                       placed_by how, int workers, int servers) {
  const pieces made = placed(forward, partition, workers, {.servers = servers, .placed_by = how});
  pieces expected = made;
  place_plainly(expected, forward, how, workers, servers);
  EXPECT_EQ(made, expected) << names(how)[static_cast<std::size_t>(how)] << ", " << servers;
  EXPECT_EQ(loads(made, servers), loads(expected, servers));
}

/// Every rule that works with any number of servers.
constexpr placed_by anywhere[] = {
    placed_by::least_loaded, placed_by::round_robin, placed_by::kvstore, placed_by::naive,
    placed_by::built_in,     placed_by::djb2,        placed_by::sdbm};

TEST(Placement, OfRecordedModelsIsThatOfAPlainLoop) {
  for (const char* name : {"resnet50", "vgg16", "inception_bn"}) {
    const auto forward = recorded(name);
    for (const int servers : {1, 3, 8}) {
      for (const placed_by how : anywhere) {
        SCOPED_TRACE(name);
        expect_as_plainly(forward, partition::into(), how, 4, servers);
      }
      expect_as_plainly(forward, among(partition::over_servers(), servers), placed_by::kvstore, 4,
                        servers);
    }
    for (int servers = 4; servers <= 8; ++servers) {
      expect_as_plainly(forward, partition::into(), placed_by::mixed, 4, servers);
    }
  }
}

TEST(Placement, OfSmallModelsIsThatOfAPlainLoop) {
  // Tensors of no elements, one, and odd numbers, with names that are not in forward order.
  std::vector<tensor> forward = model_of({7, 0, 1, 12, 5, 5});
  std::swap(forward[0].name, forward[4].name);
  std::swap(forward[1].name, forward[2].name);
  for (const int servers : {1, 2, 3, 4, 5}) {
    for (const placed_by how : anywhere) {
      expect_as_plainly(forward, partition::into({.elements = 3}), how, 3, servers);
      expect_as_plainly(forward, among(partition::over_servers({.bound = 6}), servers), how, 3,
                        servers);
    }
    for (int workers = (servers + 1) / 2; workers <= servers; ++workers) {
      expect_as_plainly(forward, partition::into({.elements = 3}), placed_by::mixed, workers,
                        servers);
    }
  }
  EXPECT_TRUE(placed({}, partition::into(), 2, {.servers = 3}).empty());
}

/// The answers of BytePS's functions for ten keys. They were recorded on 23 November 2026 from
/// these functions compiled unchanged. Of which version, and by which program, is not recorded.
/// BytePS as a whole was not built.
TEST(Placement, IsThatOfBytePSItself) {
  const struct {
    placed_by how;
    int workers;
    int servers;
    std::vector<int> answers;
  } runs[] = {
    {placed_by::naive, 4, 1, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
    {placed_by::naive, 4, 2, {0, 1, 0, 0, 0, 1, 0, 1, 0, 1}},
    {placed_by::naive, 4, 3, {0, 1, 2, 2, 1, 1, 0, 2, 1, 1}},
    {placed_by::naive, 4, 5, {0, 3, 1, 1, 2, 1, 1, 0, 0, 4}},
    {placed_by::naive, 4, 8, {0, 5, 2, 2, 4, 3, 6, 1, 0, 7}},
#if defined(__GLIBCXX__)
    {placed_by::built_in, 4, 2, {0, 1, 0, 1, 1, 1, 1, 0, 1, 0}},
    {placed_by::built_in, 4, 3, {1, 2, 1, 2, 2, 2, 1, 1, 2, 2}},
    {placed_by::built_in, 4, 5, {1, 2, 3, 0, 3, 4, 3, 4, 0, 2}},
    {placed_by::built_in, 4, 8, {6, 5, 4, 7, 5, 3, 7, 6, 1, 4}},
#endif
    {placed_by::djb2, 4, 1, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
    {placed_by::djb2, 4, 2, {1, 0, 1, 1, 1, 0, 0, 1, 0, 1}},
    {placed_by::djb2, 4, 3, {0, 0, 1, 2, 1, 2, 1, 0, 0, 0}},
    {placed_by::djb2, 4, 5, {1, 2, 3, 2, 4, 4, 1, 4, 4, 2}},
    {placed_by::djb2, 4, 8, {5, 6, 7, 3, 5, 4, 4, 7, 4, 7}},
    {placed_by::sdbm, 4, 2, {0, 1, 0, 0, 0, 1, 1, 0, 1, 0}},
    {placed_by::sdbm, 4, 3, {0, 1, 2, 2, 1, 0, 0, 0, 1, 1}},
    {placed_by::sdbm, 4, 5, {3, 3, 4, 2, 4, 1, 2, 2, 4, 2}},
    {placed_by::sdbm, 4, 8, {0, 1, 2, 4, 6, 5, 3, 4, 7, 2}},
    {placed_by::mixed, 1, 1, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
    {placed_by::mixed, 2, 2, {0, 0, 1, 1, 1, 1, 1, 0, 1, 0}},
    {placed_by::mixed, 2, 4, {0, 0, 1, 1, 1, 1, 1, 0, 1, 0}},
    {placed_by::mixed, 3, 5, {0, 0, 1, 1, 1, 1, 1, 2, 1, 0}},
    {placed_by::mixed, 4, 4, {2, 0, 1, 3, 1, 1, 1, 2, 1, 0}},
    {placed_by::mixed, 4, 5, {3, 1, 2, 0, 0, 2, 2, 3, 0, 0}},
    {placed_by::mixed, 4, 6, {4, 0, 1, 1, 1, 1, 1, 4, 1, 0}},
    {placed_by::mixed, 4, 8, {2, 0, 1, 3, 1, 1, 1, 2, 1, 0}},
    {placed_by::mixed, 5, 7, {4, 0, 1, 1, 1, 5, 1, 5, 1, 0}},
  };
  const pieces keys{{0, 0}, {1, 0},  {1, 1},   {2, 0},   {2, 2},
                    {7, 0}, {99, 3}, {123, 2}, {160, 0}, {160, 3}};
  const auto forward = model_of(std::vector<std::size_t>(161, 4));
  for (const auto& [how, workers, servers, answers] : runs) {
    const pieces made = placed(forward, partition::into({.elements = 1}), workers,
                               {.servers = servers, .placed_by = how});
    std::vector<int> owners;
    for (const piece& key : keys) {
      owners.push_back(made[4 * key.tensor + key.number].server);
    }
    EXPECT_EQ(owners, answers) << names(how)[static_cast<std::size_t>(how)] << ", " << workers
                               << " workers, " << servers << " servers";
  }
}

TEST(Placement, OfTensorsThatTravelTogetherIsThatOfTheFirst) {
  const auto forward = model_of({4, 4, 4, 4, 4});
  // From the last tensor on, buckets close with their second tensor: {4, 3}, {2, 1}, {0}.
  const fusion::up_to pairs({.bytes = 32});
  const pieces made =
      placed(forward, partition::none(), 1, {.servers = 5, .placed_by = placed_by::kvstore}, pairs);
  EXPECT_EQ(made, (pieces{{0, 0, 4, 0}, {1, 0, 8, 9973 % 5}, {3, 0, 8, 3 * 9973 % 5}}));
}

/// No server has less than its share by more than a piece, or more than its share by more than a
/// piece for each server.
TEST(Placement, OfTheOptimalSplitGivesEachServerItsShare) {
  for (const char* name : {"resnet50", "bert_base"}) {
    const auto forward = recorded(name);
    const double all = std::accumulate(
        forward.begin(), forward.end(), 0.0,
        [](double sum, const tensor& each) { return sum + static_cast<double>(each.elements); });
    constexpr double most = 65'536;
    for (const int n : {1, 2, 3, 4, 8}) {
      for (int k = 0; k <= n; ++k) {
        const pieces made = placed(forward, partition::into({.elements = 65'536}), n,
                                   {.servers = n + k, .placed_by = placed_by::optimal_split});
        const auto each = loads(made, n + k);
        for (int i = 0; i < n + k; ++i) {
          const double share = n == 1  ? i < k ? 0.0 : 1.0
                               : i < k ? share_of_another(n, k)
                                       : share_of_a_workers(n, k);
          const auto has = static_cast<double>(each[static_cast<std::size_t>(i)]);
          EXPECT_GE(has, share * all - most) << n << " and " << k << ", server " << i;
          EXPECT_LE(has, share * (all + (n + k) * most)) << n << " and " << k << ", server " << i;
        }
      }
    }
  }
}

TEST(Placement, RefusesServersThatCannotBeSharedOut) {
  const auto said = [](placed_by how, int workers, int servers, int classes = 101) -> std::string {
    try {
      placed(model_of({4}), partition::none(), workers,
             {.servers = servers, .placed_by = how, .mixed_classes = classes});
    } catch (const usage_error& sentence) {
      return sentence.what();
    }
    return "";
  };
  for (const placed_by how : {placed_by::mixed, placed_by::optimal_split}) {
    EXPECT_EQ(
        said(how, 4, 3),
        "3 servers are too few or too many for one on each of 4 workers' hosts and at most as many "
        "on other hosts. Fix: set architecture.servers from 4 to 8, or placed_by = least_loaded");
    EXPECT_NE(said(how, 4, 9), "");
    EXPECT_EQ(said(how, 4, 4) + said(how, 4, 8) + said(how, 1, 2), "");
  }
  EXPECT_EQ(said(placed_by::mixed, 4, 8, 7),
            "placed_by mixed has 7 hash classes of keys for 8 servers. Fix: set "
            "architecture.mixed_classes to at least 8");
  EXPECT_EQ(said(placed_by::mixed, 4, 8, 8), "");
}

}  // namespace
}  // namespace tutti::test
