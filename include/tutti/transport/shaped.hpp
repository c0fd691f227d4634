#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "tutti/base/error.hpp"
#include "tutti/base/function_ref.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/shaped/link.hpp"
#include "tutti/transport/shaped/shared_nics.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::transport {

/// Connects processes of one host as if over a network of many hosts, in real time. Whatever
/// `Carrier` offers besides messages, such as its own all-reduce or peers' memory, is hidden.
template <class Carrier>
using shaped = basic_in_process<virtual_queue, shaped_link<Carrier>>;

static_assert(transport_policy<shaped<in_process>> && has_virtual_time<shaped<in_process>> &&
              !has_addressable_peers<shaped<in_process>>);

namespace detail {

/// How well one process, or all of them together, kept up with the wall clock.
struct lateness {
  seconds time{};
  seconds wall{};
  seconds late{};
  seconds worst{};
  std::uint64_t events{};

  void handled(seconds due, seconds at) {
    const seconds behind = std::max(0.0, at - due);
    time = std::max(time, due);
    wall = std::max(wall, at);
    late += behind;
    worst = std::max(worst, behind);
    ++events;
  }
  void add(const lateness& other) {
    time = std::max(time, other.time);
    wall = std::max(wall, other.wall);
    late += other.late;
    worst = std::max(worst, other.worst);
    events += other.events;
  }
};

/// One rank's process: a coroutine that is resumed by due events and by the other processes'
/// messages.
template <class Carrier>
class shaped_process {
  using world = shaped<Carrier>;
  using rank_body = function_ref<task(world&)>;

 public:
  shaped_process(Carrier& carrier, network over, device each, rank_body body, seconds stall_limit)
      : shared_(carrier.size(), carrier, std::move(over), each),
        body_(body),
        stall_limit_(stall_limit) {}

  emulated_run run() {
    link().start_listening(shared_);
    rank_ = watch(*this, end());
    link().events().at(
        0, [](void* self, void*) { static_cast<shaped_process*>(self)->begin(); }, this, nullptr);
    while (!over()) {
      step();
    }
    if (first_) {
      std::rethrow_exception(first_);
    }
    if (shared_.aborted() && !knew_) {
      throw communication_error(shared_.reason());  // no process knows how long the job took
    }
    const auto events = static_cast<double>(std::max<std::uint64_t>(1, kept_.events));
    return {{kept_.time, kept_.events}, kept_.wall, kept_.late / events, kept_.worst};
  }

 private:
  static constexpr seconds carrier_limit = 5;
  static constexpr seconds wake_up_time = 20e-6;
  static constexpr seconds longest_nap = 50e-6;

  static task watch(shaped_process& self, world& end) {
    try {
      task rank = self.body_(end);
      co_await rank;
    } catch (...) {
      self.first_ = std::current_exception();
      self.shared_.abort(verdict_of(end.rank(), self.first_));
    }
    self.knew_ = self.shared_.aborted();
    end.leave();
    self.finished_ = true;
  }

  void begin() { rank_.start(queue()); }

  /// Handles one event, and everything that follows from it immediately.
  void step() {
    queue().drain();
    bool progress = link().read_arrived();
    if (shared_.aborted()) {
      tell_carrier();
      progress |= end().poll();
    } else if (finished_) {
      depart();
    }
    virtual_clock& events = link().events();
    const seconds now = link().wall();
    const bool works = progress || !queue().empty();
    auto& idle_since = link().own_nic(end().rank()).idle_since;
    idle_since = works || !events.empty() ? shared_nic::never : std::min(idle_since.load(), now);
    if (!events.empty() && events.next_due() <= now) {
      if (!finished_) {
        kept_.handled(events.next_due(), now);
      }
      events.advance();
    } else if (!works) {
      wait(now);
    }
  }

