#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/collective/fan_out.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

namespace detail {

/// Describes a rank's tensors as an error names them, each followed by a zero byte.
[[gnu::cold]] inline std::string declaration(std::span<const tensor> forward) {
  constexpr std::size_t room = 120;  // for a name, in an error message
  std::string all;
  for (const tensor& each : forward) {
    all += sentence({std::string_view(each.name).substr(0, room), " (", each.elements, " elements)",
                     std::string_view("", 1)});
  }
  return all;
}

/// Removes the first tensor from a declaration, and returns it.
[[gnu::cold]] inline std::string_view next_tensor(std::string_view& all) {
  const auto first = all.substr(0, all.find('\0'));
  all.remove_prefix(std::min(all.size(), first.size() + 1));
  return first.empty() ? "no tensor" : first;
}

/// Names the first tensor that rank `rank` declares otherwise than rank 0, on both; empty if none.
[[gnu::cold]] inline std::string other_tensor(std::string_view first, int rank,
                                              std::string_view other) {
  for (std::size_t i = 0; !first.empty() || !other.empty(); ++i) {
    const auto here = next_tensor(first);
    const auto there = next_tensor(other);
    if (here != there) {
      return sentence({"tensor ", i, " is ", here, " on rank 0 and ", there, " on rank ", rank,
                       ". Fix: declare the same model on every rank"});
    }
  }
  return {};
}

/// Removes the first `name=value` from `lines`, and returns it.
inline std::pair<std::string_view, std::string_view> next_setting(std::string_view& lines) {
  const auto line = lines.substr(0, lines.find('\n'));
  lines.remove_prefix(std::min(lines.size(), line.size() + 1));
  const auto equals = std::min(line.size(), line.find('='));
  return {line.substr(0, equals), line.substr(std::min(line.size(), equals + 1))};
}

/// Returns as much of a value as an error has room for. A long one, such as a type's name, is shown
/// from where it begins to differ from `beside`.
[[gnu::cold]] inline std::string shown(std::string_view value, std::string_view beside) {
  constexpr std::size_t room = 150;
  if (value.empty()) {
    return "nothing";
  }
  if (value.size() <= room) {
    return std::string(value);
  }
  std::size_t common = 0;
  while (common < std::min(value.size(), beside.size()) && value[common] == beside[common]) {
    ++common;
  }
  return sentence({"...", value.substr(std::min(common, value.size() - 1), room)});
}

/// Names the first setting that differs on rank `rank`, with both values; empty if none does.
[[gnu::cold]] inline std::string other_setting(std::string_view first, int rank,
                                               std::string_view other) {
  while (!first.empty() || !other.empty()) {
    const auto [name, here] = next_setting(first);
    const auto [its_name, there] = next_setting(other);
    const bool alone = !name.empty() && name != its_name;  // a setting that only rank 0 has
    if (alone || here != there) {
      return sentence({name.empty() ? its_name : name, " is ", shown(here, there),
                       " on rank 0 and ", alone ? "nothing" : shown(there, here), " on rank ", rank,
                       ". Fix: set it alike on every rank"});
    }
  }
  return {};
}

[[gnu::cold]] inline std::string difference(std::string tensors, std::string settings, int rank) {
  return !tensors.empty()    ? tensors
         : !settings.empty() ? settings
                             : sentence({"rank 0 and rank ", rank,
                                         " plan the same tensors differently. Fix: give every rank "
                                         "the same profile"});
}

struct hello {
  std::uint64_t hash{};
  std::uint64_t tensors{};   ///< bytes of the declaration
  std::uint64_t settings{};  ///< bytes of the settings, which follow the declaration
};
struct verdict {
  std::uint64_t differs{};
  std::array<char, 480> why{};
};

/// Explains how rank `rank` differs from rank 0. `mine` and `other` are the declaration of each,
/// followed by its settings, and the greetings tell their lengths.
[[gnu::cold, gnu::noinline]] inline verdict verdict_on(const hello& greeting, std::string_view mine,
                                                       int rank, const hello& theirs,
                                                       std::string_view other) {
  verdict its{1, {}};
  difference(other_tensor(mine.substr(0, greeting.tensors), rank, other.substr(0, theirs.tensors)),
             other_setting(mine.substr(greeting.tensors), rank, other.substr(theirs.tensors)), rank)
      .copy(its.why.data(), its.why.size() - 1);
  return its;
}

}  // namespace detail

