#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/fifo.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/arrival_order.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/shaped/shared_nics.hpp"
#include "tutti/transport/shaped/stamp.hpp"
#include "tutti/transport/simulated.hpp"
#include "tutti/transport/staging.hpp"

namespace tutti::transport {

/// Delivers messages between processes of one host as if over a network of many hosts. `Carrier`
/// moves a message at once, and the receiver keeps it until it would have come.
///
/// The arithmetic is that of `virtual_link`. The sender stamps a message with the time at which its
/// head leaves the sender's NIC. The receiver keeps it until the head arrives, then until its own
/// NIC has passed it on, and answers when it has been read: that completes the send. A NIC that
/// ranks of several processes share lies in memory that they share. A phantom travels as its stamp
/// alone.
///
/// Time is that of the event being handled, never the host's: a process that handles an event late
/// goes on from when it was due, so that lateness does not add up. A late event may be due before
/// one that this rank has already handled. What depends on both is then early by less than the
/// lateness. Messages between hosts are on time if they travel (latency and size / rate) for longer
/// than this host takes to notice them. Answers never are, because they take no time on the
/// network: they pass no NIC and wait for no other message. Cost: two small messages of the carrier
/// for each message, and one copy where it carries a payload.
template <class Carrier>
requires(!has_virtual_time<Carrier>) class shaped_link {
  using message = detail::message<seconds>;

 public:
  static constexpr bool virtual_time = true;

  /// Collective. Throws usage_error if the network has another number of ranks or differs from rank
  /// 0's, or if the ranks are not on one host.
  shaped_link(int ranks, Carrier& carrier, network over, device each)
      : carrier_(&carrier),
        device_(each),
        network_(std::move(over)),
        order_(network_),
        overdue_(static_cast<std::size_t>(ranks)) {
    try {
      if (network_.ranks() != ranks) {
        throw usage_error("the network has " + std::to_string(network_.ranks()) + " ranks for " +
                          std::to_string(ranks) + " processes. Fix: start one process per rank");
      }
      drive(open(carrier));
    } catch (...) {
      nics_.hide();
      carrier.abort(verdict_of(carrier.rank(), std::current_exception()));
      throw;
    }
  }

  seconds now() const { return events_.now(); }
  int host_of(int rank) const { return static_cast<int>(network_.host(rank)); }
  run_queue& ready_coroutines() { return ready_; }
  virtual_clock& events() { return events_; }
  virtual_queue new_queue() const { return {events_, device_}; }
  /// What the clock would show if this process were never late.
  seconds wall() const { return detail::host_time() - origin_; }

  // ---- for the fabric

  template <class Fabric>
  void carry(Fabric& shared, message& out) {
    const seconds earliest = std::max(now(), out.event);
    if (out.to == out.from) {
      events_.at(earliest, &deliver_here<Fabric>, &shared, &out);
      return;
    }
    const seconds busy = network_.occupation(out.from, out.to, out.where, out.bytes.size());
    outgoing& posted = take_outgoing();
    posted.sent = &out;
    posted.head.number = posted.number;
    posted.head.what = detail::stamp::kind::message;
    posted.head.where = out.where;
    posted.head.bytes = out.bytes.size();
    posted.head.time = nic_of(out.from, out).egress.take(earliest, busy);
    posted.head.contents = enclose(posted, out.bytes);
    post(shared, posted, out.to);
  }

  /// Returns a message that was read. A refused one needs no answer: all ranks hear of the failure.
  template <class Fabric>
  void return_message(Fabric& shared, message& read) {
    if (read.from == carrier_->rank()) {
      shared.end(read.from).returned(read);
      return;
    }
    auto& mine = static_cast<foreign&>(read);
    if (!read.refused) {
      outgoing& answer = take_outgoing();
      answer.head.what = detail::stamp::kind::was_read;
      answer.head.contents = detail::stamp::payload::phantom;
      answer.head.time = now();
      answer.head.number = mine.number;
      post(shared, answer, read.from);
    }
    give_foreign(mine);
  }

  template <class End>
  void wake_later(End& sleeper, seconds due) {
    events_.at(
        due, [](void* end, void*) { static_cast<End*>(end)->wake_up(); }, &sleeper, nullptr);
  }

  // ---- for the loop

  template <class Fabric>
  void start_listening(Fabric& shared) {
    listening_ = listen(shared);
    listening_.start(carrier_->ready_coroutines());
  }
  void stop_listening() {
    outgoing& word = take_outgoing();
    word.head.what = detail::stamp::kind::stop;
    word.head.contents = detail::stamp::payload::phantom;
    send(word, carrier_->rank());
  }
  /// Whether the carrier holds nothing of this process.
  bool at_rest() const {
    return listening_.done() &&
           loops::all_of(outgoing_, [](const outgoing& each) { return each.sending.done(); }) &&
           loops::all_of(foreign_, [](const foreign& each) { return each.fetching.done(); });
  }

  /// Whether payloads are on their way, which the carrier moves only while it is polled.
  bool moves_payloads() const { return moving_ > 0; }

  detail::shared_nic& own_nic(int rank) {  // for messages inside its host
    return nics_[network_.hosts() + static_cast<std::size_t>(rank)];
  }

  /// Takes in what the others have sent. Returns true if there was anything.
  bool read_arrived() {
    bool any = false;
    while (carrier_->poll() || !carrier_->ready_coroutines().empty()) {
      carrier_->ready_coroutines().drain();
      any = true;
    }
    return any;
  }

  Carrier& carrier() { return *carrier_; }

 private:
  static constexpr tag stamps{channel::service, 0, 0};
  static constexpr tag greetings{channel::control, 0, 0};
  static constexpr std::size_t inside_limit = 448;

  /// Something that this process sends by the carrier: a message, kept until it has been read, or a
  /// notice about one, kept until it has left.
  struct outgoing {
    detail::stamp head{};
    std::array<std::byte, inside_limit> inside{};  // directly behind the stamp in memory
    std::uint64_t number{};
    message* sent{};
    bool left{};
    bool read{};
    seconds read_at{};
    task sending{};

    std::span<const std::byte> bytes() const {
      const std::size_t more = head.contents == detail::stamp::payload::inside ? head.bytes : 0;
      return {reinterpret_cast<const std::byte*>(this), sizeof head + more};
    }
  };

  /// A message from another process.
  struct foreign : message {
    std::uint64_t number{};
    std::byte* staged{};
    bool here{};
    seconds due{};
    task fetching{};
  };

  // ---- the beginning

  struct invitation {
    detail::shared_nics::name nics{};
    network::hashes compared{};
  };

  /// Rank 0 makes the NICs. When all ranks have found them it tells them when time begins.
  task open(Carrier& carrier) {
    constexpr seconds until_all_have_heard = 2e-3;
    const std::size_t count = network_.hosts() + static_cast<std::size_t>(network_.ranks());
    invitation words;
    const auto sent = std::as_writable_bytes(std::span(&words, 1));
    const auto time = std::as_writable_bytes(std::span(&origin_, 1));
    if (carrier.rank() != 0) {
      co_await carrier.receive(0, greetings, sent);
      network_.expect_same(words.compared, carrier.rank());
      nics_ = detail::shared_nics::find(words.nics, count);
      co_await carrier.send(0, greetings, sent);
      co_await carrier.receive(0, greetings, time);
      co_return;
    }
    nics_ = detail::shared_nics::make(count);
    words = {nics_.known_as(), network_.hashed()};
    for (int rank = 1; rank < carrier.size(); ++rank) {
      co_await carrier.send(rank, greetings, sent);
    }
    for (int rank = 1; rank < carrier.size(); ++rank) {
      co_await carrier.receive(rank, greetings, sent);
    }
    nics_.hide();
    origin_ = detail::host_time() + until_all_have_heard;
    for (int rank = 1; rank < carrier.size(); ++rank) {
      co_await carrier.send(rank, greetings, time);
    }
  }

  void drive(task whole) {
    whole.start(carrier_->ready_coroutines());
    for (std::size_t idle = 0; !whole.done(); ++idle) {
      if (read_arrived()) {
        idle = 0;
      } else {
        rest(*carrier_, idle);
      }
    }
    whole.result();
  }

  // ---- messages out

  outgoing& take_outgoing() {
    if (free_outgoing_.empty()) {
      outgoing& fresh = outgoing_.emplace_back();
      fresh.number = outgoing_.size() - 1;
      free_outgoing_.reserve(outgoing_.size());
      return fresh;
    }
    outgoing& posted = *free_outgoing_.back();
    free_outgoing_.pop_back();
    posted.sent = nullptr;
    posted.left = false;
    posted.read = false;
    return posted;
  }

  static detail::stamp::payload enclose(outgoing& posted, std::span<const std::byte> bytes) {
    if (bytes.data() == nullptr && !bytes.empty()) {
      return detail::stamp::payload::phantom;
    }
    if (bytes.size() > inside_limit) {
      return detail::stamp::payload::apart;
    }
    std::copy(bytes.begin(), bytes.end(), posted.inside.begin());
    return detail::stamp::payload::inside;
  }

  /// The tag of a payload that travels apart: only one message at a time has this number.
  static tag payload_tag(std::uint64_t number) {
    return {channel::data, static_cast<std::uint32_t>(number), 0};
  }

  template <class Fabric>
  void post(Fabric& shared, outgoing& posted, int to) {
    posted.sending = task();  // frees the frame, whose memory the next coroutine takes
    posted.sending = send_and_settle(shared, posted, to);
    posted.sending.start(carrier_->ready_coroutines());
  }
  template <class Fabric>
  task send_and_settle(Fabric& shared, outgoing& posted, int to) {
    try {
      auto stamped = carrier_->send(to, stamps, posted.bytes());
      if (posted.head.contents == detail::stamp::payload::apart) {
        ++moving_;
        co_await carrier_->send(to, payload_tag(posted.head.number), posted.sent->bytes);
        --moving_;
      }
      co_await stamped;
    } catch (...) {
      shared.abort(what(std::current_exception()));
      co_return;
    }
    posted.left = true;
    settle(shared, posted);
  }
  void send(outgoing& posted, int to) {
    posted.sending = task();
    posted.sending = send_alone(posted, to);
    posted.sending.start(carrier_->ready_coroutines());
  }
  task send_alone(outgoing& posted, int to) {
    try {
      co_await carrier_->send(to, stamps, posted.bytes());
    } catch (...) {
    }
  }

  template <class Fabric>
  void settle(Fabric& shared, outgoing& posted) {
    if (posted.sent == nullptr && posted.left) {
      free_outgoing_.push_back(&posted);
    } else if (posted.left && posted.read) {
      events_.at(posted.read_at, &complete_send<Fabric>, &shared,
                 std::exchange(posted.sent, nullptr));
      free_outgoing_.push_back(&posted);
    }
  }

  template <class Fabric>
  static void complete_send(void* shared, void* own) {
    auto& mine = *static_cast<message*>(own);
    static_cast<Fabric*>(shared)->end(mine.from).returned(mine);
  }
  template <class Fabric>
  static void deliver_here(void* shared, void* its) {
    auto& in = *static_cast<message*>(its);
    static_cast<Fabric*>(shared)->end(in.to).deliver(in);
  }

  // ---- messages in

  template <class Fabric>
  task listen(Fabric& shared) {
    try {
      for (bool more = true; more;) {
        const auto posted = co_await carrier_->receive_any(channel::service);
        more = take(shared, posted.peer(), posted.bytes());
      }
    } catch (...) {
      fail(shared, std::current_exception());
    }
  }

  /// Returns false for the last message that will come.
  template <class Fabric>
  bool take(Fabric& shared, int peer, std::span<const std::byte> bytes) {
    detail::stamp head;
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.what == detail::stamp::kind::message) {
      take_message(shared, peer, head, bytes.subspan(sizeof head));
    } else if (head.what == detail::stamp::kind::was_read) {
      outgoing& posted = outgoing_[head.number];
      posted.read = true;
      posted.read_at = head.time;
      settle(shared, posted);
    }
    return head.what != detail::stamp::kind::stop;
  }

