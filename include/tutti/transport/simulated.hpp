#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/function_ref.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/arrival_order.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/network.hpp"

namespace tutti::transport {

/// A virtual clock with its events, handled earliest first, and in the order in which they were set
/// if due together.
///
/// Ranks that behave alike set their events almost in the order in which they come due. So an event
/// joins the first of a few ascending runs that it may follow (as in patience sorting), and a heap
/// if there is none. Cost: a look at each run, and the heap's logarithm for events out of order.
class virtual_clock {
 public:
  using action = void (*)(void* context, void* subject);

  seconds now() const { return now_; }
  std::uint64_t handled() const { return handled_; }

  void at(seconds due, action what, void* context, void* subject) {
    const event next{due, ++set_, what, context, subject};
    for (ascending_run& each : runs_) {
      if (each.empty() || each.back().due <= due) {
        each.push(next);
        return;
      }
    }
    heap_.push_back(next);
    std::push_heap(heap_.begin(), heap_.end(), std::greater{});
  }

  bool empty() const { return handled_ == set_; }
  /// Returns when the next event is due; there must be one.
  seconds next_due() {
    const ascending_run* first = first_run();
    return first != nullptr ? first->front().due : heap_.front().due;
  }

  /// Moves the clock to the next event and handles it; there must be one.
  void advance() {
    const event next = take();
    now_ = next.due;
    ++handled_;
    next.what(next.context, next.subject);
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

  /// A first-in, first-out queue of events.
  class ascending_run {
   public:
    bool empty() const { return head_ == tail_; }
    const event& front() const { return ring_[head_ & (ring_.size() - 1)]; }
    const event& back() const { return ring_[(tail_ - 1) & (ring_.size() - 1)]; }
    void pop() { ++head_; }
    void push(const event& next) {
      if (tail_ - head_ == ring_.size()) {
        grow();
      }
      ring_[tail_++ & (ring_.size() - 1)] = next;
    }

   private:
    void grow() {
      std::vector<event> wider(2 * ring_.size());
      for (std::size_t i = head_; i != tail_; ++i) {
        wider[i & (wider.size() - 1)] = ring_[i & (ring_.size() - 1)];
      }
      ring_ = std::move(wider);
    }

    std::vector<event> ring_ = std::vector<event>(256);  // a power of two
    std::size_t head_ = 0;
    std::size_t tail_ = 0;
  };

  /// Returns the run whose first event is the next one; null if that is on the heap.
  ascending_run* first_run() {
    ascending_run* first = nullptr;
    const event* next = heap_.empty() ? nullptr : &heap_.front();
    for (ascending_run& each : runs_) {
      if (!each.empty() && (next == nullptr || *next > each.front())) {
        first = &each;
        next = &each.front();
      }
    }
    return first;
  }

  event take() {
    if (ascending_run* first = first_run()) {
      const event next = first->front();
      first->pop();
      return next;
    }
    std::pop_heap(heap_.begin(), heap_.end(), std::greater{});
    const event next = heap_.back();
    heap_.pop_back();
    return next;
  }

  std::array<ascending_run, 4> runs_{};
  std::vector<event> heap_;
  seconds now_ = 0;
  std::uint64_t set_ = 0;
  std::uint64_t handled_ = 0;
};

/// The device with which a rank encodes, decodes and adds: it reads or writes so many bytes a
/// second, one kernel after the other. Kernels that only move memory are bound by that rate; a
/// measured rate can replace it.
struct device {
  double bytes_per_second = std::numeric_limits<double>::infinity();
};

/// The queue of a simulated device on a virtual clock. Kernels run at once on the host, if there is
/// memory to run on; the virtual time that passes is what they are charged. As on a real device the
/// host goes on meanwhile, and an event is the time at which the device will have done all work
/// before it. A derived queue may belong to a rank in real time: its kernels take the time that
/// they take, or sleep instead.
class virtual_queue : public host_loops<virtual_queue> {
 public:
  /// A moment on the virtual clock.
  using event = seconds;

  virtual_queue(const virtual_clock& clock, device kind) : clock_(&clock), kind_(kind) {}

  /// Whether charges pass on the virtual clock; false for a rank in real time.
  bool models_time() const { return clock_ != nullptr; }
  event record() const { return clock_ == nullptr ? 0 : std::max(busy_until_, clock_->now()); }
  void wait(event passed) { busy_until_ = std::max(busy_until_, passed); }
  void synchronize() {}
  void charge(std::size_t bytes) {
    if (clock_ != nullptr) {
      busy_until_ = record() + static_cast<double>(bytes) / kind_.bytes_per_second;
    } else if (sleep_ != nullptr) {
      sleep_(*this, bytes);
    }
  }

