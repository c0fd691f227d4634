#pragma once

#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/function_ref.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/hosts.hpp"
#include "tutti/transport/in_process/endpoint.hpp"

namespace tutti::transport {

/// Delivers messages between threads: each goes straight into the receiver's mailbox.
class by_mailbox {
 public:
  static constexpr bool virtual_time = false;

  /// Threads share one host. For tests, `hosts` tells collectives otherwise: ranks with the same
  /// number share a host. Throws usage_error unless it holds a number for each rank, or none.
  explicit by_mailbox(int ranks, const std::vector<int>& hosts = {})
      : hosts_(hosts.empty() ? std::vector<int>(static_cast<std::size_t>(ranks))
                             : numbered_hosts(ranks, hosts)) {}

  int host_of(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
  seconds now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  template <class Fabric, class Message>
  void carry(Fabric& shared, Message& out) {
    if (!shared.end(out.to).mailbox_.push(out)) {
      shared.abort(out.unread());
      out.refused = true;
      shared.end(out.from).returned(out);
    }
  }

 private:
  std::vector<int> hosts_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Ranks are threads of one process.
using in_process = basic_in_process<inline_queue, by_mailbox>;

static_assert(transport_policy<in_process> && has_addressable_peers<in_process>);

namespace detail {

/// Does what `run_ranks` does, on the ends of one transport. Compiled once for all bodies.
template <class Transport>
void run_on_threads(typename Transport::fabric& shared, int ranks,
                    function_ref<void(Transport&)> body) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  bool all_there = false;
  std::exception_ptr first;
  const auto run = [&](int rank) {
    if (const std::scoped_lock until_started(mutex); !all_there) {
      return;
    }
    Transport& world = shared.end(rank);
    make_device_current(world.queue());
    try {
      body(world);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      const auto why = std::current_exception();
      keep_the_first(first, why);
      shared.abort(verdict_of(rank, why));  // the first reason stays
    }
    world.leave();
  };
  try {
    const std::scoped_lock starting(mutex);
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back(run, rank);
    }
    all_there = true;
  } catch (const std::exception& refused) {
    first = std::make_exception_ptr(usage_error(sentence(
        {"rank ", threads.size(), " of ", ranks, " could not start a thread: ", refused.what(),
         ". Fix: use fewer ranks, or allow a process more threads (ulimit -u, ulimit -s)"})));
  }
  for (auto& each : threads) {
    each.join();
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace detail

/// Calls `body(world)` on `ranks` threads, each with its own end of one in-process transport, and
/// returns when all have ended. No body is called before every rank has a thread; if one gets none,
/// this throws usage_error. If a rank throws, the other ranks fail with its message, and the first
/// exception is thrown here. Arguments after `body` go to the transport's delivery. The current
/// device of each thread is the transport's, if it has one.
template <class Transport = in_process, class Body, class... Arguments>
void run_ranks(int ranks, Body body, Arguments&&... arguments) {
  if (ranks < 1) {
    throw usage_error(sentence({"cannot run ", ranks, " ranks. Fix: use at least 1"}));
  }
  typename Transport::fabric shared(ranks, std::forward<Arguments>(arguments)...);
  detail::run_on_threads<Transport>(shared, ranks, [&body](Transport& world) { body(world); });
}

}  // namespace tutti::transport
