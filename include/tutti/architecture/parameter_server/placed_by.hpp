#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"

namespace tutti::architecture {

/// How a chunk's server is chosen. Chunks are placed in forward order, the pieces of a bucket from
/// the first on. By a bucket's tensor is meant its first one in that order, the one nearest the
/// input. Numbers and hashes are reduced modulo the number of servers, under `mixed` of those
/// of a group.
enum class placed_by {
  least_loaded,  ///< the server with the fewest elements so far (TensorFlow, tensorpack)
  round_robin,   ///< for each chunk the next server (TensorFlow; MXNet's P3 for its slices)
  kvstore,       ///< 9973 times the tensor's id; if a bucket is cut, the piece's number (MXNet)
  naive,         ///< 9973 times the sum of the tensor's and the piece's number (BytePS)
  built_in,      ///< the standard library's hash of the key's decimal digits (BytePS)
  djb2,          ///< Bernstein's hash of those digits (BytePS's default)
  sdbm,          ///< the sdbm library's hash of those digits (BytePS)
  mixed,         ///< djb2 in two groups of servers, by about `optimal_shares` (BytePS's mixed mode)
  /// The server that has the fewest elements, with the chunk's, relative to its `optimal_shares`.
  optimal_split,
};

/// Returns the enumerators' names, in their order.
constexpr std::array<std::string_view, 9> names(placed_by) {
  return {"least_loaded", "round_robin", "kvstore", "naive",        "built_in",
          "djb2",         "sdbm",        "mixed",   "optimal_split"};
}

/// BytePS's hash functions of a key, not yet reduced to a server. A piece's key is its tensor's
/// number · 65,536 + the piece's own number.
namespace key_hash {

constexpr std::uint64_t naive(std::uint64_t key) { return ((key >> 16) + (key & 0xffff)) * 9973; }
/// Differs between standard libraries. Ranks that do not agree refuse each other's plan.
inline std::uint64_t built_in(std::uint64_t key) {
  return std::hash<std::string>()(std::to_string(key));
}
inline std::uint64_t djb2(std::uint64_t key) {
  std::uint64_t hash = 5381;
  for (const char digit : std::to_string(key)) {
    hash = hash * 33 + static_cast<std::uint64_t>(digit);
  }
  return hash;
}
inline std::uint64_t sdbm(std::uint64_t key) {
  std::uint64_t hash = 0;
  for (const char digit : std::to_string(key)) {
    hash = hash * 65'599 + static_cast<std::uint64_t>(digit);
  }
  return hash;
}

}  // namespace key_hash

/// Where servers live under placed_by::mixed and optimal_split: the first `alone` of them have
/// hosts to themselves, and the others live one on each worker's host.
struct mixed_hosts {
  std::uint64_t workers{};
  std::uint64_t alone{};

  /// Throws usage_error unless each worker's host has a server, and at most as many servers more
  /// have hosts to themselves. Further servers would not help.
  static mixed_hosts of(int workers, int servers) {
    if (servers < workers || servers - workers > workers) {
      throw usage_error(
          sentence({servers, " servers are too few or too many for one on each of ", workers,
                    " workers' hosts and at most as many on other hosts. Fix: set "
                    "architecture.servers from ",
                    workers, " to ", 2 * std::int64_t{workers}, ", or placed_by = least_loaded"}));
    }
    return {static_cast<std::uint64_t>(workers), static_cast<std::uint64_t>(servers - workers)};
  }
};

/// How much a server of each kind adds up, as weights. With these weights all NICs are busy equally
/// long, which is bound::shared_servers. With n workers and k servers on hosts to themselves, the
/// sum of all servers' weights is n² + kn - 2k. If there is one worker, the server on its host does
/// everything.
struct optimal_shares {
  std::uint64_t alone{};        ///< 2 (n-1)
  std::uint64_t with_worker{};  ///< n - k