  template <class F>
  void run(F f) {
    if (sleep_ == nullptr) {
      f();
    }
  }

 protected:
  /// For a rank in real time.
  virtual_queue() = default;

  /// From now on kernels do not run: `sleep` is called with the bytes that each of them is charged.
  void sleep_by(void (*sleep)(virtual_queue&, std::size_t)) { sleep_ = sleep; }

 private:
  const virtual_clock* clock_{};
  void (*sleep_)(virtual_queue&, std::size_t){};
  device kind_{};
  seconds busy_until_ = 0;
};
static_assert(host_queue<virtual_queue> && device_queue<virtual_queue>);

/// Delivers messages on a virtual clock, through the NICs of a network.
///
/// The head of a message leaves when its bytes are ready and the sender's NIC is free, and its last
/// byte bytes / rate later. The message passes the receiver's NIC in bytes / rate, as soon as its
/// head has come and that NIC is free, and has not passed it before its last byte has come. NICs
/// serve messages in the order in which their heads come. A message is delivered when its last byte
/// has passed and the previous message of its pair and tag has been delivered; its send completes
/// once it is read. A message to oneself is delivered at once. Cost: two events of the clock a
/// message.
class virtual_link {
 public:
  static constexpr bool virtual_time = true;

  virtual_link(int ranks, network over, device each = {})
      : device_(each),
        network_(std::move(over)),
        order_(network_),
        hosts_(network_.hosts()),
        ranks_(static_cast<std::size_t>(ranks)) {
    for (network::change& later : network_.changes()) {
      events_.at(
          later.when,
          [](void* self, void* which) {
            static_cast<virtual_link*>(self)->network_.take_effect(
                *static_cast<network::change*>(which));
          },
          this, &later);
    }
  }
  virtual_link(const virtual_link&) = delete;  // the clock's events hold its address
  virtual_link& operator=(const virtual_link&) = delete;

  seconds now() const { return events_.now(); }
  int host_of(int rank) const { return static_cast<int>(network_.host(rank)); }
  run_queue& ready_coroutines() { return ready_; }
  virtual_clock& events() { return events_; }
  virtual_queue new_queue() const { return {events_, device_}; }

  template <class Fabric, class Message>
  void carry(Fabric& shared, Message& out) {
    if (out.to == out.from) {
      events_.at(std::max(now(), out.event), &deliver<Fabric, Message>, &shared, &out);
      return;
    }
    nic& from = nic_of(out.from, out);
    const seconds head = std::max({now(), out.event, from.egress_free});
    from.egress_free = head + occupation(out.from, out.to, out);
    const seconds there = head + network_.latency(out.from, out.to, out.where);
    events_.at(order_.head(out, there, now()), &arrive<Fabric, Message>, &shared, &out);
  }

  template <class End>
  void wake_later(End& sleeper, seconds due) {
    events_.at(
        due, [](void* end, void*) { static_cast<End*>(end)->wake_up(); }, &sleeper, nullptr);
  }

 private:
  struct nic {
    seconds egress_free = 0;
    seconds ingress_free = 0;
  };

  template <class Message>
  nic& nic_of(int rank, const Message& which) {
    return network_.share_host(which.from, which.to) ? ranks_[static_cast<std::size_t>(rank)]
                                                     : hosts_[network_.host(rank)];
  }
  template <class Message>
  seconds occupation(int rank, int peer, const Message& which) const {
    return network_.occupation(rank, peer, which.where, which.bytes.size());
  }

  /// Handles the arrival of a head. The rest follows as fast as both NICs let it.
  template <class Fabric, class Message>
  static void arrive(void* shared, void* its) {
    virtual_link& self = static_cast<Fabric*>(shared)->delivery();
    const auto& out = *static_cast<Message*>(its);
    const seconds last_byte =
        self.now() + self.network_.passage(out.from, out.to, out.where, out.bytes.size());
    nic& to = self.nic_of(out.to, out);
    to.ingress_free =
        std::max(self.now(), to.ingress_free) + self.occupation(out.to, out.from, out);
    const seconds passed = std::max(to.ingress_free, last_byte);
    self.events_.at(self.order_.last_byte(out, passed, self.now()), &deliver<Fabric, Message>,
                    shared, its);
  }

  template <class Fabric, class Message>
  static void deliver(void* shared, void* its) {
    auto& out = *static_cast<Message*>(its);
    static_cast<Fabric*>(shared)->end(out.to).deliver(out);
  }