/// Receives bytes that the host reads now. Copies them from a loan, because a device's queue would
/// copy later.
template <class Endpoint>
task receive_now(Endpoint self, int peer, std::span<std::byte> into) {
  const auto mail = co_await self.receive_loan(peer, into.size());
  std::copy(mail.bytes().begin(), mail.bytes().end(), into.begin());
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// Compares plans, and the settings that their hash covers, with rank 0's. If they differ, every
/// rank throws disagreement with one sentence, which names both ranks and both tensors, or the
/// setting and both values.
template <class Endpoint>
[[gnu::cold]] task agree(Endpoint self, const plan& made, std::span<const tensor> forward,
                         std::string_view settings) {
  std::string mine = detail::declaration(forward);
  detail::hello greeting{made.hash, mine.size(), settings.size()};
  mine += settings;
  detail::verdict common;
  if (self.rank() != 0) {
    co_await self.send(0, std::as_bytes(std::span(&greeting, 1)));
    co_await self.send(0, std::as_bytes(std::span(mine)));
    co_await receive_now(self, 0, bytes_of(common));
  } else {
    for (int rank = 1; rank < self.size(); ++rank) {
      detail::hello theirs;
      co_await receive_now(self, rank, bytes_of(theirs));
      std::string other(theirs.tensors + theirs.settings, '\0');
      co_await receive_now(self, rank, std::as_writable_bytes(std::span(other)));
      if (theirs.hash != made.hash && common.differs == 0) {
        common = detail::verdict_on(greeting, mine, rank, theirs, other);
      }
    }
    co_await collective::send_to_all(self, std::as_bytes(std::span(&common, 1)));
  }
  if (common.differs != 0) {
    throw disagreement(common.why.data());
  }
}

/// Sends rank 0's parameters to all other ranks.
template <class Endpoint>
[[gnu::cold]] task broadcast_parameters(Endpoint self, std::span<const tensor> forward) {
  for (const auto& each : forward) {
    if (self.rank() == 0) {
      co_await collective::send_to_all(self, std::as_bytes(each.parameter));
    } else {
      co_await self.receive(0, std::as_writable_bytes(each.parameter));
    }
  }
}

/// Replaces each value by its mean over ranks [0, workers), added in rank order.
template <class Endpoint>
task average_over_workers(Endpoint self, int workers, std::span<double> values) {
  if (self.rank() != 0) {
    co_await self.send(0, std::as_bytes(values));
    co_await receive_now(self, 0, std::as_writable_bytes(values));
    co_return;
  }
  for (int rank = 1; rank < workers; ++rank) {
    const auto mail = co_await self.receive_loan(rank, values.size_bytes());
    for (std::size_t i = 0; i < values.size(); ++i) {
      double theirs = 0;
      std::memcpy(&theirs, mail.bytes().data() + i * sizeof theirs, sizeof theirs);
      values[i] += theirs;
    }
  }
  for (double& each : values) {
    each /= workers;
  }
  for (int rank = 1; rank < workers; ++rank) {
    co_await self.send(rank, std::as_bytes(values));
  }
}

/// Does so unless another rank has given another number of values than rank 0, or its hash `given`
/// of the values that were last given to the optimizer differs. Then every rank throws disagreement
/// and no value is changed.
template <class Endpoint>
[[gnu::cold]] task average_and_compare(Endpoint self, int workers, std::span<double> values,
                                       std::uint64_t given) {
  struct words {
    std::uint64_t count;
    std::uint64_t given;
  };
  struct verdict {
    words first;
    words other;
    std::uint64_t rank;  // whose words are `other`, which differ from rank 0's; or 0
  };
  const words mine{values.size(), given};
  verdict common{mine, mine, 0};
  if (self.rank() != 0) {
    co_await self.send(0, std::as_bytes(std::span(&mine, 1)));
    co_await receive_now(self, 0, bytes_of(common));
  } else {
    for (int rank = 1; rank < workers; ++rank) {
      words its{};
      co_await receive_now(self, rank, bytes_of(its));
      if (common.rank == 0 && (its.count != mine.count || its.given != mine.given)) {
        common.other = its;
        common.rank = static_cast<std::uint64_t>(rank);
      }
    }
    for (int rank = 1; rank < workers; ++rank) {
      co_await self.send(rank, bytes_of(common));
    }
  }
  if (common.rank != 0 && common.first.count != common.other.count) {
    throw disagreement(sentence({"rank 0 averages ", common.first.count, " values and rank ",
                                 common.rank, " ", common.other.count,
                                 ". Fix: call average(), change(), replan(), save() and load() in "
                                 "one order on every rank, and average equally many values"}));
  }
  if (common.rank != 0) {
    throw disagreement(
        sentence({"rank 0 and rank ", common.rank,
                  " have given different values to change(). Fix: give the same ones "
                  "between the same two steps on every rank"}));
  }
  co_await average_over_workers(self, workers, values);
}

}  // namespace tutti
