#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::transport {

/// A network card: bytes pass it at this rate, one message after the other, in each direction
/// apart; the head of a message is so long on its way.
struct link {
  double bytes_per_second{};
  seconds latency{};
};

/// What is due on a virtual clock, earliest first; what is due together, in the order it was set.
class virtual_clock {
 public:
  using action = void (*)(void* context, void* subject);

  virtual_clock() { heap_.reserve(4096); }

  seconds now() const { return now_; }
  std::uint64_t handled() const { return handled_; }

  void at(seconds due, action what, void* context, void* subject) {
    heap_.push_back({due, ++set_, what, context, subject});
    std::ranges::push_heap(heap_, std::greater{});
  }

  /// Moves the clock to the next event and handles it; false if there is none.
  bool advance() {
    if (heap_.empty()) {
      return false;
    }
    std::ranges::pop_heap(heap_, std::greater{});
    const event next = heap_.back();
    heap_.pop_back();
    now_ = next.due;
    ++handled_;
    next.what(next.context, next.subject);
    return true;
  }

 private:
  struct event {
    seconds due;
    std::uint64_t sequence;
    action what;
    void* context;
    void* subject;

    bool operator>(const event& other) const {
      return due != other.due ? due > other.due : sequence > other.sequence;
    }
  };

  std::vector<event> heap_;
  seconds now_ = 0;
  std::uint64_t set_ = 0;
  std::uint64_t handled_ = 0;
};

/// Delivery on a virtual clock: every rank has a full-duplex link of its own into a network that is
/// never the bottleneck.
///
/// departure = max(now, egress free) + bytes / rate, and the head leaves at its beginning;
/// arrival = max(head + latency, ingress free) + bytes / rate. Links serve messages in the order in
/// which their heads come. A letter is delivered, and its send completes once it is read, at
/// arrival; to oneself at once. Cost: two heap operations a message.
class virtual_link {
 public:
  static constexpr bool virtual_time = true;

  virtual_link(int ranks, link each) : link_(each), cards_(static_cast<std::size_t>(ranks)) {
    if (!(each.bytes_per_second > 0) || !(each.latency >= 0)) {
      throw usage_error("a link needs a rate above 0 and a latency of 0 or more");
    }
  }

  seconds now() const { return events_.now(); }
  run_queue& ready_coroutines() { return ready_; }
  virtual_clock& events() { return events_; }

  template <class Fabric, class Letter>
  void carry(Fabric& shared, Letter& out) {
    if (out.to == out.from) {
      events_.at(now(), &deliver<Fabric, Letter>, &shared, &out);
      return;
    }
    card& from = cards_[static_cast<std::size_t>(out.from)];
    const seconds head = std::max(now(), from.egress_free);
    from.egress_free = head + occupation(out.bytes.size());
    events_.at(head + link_.latency, &arrive<Fabric, Letter>, &shared, &out);
  }

  template <class End>
  void wake_later(End& sleeper, seconds due) {
    events_.at(
        due, [](void* end, void*) { static_cast<End*>(end)->wake_up(); }, &sleeper, nullptr);
  }

 private:
  struct card {
    seconds egress_free = 0;
    seconds ingress_free = 0;
  };

  seconds occupation(std::size_t bytes) const {
    return static_cast<double>(bytes) / link_.bytes_per_second;
  }

  /// The head is there; the rest follows as fast as the receiver's link lets it.
  template <class Fabric, class Letter>
  static void arrive(void* shared, void* letter) {
    virtual_link& self = static_cast<Fabric*>(shared)->delivery();
    const auto& out = *static_cast<Letter*>(letter);
    card& to = self.cards_[static_cast<std::size_t>(out.to)];
    to.ingress_free = std::max(self.now(), to.ingress_free) + self.occupation(out.bytes.size());
    self.events_.at(to.ingress_free, &deliver<Fabric, Letter>, shared, letter);
  }

  template <class Fabric, class Letter>
  static void deliver(void* shared, void* letter) {
    auto& out = *static_cast<Letter*>(letter);
    static_cast<Fabric*>(shared)->end(out.to).deliver(out);
  }

  link link_;
  std::vector<card> cards_;
  virtual_clock events_;
  run_queue ready_;
};

/// Any number of ranks on one thread and a virtual clock. Payloads are carried where there are any;
/// a phantom (no memory, a length) is only counted and timed.
using simulated = basic_in_process<inline_queue, virtual_link>;

static_assert(transport_policy<simulated> && has_virtual_time<simulated>);

/// What a simulation came to.
struct simulated_run {
  seconds time{};
  std::uint64_t events{};
};

namespace detail {

/// One job on the virtual clock: a coroutine a rank, resumed until all are done.
template <class Body>
class simulation {
 public:
  simulation(int ranks, link each, Body& body) : shared_(ranks, each), body_(&body) {}

  simulated_run run() {
    std::vector<task> ranks;
    for (int rank = 0; rank < shared_.size(); ++rank) {
      ranks.push_back(watch(*this, shared_.end(rank)));
    }
    unfinished_ = shared_.size();
    for (task& each : ranks) {
      each.start(queue());
    }
    while (unfinished_ > 0) {
      advance();
    }
    if (first_) {
      std::rethrow_exception(first_);
    }
    return {events().now(), events().handled()};
  }

 private:
  static task watch(simulation& self, simulated& world) {
    try {
      task rank = (*self.body_)(world);
      co_await rank;
    } catch (...) {
      self.failed(world.rank(), std::current_exception());
    }
    world.leave();
    --self.unfinished_;
  }

  void failed(int rank, std::exception_ptr why) {
    if (!first_) {
      first_ = why;
      shared_.abort(verdict_of(rank, why));
    }
  }

  void advance() {
    queue().drain();
    bool progress = false;
    if (shared_.aborted()) {
      for (int rank = 0; rank < shared_.size(); ++rank) {
        progress |= shared_.end(rank).poll();
      }
    }
    if (unfinished_ == 0 || progress || !queue().empty() || events().advance()) {
      return;
    }
    if (shared_.aborted()) {  // told already, and some coroutine waits for something else
      throw communication_error(shared_.reason());
    }
    shared_.abort(nothing_moves());
  }

  std::string nothing_moves() {
    std::string words = "nothing moves";
    char before = ':';
    for (int rank = 0; rank < shared_.size(); ++rank) {
      const std::string waiting = shared_.end(rank).waits_for();
      const std::string unread = shared_.end(rank).has_not_received();
      for (const auto& [verb, what] :
           {std::pair{" waits for ", waiting}, std::pair{" has not received ", unread}}) {
        if (!what.empty()) {
          words += std::exchange(before, ';') + (" rank " + std::to_string(rank)) + verb + what;
        }
      }
    }
    return words;
  }

  run_queue& queue() { return shared_.delivery().ready_coroutines(); }
  virtual_clock& events() { return shared_.delivery().events(); }

  simulated::fabric shared_;
  Body* body_;
  int unfinished_ = 0;
  std::exception_ptr first_;
};

}  // namespace detail

/// Runs the coroutine `body(world)` for each of `ranks` ranks on a virtual clock. The same input
/// gives the same order of events and the same bits. If a rank throws, the others end with its
/// words and the first exception is thrown here; if nothing moves any more while a rank is not
/// done, all end with a communication_error that says who waits for what.
template <class Body>
simulated_run run_simulated(int ranks, link each, Body body) {
  if (ranks < 1) {
    throw usage_error("cannot simulate " + std::to_string(ranks) + " ranks. Fix: use at least 1");
  }
  return detail::simulation<Body>(ranks, each, body).run();
}

}  // namespace tutti::transport