  device device_;
  network network_;
  detail::arrival_order order_;
  std::vector<nic> hosts_;
  std::vector<nic> ranks_;  // for messages inside a host
  virtual_clock events_;
  run_queue ready_;
};

/// Any number of ranks on one thread and a virtual clock. A message that has memory is carried; a
/// phantom (a length without memory) is only counted and timed.
using simulated = basic_in_process<virtual_queue, virtual_link>;

static_assert(transport_policy<simulated> && has_virtual_time<simulated>);

/// The result of a simulation.
struct simulated_run {
  seconds time{};
  std::uint64_t events{};
};

/// The result of an emulation: the network's time, as in a simulation, and how well the host kept
/// up with it. An event is late by the time between when it is due and when the host handles it.
struct emulated_run : simulated_run {
  seconds wall{};
  seconds mean_lateness{};
  seconds worst_lateness{};

  /// Whether the host was too slow to emulate this network: the run took over 2 % longer than the
  /// network's time, or events were late on average by over 2 % of an iteration.
  bool unusable(seconds iteration) const {
    return wall > 1.02 * time || mean_lateness > 0.02 * iteration;
  }
};

namespace detail {

/// Lets virtual time pass as fast as it is computed.
struct free_running {
  void await(seconds) {}
};

/// Lets virtual time pass no faster than the wall clock.
class by_wall_clock {
 public:
  /// Returns when `due` has come, or in 30 years if that is earlier, for the clock ends at 292.
  void await(seconds due) {
    const auto moment = begin_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                     std::chrono::duration<double>(std::min(due, 1e9)));
    std::this_thread::sleep_until(moment - wake_up_time);
    auto now = std::chrono::steady_clock::now();
    while (now < moment) {
      now = std::chrono::steady_clock::now();
    }
    const double late = std::chrono::duration<double>(now - moment).count();
    worst_ = std::max(worst_, late);
    sum_ += late;
    ++count_;
  }
  seconds wall() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  seconds worst_lateness() const { return worst_; }
  seconds mean_lateness() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

 private:
  // About how long an idle processor takes to wake up.
  static constexpr std::chrono::microseconds wake_up_time{80};

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  seconds worst_ = 0;
  seconds sum_ = 0;
  std::uint64_t count_ = 0;
};

/// One job on the virtual clock: a coroutine for each rank, resumed until all are done.
template <class Pace>
class simulation {
 public:
  simulation(network over, device each, function_ref<task(simulated&)> body, Pace& pace)
      : shared_(over.ranks(), std::move(over), each), body_(body), pace_(&pace) {}

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
      task rank = self.body_(world);
      co_await rank;
    } catch (...) {
      self.failed(world.rank(), std::current_exception());
    }
    world.leave();
    --self.unfinished_;
  }

  void failed(int rank, const std::exception_ptr& why) {
    keep_the_first(first_, why);
    shared_.abort(verdict_of(rank, why));  // the first reason stays
  }

  void advance() {
    queue().drain();
    bool progress = false;
    if (shared_.aborted()) {
      for (int rank = 0; rank < shared_.size(); ++rank) {
        progress |= shared_.end(rank).poll();
      }
    }
    if (unfinished_ == 0 || progress || !queue().empty()) {
      return;
    }
    if (!events().empty()) {
      pace_->await(events().next_due());
      events().advance();
      return;
    }
    if (shared_.aborted()) {  // the ranks know already, but some coroutine waits for something else
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
  function_ref<task(simulated&)> body_;
  Pace* pace_;
  int unfinished_ = 0;
  std::exception_ptr first_;
};

}  // namespace detail

/// Runs the coroutine `body(world)` for each rank of a network on a virtual clock. The same input
/// gives the same order of events and the same bits. If a rank throws, the other ranks fail with
/// its message and the first exception is thrown here. If nothing moves any more while a rank is
/// not done, all fail with a communication_error that says which rank waits for what.
template <class Body>
simulated_run run_simulated(network over, device each, Body body) {
  detail::free_running pace;
  return detail::simulation(std::move(over), each, body, pace).run();
}
/// Runs the job on devices that take no time.
template <class Body>
simulated_run run_simulated(network over, Body body) {
  return run_simulated(std::move(over), device(), std::move(body));
}
/// Runs the job where every rank has a host and a NIC of its own.
template <class Body>
simulated_run run_simulated(int ranks, link nic, Body body) {
  return run_simulated(network(ranks, nic), std::move(body));
}

/// Runs the job in real time, no faster than on that network. All ranks and their work share this
/// thread, and each event waits until the wall clock reaches its time. Ranks see the virtual
/// clock's time, so that late wake-ups do not add up.
template <class Body>
emulated_run run_emulated(network over, device each, Body body) {
  detail::by_wall_clock pace;
  const simulated_run run = detail::simulation(std::move(over), each, body, pace).run();
  return {run, pace.wall(), pace.mean_lateness(), pace.worst_lateness()};
}

}  // namespace tutti::transport
