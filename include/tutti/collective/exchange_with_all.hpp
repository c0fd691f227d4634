#pragma once

#include <cstddef>
#include <span>

#include "tutti/base/all_of.hpp"
#include "tutti/base/function_ref.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/fan_out.hpp"

namespace tutti::collective {

namespace detail {

template <class Endpoint, class Loans>
task take_in_rank_order(Endpoint self, Loans& loans,
                        function_ref<void(int, std::span<const std::byte>)> take) {
  for (int rank = 0; rank < self.size(); ++rank) {
    if (rank == self.rank()) {
      take(rank, std::span<const std::byte>{});
    } else {
      auto& next = loans.next();
      const auto theirs = co_await next;
      take(rank, theirs.bytes());
    }
  }
}

}  // namespace detail

/// Sends `bytes_for(peer)` to every other rank, and calls `take(rank, bytes)` for each rank, in
/// rank order, with the `bytes_from(rank)` bytes that it has sent. For this rank itself `take` gets
/// no bytes. The three functions must outlive the task.
template <class Endpoint>
task exchange_with_all(Endpoint self, function_ref<std::span<const std::byte>(int)> bytes_for,
                       function_ref<std::size_t(int)> bytes_from,
                       function_ref<void(int, std::span<const std::byte>)> take) {
  operations loans(static_cast<std::size_t>(self.size() - 1), [&](std::size_t index) {
    const int peer = static_cast<int>(index) + (static_cast<int>(index) < self.rank() ? 0 : 1);
    return self.receive_loan(peer, bytes_from(peer));
  });
  auto sends = begin_with_others(self, [&](int peer) { return self.send(peer, bytes_for(peer)); });
  co_await all_of(sends, all_of(loans, detail::take_in_rank_order(self, loans, take)));
}

}  // namespace tutti::collective