  void wait(seconds now) {
    virtual_clock& events = link().events();
    if (events.empty() && now - all_idle_since() > stall_limit_) {
      const std::string waiting = end().waits_for();
      shared_.abort("nothing moves: rank " + std::to_string(end().rank()) + " waits for " +
                    (waiting.empty() ? "what it sent to be received" : waiting));
      return;
    }
    const seconds due = events.empty() ? longest_nap : events.next_due() - now - wake_up_time;
    if (due > 0 && !link().moves_payloads()) {
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(due, longest_nap)));
    } else {
      std::this_thread::yield();
    }
  }

  /// Since when all processes have been idle; infinity while one has something to do or an event to
  /// come.
  seconds all_idle_since() {
    seconds last = 0;
    for (int rank = 0; rank < end().size(); ++rank) {
      last = std::max(last, link().own_nic(rank).idle_since.load());
    }
    return last;
  }

  // ---- the end

  bool over() { return finished_ && link().at_rest(); }

  /// Adds up, on every process, the lateness of all. That needs all ranks to have finished, so
  /// nobody sends afterwards and this process may stop listening.
  void depart() {
    switch (leaving_) {
      case leaving::not_yet:
        adding_up_ = add_up(link().carrier(), kept_);
        adding_up_.start(link().carrier().ready_coroutines());
        leaving_ = leaving::adding_up;
        break;
      case leaving::adding_up:
        if (adding_up_.done()) {
          link().stop_listening();
          leaving_ = leaving::last_word;
        }
        break;
      case leaving::last_word:
        break;
    }
  }

  static task add_up(Carrier& carrier, lateness& kept) {
    constexpr tag sums{channel::control, 0, 0};
    const auto bytes = std::as_writable_bytes(std::span(&kept, 1));
    try {
      if (carrier.rank() != 0) {
        co_await carrier.send(0, sums, bytes);
        co_await carrier.receive(0, sums, bytes);
        co_return;
      }
      for (int rank = 1; rank < carrier.size(); ++rank) {
        lateness other;
        co_await carrier.receive(rank, sums, std::as_writable_bytes(std::span(&other, 1)));
        kept.add(other);
      }
      for (int rank = 1; rank < carrier.size(); ++rank) {
        co_await carrier.send(rank, sums, bytes);
      }
    } catch (...) {
    }  // the listening coroutine learns of the failure, too
  }

  /// Tells the carrier that some rank has failed, and ends the job if `carrier_limit` passes before
  /// the carrier is at rest.
  void tell_carrier() {
    Carrier& carrier = link().carrier();
    if (!std::exchange(told_, true)) {
      carrier.abort(shared_.reason());
      failed_at_ = link().wall();
    }
    if (link().wall() - failed_at_ > carrier_limit) {
      if constexpr (requires { carrier.abort_job(shared_.reason()); }) {
        carrier.abort_job(shared_.reason());
      }
    }
  }

  world& end() { return shared_.end(link().carrier().rank()); }
  shaped_link<Carrier>& link() { return shared_.delivery(); }
  run_queue& queue() { return link().ready_coroutines(); }

  typename world::fabric shared_;
  rank_body body_;
  seconds stall_limit_;
  task rank_;
  task adding_up_;
  lateness kept_;
  std::exception_ptr first_;
  bool finished_ = false;
  bool knew_ = false;  // knew of a failure when it finished, so its own outcome stands
  bool told_ = false;
  enum class leaving { not_yet, adding_up, last_word } leaving_ = leaving::not_yet;
  seconds failed_at_ = 0;
};

}  // namespace detail

/// Runs the coroutine `body(world)` as this process's rank of a network, in real time. `carrier`
/// moves the bytes and belongs to the run until it ends. Collective, on one host. If a rank throws,
/// all end: that rank with its exception, the others with its message. All end as well if no rank
/// has an event to come and nothing moves for `stall_limit`. Returns, on every rank, how long the
/// job took in the network's time and how well the host kept up.
template <class Carrier, class Body>
emulated_run run_shaped(Carrier& carrier, network over, device each, Body body,
                        seconds stall_limit = 60) {
  return detail::shaped_process<Carrier>(carrier, std::move(over), each, body, stall_limit).run();
}
/// Runs the job on devices that take no time.
template <class Carrier, class Body>
emulated_run run_shaped(Carrier& carrier, network over, Body body) {
  return run_shaped(carrier, std::move(over), device(), std::move(body));
}

}  // namespace tutti::transport