  constexpr optimal_shares(const mixed_hosts& hosts)
      : alone(2 * (hosts.workers - 1)),
        with_worker(hosts.workers == 1 ? 1 : hosts.workers - hosts.alone) {}
};

namespace detail {

/// Calls `server_of(bucket, chunk, piece)` for the chunks in forward order, and places each on the
/// server returned; servers are the ranks from `first` on.
template <class ServerOf>
void place_each(plan& made, int first, ServerOf server_of) {
  for (std::size_t number = made.buckets.size(); number-- > 0;) {
    const bucket& group = made.buckets[number];
    for (std::uint32_t piece = 0; piece < group.chunks; ++piece) {
      chunk& each = made.chunks[group.first_chunk + piece];
      each.placed_on = first + static_cast<int>(server_of(group, each, piece));
    }
  }
}

inline tensor_id first_tensor(const plan& made, const bucket& group) {
  return made.at(group.first_tensor + group.tensors - 1);
}

/// Places each chunk on the server whose load, with the chunk, is the lowest relative to its share;
/// on the first of several such.
[[gnu::cold]] inline void place_by_load(plan& made, int first,
                                        const std::vector<std::uint64_t>& shares) {
  std::vector<std::uint64_t> loads(shares.size());
  place_each(made, first, [&](const bucket&, const chunk& each, std::uint32_t) {
    const auto with = [&](std::size_t server) { return loads[server] + each.elements; };
    std::size_t best = 0;
    for (std::size_t i = 1; i < shares.size(); ++i) {
      if (shares[best] == 0 || with(i) * shares[best] < with(best) * shares[i]) {
        best = i;
      }
    }
    loads[best] += each.elements;
    return best;
  });
}

/// Returns each tensor's place among all tensors sorted by the bytes of their names, indexed by id.
[[gnu::cold]] inline std::vector<std::uint64_t> numbers_by_name(const plan& made) {
  std::vector<std::size_t> ids(made.backward.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  const auto name_of = [&](std::size_t id) -> std::string_view {
    return made.backward[made.position_of[id]].name;
  };
  std::sort(ids.begin(), ids.end(), [&](std::size_t a, std::size_t b) {
    const int order = name_of(a).compare(name_of(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<std::uint64_t> numbers(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    numbers[ids[i]] = i;
  }
  return numbers;
}

/// Places each chunk on `server_of(key)`, with the keys that BytePS for PyTorch gives gradients,
/// which it declares in the order of their names.
template <class ServerOf>
void place_by_key(plan& made, int first, ServerOf server_of) {
  const std::vector<std::uint64_t> numbers = numbers_by_name(made);
  place_each(made, first, [&](const bucket& group, const chunk&, std::uint32_t piece) {
    return server_of((numbers[index(first_tensor(made, group))] << 16) + piece);
  });
}

/// Hashes keys into so many classes, and each class to a server.
[[gnu::cold]] inline void place_mixed(plan& made, int first, const mixed_hosts& hosts,
                                      std::uint64_t classes) {
  const optimal_shares shares(hosts);
  const auto to_alone = static_cast<double>(hosts.alone * shares.alone);
  const auto all = to_alone + static_cast<double>(hosts.workers * shares.with_worker);
  const double of_alone = to_alone / all * static_cast<double>(classes);
  place_by_key(made, first, [&](std::uint64_t key) {
    const std::uint64_t its = key_hash::djb2(key) % classes;
    const std::uint64_t hash = key_hash::djb2(its);
    return static_cast<double>(its) < of_alone ? hash % hosts.alone
                                               : hosts.alone + hash % hosts.workers;
  });
}

}  // namespace detail

/// Places each chunk on a server; servers are the `servers` ranks after the `workers`. Mixed mode
/// hashes keys into so many `classes`. Throws usage_error if the placement does not allow so many
/// servers or so few classes. Cost: once a plan, nothing in a step.
[[gnu::cold]] inline void place(plan& made, placed_by how, int workers, int servers, int classes) {
  const auto count = static_cast<std::uint64_t>(servers);
  const auto by_hash = [&](auto hash) {
    detail::place_by_key(made, workers, [&](std::uint64_t key) { return hash(key) % count; });
  };
  switch (how) {
    case placed_by::least_loaded:
      return detail::place_by_load(made, workers, std::vector<std::uint64_t>(count, 1));
    case placed_by::round_robin:
      return detail::place_each(
          made, workers, [&, next = std::uint64_t{0}](const bucket&, const chunk&, auto) mutable {
            return next++ % count;
          });
    case placed_by::kvstore:
      return detail::place_each(
          made, workers, [&](const bucket& group, const chunk&, std::uint32_t piece) {
            return (group.chunks == 1 ? 9973 * index(detail::first_tensor(made, group)) : piece) %
                   count;
          });
    case placed_by::naive:
      return by_hash(key_hash::naive);
    case placed_by::built_in:
      return by_hash(key_hash::built_in);
    case placed_by::djb2:
      return by_hash(key_hash::djb2);
    case placed_by::sdbm:
      return by_hash(key_hash::sdbm);
    case placed_by::mixed:
      if (classes < servers) {
        throw usage_error(
            sentence({"placed_by mixed has ", classes, " hash classes of keys for ", servers,
                      " servers. Fix: set architecture.mixed_classes to at least ", servers}));
      }
      return detail::place_mixed(made, workers, mixed_hosts::of(workers, servers),
                                 static_cast<std::uint64_t>(classes));
    case placed_by::optimal_split: {
      const auto hosts = mixed_hosts::of(workers, servers);
      const optimal_shares each(hosts);
      std::vector<std::uint64_t> shares(count, each.with_worker);
      std::fill_n(shares.begin(), hosts.alone, each.alone);
      return detail::place_by_load(made, workers, shares);
    }
  }
}

}  // namespace tutti::architecture