  template <class Fabric>
  void take_message(Fabric& shared, int peer, const detail::stamp& head,
                    std::span<const std::byte> enclosed) {
    foreign& in = take_foreign();
    in.from = peer;
    in.to = carrier_->rank();
    in.where = head.where;
    in.event = head.time;
    in.number = head.number;
    const bool phantom = head.contents == detail::stamp::payload::phantom;
    in.staged = phantom ? nullptr : staging_.take(head.bytes);
    in.bytes = {in.staged, head.bytes};
    in.here = head.contents != detail::stamp::payload::apart;
    if (head.contents == detail::stamp::payload::inside) {
      std::copy(enclosed.begin(), enclosed.end(), in.staged);
    } else if (!in.here) {
      in.fetching = task();
      in.fetching = fetch(shared, in);
      in.fetching.start(carrier_->ready_coroutines());
    }
    const seconds latency = network_.latency(peer, in.to, in.where);
    events_.at(order_.head(in, head.time + latency, now()), &arrive<Fabric>, &shared, &in);
  }

  template <class Fabric>
  task fetch(Fabric& shared, foreign& in) {
    try {
      ++moving_;
      co_await carrier_->receive(in.from, payload_tag(in.number),
                                 std::span<std::byte>(in.staged, in.bytes.size()));
      --moving_;
    } catch (...) {
      shared.abort(what(std::current_exception()));
      co_return;
    }
    in.here = true;
    if (overdue_[static_cast<std::size_t>(in.from)].front() == &in) {
      events_.at(in.due, &deliver<Fabric>, &shared, &in);
    }
  }

