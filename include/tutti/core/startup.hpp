#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/collective/fan_out.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

namespace detail {

/// One tensor of a rank's declaration, of fixed size so that it can be compared across ranks.
struct declared_tensor {
  std::uint64_t elements{};
  std::array<char, 120> name{};
};

inline std::vector<declared_tensor> declaration(std::span<const tensor> forward) {
  std::vector<declared_tensor> all(forward.size());
  for (std::size_t i = 0; i < forward.size(); ++i) {
    all[i].elements = forward[i].elements;
    forward[i].name.copy(all[i].name.data(), all[i].name.size() - 1);
  }
  return all;
}

inline std::string described(std::span<const declared_tensor> all, std::size_t i) {
  return i < all.size() ? sentence({all[i].name.data(), " (", all[i].elements, " elements)"})
                        : "no tensor";
}

/// What rank `rank` declares otherwise than rank 0, both named.
[[gnu::cold]] inline std::string difference(std::span<const declared_tensor> first, int rank,
                                            std::span<const declared_tensor> other) {
  for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    const std::string here = described(first, i);
    const std::string there = described(other, i);
    if (here != there) {
      return sentence({"tensor ", i, " is ", here, " on rank 0 and ", there, " on rank ", rank,
                       ". Fix: declare the same model on every rank"});
    }
  }
  return sentence({"rank 0 and rank ", rank,
                   " plan the same tensors differently. Fix: give every rank the same options"});
}

struct hello {
  std::uint64_t hash{};
  std::uint64_t tensors{};
};
struct verdict {
  std::uint64_t differs{};
  std::array<char, 480> why{};
};

}  // namespace detail

/// Receives what the host reads at once: out of a loan, because a device's queue would copy later.
template <class Endpoint>
task receive_now(Endpoint self, int peer, std::span<std::byte> into) {
  const auto mail = co_await self.receive_loan(peer, into.size());
  std::ranges::copy(mail.bytes(), into.begin());
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// Compares plans with rank 0's. Where they differ, every rank throws usage_error with one sentence
/// that names both ranks and both tensors.
template <class Endpoint>
task agree(Endpoint self, const plan& made, std::span<const tensor> forward) {
  const auto mine = detail::declaration(forward);
  detail::hello greeting{made.hash, mine.size()};
  detail::verdict common;
  if (self.rank() != 0) {
    co_await self.send(0, std::as_bytes(std::span(&greeting, 1)));
    co_await self.send(0, std::as_bytes(std::span(mine)));
    co_await receive_now(self, 0, bytes_of(common));
  } else {
    for (int rank = 1; rank < self.size(); ++rank) {
      detail::hello theirs;
      co_await receive_now(self, rank, bytes_of(theirs));
      std::vector<detail::declared_tensor> other(theirs.tensors);
      co_await receive_now(self, rank, std::as_writable_bytes(std::span(other)));
      if (theirs.hash != made.hash && common.differs == 0) {
        common.differs = 1;
        detail::difference(mine, rank, other).copy(common.why.data(), common.why.size() - 1);
      }
    }
    co_await collective::send_to_all(self, std::as_bytes(std::span(&common, 1)));
  }
  if (common.differs != 0) {
    throw usage_error(common.why.data());
  }
}

/// Rank 0's parameters become everybody's.
template <class Endpoint>
task broadcast_parameters(Endpoint self, std::span<const tensor> forward) {
  for (const auto& each : forward) {
    if (self.rank() == 0) {
      co_await collective::send_to_all(self, std::as_bytes(each.parameter));
    } else {
      co_await self.receive(0, std::as_writable_bytes(each.parameter));
    }
  }
}

/// `value` becomes its mean over ranks [0, workers), added in rank order.
template <class Endpoint>
task average_over_workers(Endpoint self, int workers, double& value) {
  const auto bytes = bytes_of(value);
  if (self.rank() != 0) {
    co_await self.send(0, bytes);
    co_await receive_now(self, 0, bytes);
    co_return;
  }
  for (int rank = 1; rank < workers; ++rank) {
    double theirs = 0;
    co_await receive_now(self, rank, bytes_of(theirs));
    value += theirs;
  }
  value /= workers;
  for (int rank = 1; rank < workers; ++rank) {
    co_await self.send(rank, bytes);
  }
}

}  // namespace tutti