  /// Handles the arrival of a head. The rest follows as fast as both NICs let it.
  template <class Fabric>
  static void arrive(void* shared, void* its) {
    shaped_link& self = static_cast<Fabric*>(shared)->delivery();
    auto& in = *static_cast<foreign*>(its);
    const seconds last_byte =
        self.now() + self.network_.passage(in.from, in.to, in.where, in.bytes.size());
    const seconds busy = self.network_.occupation(in.to, in.from, in.where, in.bytes.size());
    const seconds passed = self.nic_of(in.to, in).ingress.take(self.now(), busy) + busy;
    self.events_.at(self.order_.last_byte(in, std::max(passed, last_byte), self.now()),
                    &deliver<Fabric>, shared, &in);
  }

  /// A payload that the carrier has not brought yet holds up later messages of its sender. They
  /// leave the list one by one, each when it is delivered, so that none overtakes another.
  template <class Fabric>
  static void deliver(void* shared, void* its) {
    shaped_link& self = static_cast<Fabric*>(shared)->delivery();
    auto& in = *static_cast<foreign*>(its);
    auto& waiting = self.overdue_[static_cast<std::size_t>(in.from)];
    if (!in.here || (!waiting.empty() && waiting.front() != &in)) {
      in.due = self.now();
      waiting.push(in);
      return;
    }
    waiting.pop();
    deliver_here<Fabric>(shared, static_cast<message*>(&in));
    if (auto* next = static_cast<foreign*>(waiting.front()); next != nullptr && next->here) {
      self.events_.at(next->due, &deliver<Fabric>, shared, next);
    }
  }

  foreign& take_foreign() {
    if (free_foreign_.empty()) {
      foreign_.emplace_back();
      free_foreign_.reserve(foreign_.size());
      return foreign_.back();
    }
    foreign& in = *free_foreign_.back();
    free_foreign_.pop_back();
    in.is_back = false;
    in.refused = false;
    return in;
  }
  void give_foreign(foreign& read) {
    if (read.staged != nullptr) {
      staging_.give(read.staged, read.bytes.size());
    }
    free_foreign_.push_back(&read);
  }

  /// Ends every rank's part in the same words, once the carrier has failed and holds nothing.
  template <class Fabric>
  void fail(Fabric& shared, const std::exception_ptr& why) {
    shared.abort(what(why));
    for (outgoing& each : outgoing_) {
      if (message* mine = std::exchange(each.sent, nullptr)) {
        mine->refused = true;
        shared.end(mine->from).returned(*mine);
      }
    }
  }

  /// The NIC of `rank` that a message passes; inside its host each rank has one of its own.
  detail::shared_nic& nic_of(int rank, const message& which) {
    return network_.share_host(which.from, which.to) ? own_nic(rank) : nics_[network_.host(rank)];
  }

  Carrier* carrier_;
  device device_;
  network network_;
  detail::arrival_order order_;
  detail::shared_nics nics_;
  seconds origin_ = 0;
  virtual_clock events_;
  run_queue ready_;
  inline_queue here_;
  detail::staging<inline_queue> staging_{here_};
  std::deque<outgoing> outgoing_;
  std::deque<foreign> foreign_;
  std::vector<outgoing*> free_outgoing_;
  std::vector<foreign*> free_foreign_;
  std::vector<fifo<message>> overdue_;  // by sender
  int moving_ = 0;
  task listening_;
};

}  // namespace tutti::transport
