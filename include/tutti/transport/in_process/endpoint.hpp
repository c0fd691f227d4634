#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/fifo.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/backoff.hpp"
#include "tutti/transport/in_process/mailbox.hpp"
#include "tutti/transport/in_process/matching.hpp"
#include "tutti/transport/in_process/message.hpp"
#include "tutti/transport/in_process/operations.hpp"
#include "tutti/transport/in_process/rendezvous_table.hpp"
#include "tutti/transport/operation.hpp"

namespace tutti::transport {

/// A transport between ranks of one process, which hand each other pointers and read each other's
/// memory. The receiver copies a message once, and a loan not at all.
///
/// `Delivery` decides when a message reaches its receiver: `by_mailbox` hands it to the receiver's
/// thread at once; `virtual_link` keeps it for the time that its link would take. `Queue` is the
/// device whose memory is used. A delivery that reaches ranks of other processes returns their
/// messages itself (`return_message`).
/// Cost of a message: one atomic exchange each way. One file, because beginning, matching,
/// returning and taking back a message are steps of one state machine.
template <class Queue, class Delivery>
class basic_in_process {
 public:
  using role = tutti::role::transport;
  using queue_type = Queue;
  using queue_event = typename Queue::event;
  static constexpr bool virtual_time = Delivery::virtual_time;

 private:
  using message = detail::message<queue_event>;
  using pending_receive = detail::pending_receive<basic_in_process>;
  using rendezvous_operation = detail::rendezvous_operation<basic_in_process>;

 public:
  /// What the ranks of one job share.
  class fabric {
   public:
    template <class... Arguments>
    [[gnu::cold]] explicit fabric(int ranks, Arguments&&... arguments)
        : rendezvous_(ranks), delivery_(ranks, std::forward<Arguments>(arguments)...) {
      for (int rank = 0; rank < ranks; ++rank) {
        ends_.push_back(std::make_unique<basic_in_process>(*this, rank, ranks));
      }
    }

    int size() const { return static_cast<int>(ends_.size()); }
    basic_in_process& end(int rank) { return *ends_[static_cast<std::size_t>(rank)]; }
    Delivery& delivery() { return delivery_; }

    /// Ends the job because one rank cannot go on: every other rank learns why at its next poll.
    /// The first reason stays.
    [[gnu::cold]] void abort(const std::string& reason) {
      const std::scoped_lock lock(abort_mutex_);
      if (!aborted_.load(std::memory_order_relaxed)) {
        reason_ = reason;
        aborted_.store(true);
      }
    }
    bool aborted() const { return aborted_.load(std::memory_order_acquire); }
    /// The reason, to be read only once `aborted()` is true.
    const std::string& reason() const { return reason_; }

   private:
    friend basic_in_process;
    detail::rendezvous_table rendezvous_;
    Delivery delivery_;
    std::vector<std::unique_ptr<basic_in_process>> ends_;
    std::atomic<bool> aborted_{false};
    std::mutex abort_mutex_;
    std::string reason_;
  };

  basic_in_process(fabric& shared, int rank, int ranks)
      : shared_(&shared), rank_(rank), backoff_(ranks), queue_(queue_of(shared.delivery_)) {}
  basic_in_process(const basic_in_process&) = delete;
  basic_in_process& operator=(const basic_in_process&) = delete;

  int rank() const { return rank_; }
  int size() const { return shared_->size(); }
  int host_of(int rank) const { return shared_->delivery_.host_of(rank); }
  Queue& queue() { return queue_; }
  run_queue& ready_coroutines() {
    if constexpr (virtual_time) {
      return shared_->delivery_.ready_coroutines();
    } else {
      return ready_;
    }
  }
  seconds now() const { return shared_->delivery_.now(); }
  traffic counted() const { return counted_.read(); }
  std::size_t in_flight() const { return flights_.count(); }
  /// Why this rank's part has ended; null while it has not.
  const std::exception_ptr& failure() const { return flights_.failure(); }

  // ---- operations

  auto send(int to, tag where, std::span<const std::byte> bytes) {
    return detail::send_operation<basic_in_process>(*this, to, where, bytes);
  }
  auto receive(int from, tag where, std::span<std::byte> into) {
    return detail::receive_operation<basic_in_process, copy_bytes>(*this, from, where, into,
                                                                   copy_bytes{});
  }
  template <class Fold>
  auto receive_fold(int from, tag where, std::span<std::byte> into, Fold fold) {
    return detail::receive_operation<basic_in_process, Fold>(*this, from, where, into, fold);
  }
  auto receive_loan(int from, tag where, std::size_t bytes) {
    return detail::loan_operation<basic_in_process>(*this, from, where, bytes);
  }
  /// The sender decides the size of the message: read it from the loan.
  auto receive_any(channel from_channel) {
    return detail::loan_operation<basic_in_process>(*this, detail::any_rank,
                                                    tag{from_channel, 0, 0}, 0);
  }
  auto exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                tag where) {
    return detail::exchange_operation<basic_in_process, copy_bytes>(*this, to, out, from, into,
                                                                    where, copy_bytes{});
  }
  template <class Fold>
  auto exchange_fold(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                     tag where, Fold fold) {
    return detail::exchange_operation<basic_in_process, Fold>(*this, to, out, from, into, where,
                                                              fold);
  }
  auto sleep(seconds duration) {
    return detail::sleep_operation(ready_coroutines(), flights_, now() + std::max(0.0, duration),
                                   [this](detail::sleep_operation& fresh) { lay_down(fresh); });
  }
  auto rendezvous(tag where,
                  std::span<const std::byte> bytes) requires(std::same_as<Queue, inline_queue> &&
                                                             !virtual_time) {
    return rendezvous_operation(*this, where, bytes);
  }

  // ---- for operations, whose frames hold the messages and receives that are under way

  bool failed() const { return flights_.failed(); }
  bool loans_revoked() const { return loans_revoked_; }
  void park(detail::operation& fresh) { flights_.park(fresh); }
  void begin_send(message& out, detail::operation& owner, int to, tag where,
                  std::span<const std::byte> bytes) {
    if (flights_.failed()) {
      flights_.park(owner);
      return;
    }
    counted_.add(bytes.size());
    out.from = rank_;
    out.to = to;
    out.where = where;
    out.bytes = bytes;
    if constexpr (!virtual_time) {
      if (where.channel == channel::control) {
        send_copy(out);
        owner.complete();
        return;
      }
    }
    out.owner = &owner;
    if (!queue_accepts([&] { out.event = queue_.record(); })) {
      flights_.park(owner);
      return;
    }
    flights_.begin();
    shared_->delivery_.carry(*shared_, out);
  }

  void begin_receive(pending_receive& in, detail::operation& owner, int from, tag where,
                     std::span<std::byte> into) {
    if (flights_.failed()) {
      flights_.park(owner);
      return;
    }
    in.from = from;
    in.where = where;
    in.into = into;
    in.owner = &owner;
    if constexpr (!virtual_time) {
      read_mailbox();
    }
    flights_.begin();
    if (message* already = matching_.message_for(in)) {
      take(in, *already);
    }
  }

  /// Gives a lent message back. `lent` is null if that has happened or another loan holds it.
  void end_loan(message* lent) {
    if (lent == nullptr || loans_revoked_) {
      return;
    }
    lent_.remove(*lent);
    give_back(*lent);
  }

  detail::rendezvous rendezvous_on(tag where) { return shared_->rendezvous_.at(where); }
  /// Shows `bytes` in this rank's next round of the rendezvous `where`. Returns the number of the
  /// round, or 0 if this rank's part has ended.
  std::uint64_t show(detail::rendezvous where, std::span<const std::byte> bytes) {
    if (failed()) {
      return 0;
    }
    shows_ = true;
    return where.show(rank_, bytes);
  }
  /// Announces that this rank reads what others have shown. Returns false after a failure, when the
  /// rank that failed may free what it has shown. The two flags are written and read in one total
  /// order, so either that rank sees this announcement, or this rank sees the failure.
  bool look() {
    looks_.store(looks_.load(std::memory_order_relaxed) + 1);
    if (shared_->aborted_.load()) {
      look_away();
      return false;
    }
    return true;
  }
  void look_away() {
    if (!loans_revoked_) {
      looks_.store(looks_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    }
  }

  /// Waits a moment for `done()`, and returns true if it came. Only a coroutine that an idle
  /// polling loop has resumed waits, since its thread has nothing better to do. One that the
  /// trainer starts between two layers does not, because `ready` must not wait for peers: where a
  /// peer is late it suspends at once, and pays for a resumption that a longer look would spare.
  template <class Done>
  bool glance(Done done) {
    return idle_before_poll_ && ready_.draining() && backoff_.glance(done);
  }
  void wait_for_all(rendezvous_operation& fresh) {
    at_rendezvous_.push(fresh);
    flights_.begin();
  }

  // ---- progress

  /// Makes progress, and returns true if there was any. Call it between resumptions, never from
  /// inside a coroutine.
  bool poll() {
    if (flights_.failed() && !loans_revoked_ && ready_coroutines().empty()) {
      revoke_loans();
    }
    bool progress = let_go_of_what_was_shown();
    if constexpr (!virtual_time) {
      idle_before_poll_ = idle_since_poll_.load(std::memory_order_relaxed);
      if (idle_before_poll_) {
        idle_since_poll_.store(false, std::memory_order_relaxed);
      }
      progress |= read_mailbox();
      progress |= !sleepers_.empty() && sleepers_.wake(now(), flights_);
      progress |= complete_rendezvous();
    }
    if (shared_->aborted() && !flights_.failed()) {
      fail(refusal_ ? refusal_ : std::make_exception_ptr(communication_error(shared_->reason())));
      progress = true;
    }
    return progress;
  }

  seconds idle(std::size_t idle_polls, urgency who = urgency::waited_for) {
    idle_since_poll_.store(true, std::memory_order_relaxed);
    const seconds nap = backoff_.idle(idle_polls, who);
    return nap > 0 ? sleepers_.cut_short(nap, now()) : 0;
  }

  /// Ends this rank's part: pending receives fail with `why`, new operations are refused, and
  /// messages of peers are returned refused, so that the peers fail too. Coroutines resume, with
  /// the exception, when `in_flight()` is 0. Call it between resumptions, never from inside a
  /// coroutine.
  ///
  /// A rank that has been at a rendezvous ends every other rank's part as well: from now on no rank
  /// begins to read what this one has shown, and `in_flight()` stays above 0 while some rank still
  /// reads it.
  [[gnu::cold]] void fail(std::exception_ptr why) {
    if (flights_.failed()) {
      return;
    }
    if (shows_ && !leaves_) {
      abort(verdict_of(rank_, why));
      flights_.begin();
    } else {
      shows_ = false;
    }
    flights_.fail(std::move(why));
    matching_.clear([this](pending_receive& in) { flights_.end(*in.owner); },
                    [this](message& foreign) { refuse(foreign); });
    while (rendezvous_operation* waiting = at_rendezvous_.pop()) {
      flights_.end(*waiting);
    }
    sleepers_.fail(flights_);
    flights_.settle();
  }

  /// Ends every rank's part, with this sentence, at its next poll. The first sentence stays.
  void abort(const std::string& reason) { shared_->abort(reason); }

  /// Notes that an exception ends this rank's part, and returns true, because that happens in good
  /// order here. Whoever catches the exception may `abort` with its message; otherwise `leave`
  /// aborts without it.
  bool ends_by_exception() { return ends_by_exception_ = true; }

  /// Ends this rank's polling for good: messages to it are refused from now on.
  [[gnu::cold]] void leave() {
    if (ends_by_exception_) {
      abort(sentence({"rank ", rank_, " left by an exception"}));
    }
    if (flights_.failed()) {
      abort(verdict_of(rank_, flights_.failure()));
    } else {
      leaves_ = true;
      fail(std::make_exception_ptr(communication_error(sentence({"rank ", rank_, " has left"}))));
    }
    if constexpr (!virtual_time) {
      mailbox_.close([this](message& arrived) { take_in(arrived); });
    }
  }

  /// The receives that this rank waits for, in words for an error message; empty if there are none.
  std::string waits_for() const { return matching_.waits_for(); }

  /// The messages that this rank was sent and has not received, in words; empty if there are none.
  std::string has_not_received() const { return matching_.has_not_received(); }

  /// Takes in a message that has reached this rank. `Delivery` calls it on the thread that polls
  /// this rank.
  void deliver(message& arrived) {
    if (flights_.failed()) {
      refuse(arrived);
      return;
    }
    if (pending_receive* match = matching_.receive_for(arrived)) {
      take(*match, arrived);
    }
  }

 private:
  friend Delivery;

  /// Completes a receive with its message. If their sizes differ neither can complete: the receive
  /// is filed again and the message goes back refused, until every rank learns of it at its next
  /// poll.
  void take(pending_receive& in, message& from) {
    if (!in.takes(from)) {
      refuse_size(in, from);
      return;
    }
    if (!queue_accepts([&] { in.take(*this, in, from); })) {
      from.refused = true;
      give_back(from);
      flights_.end_refused(*in.owner);
      return;
    }
    if (in.lends) {
      lent_.push(from);
    } else {
      give_back(from);
    }
    flights_.end(*in.owner);
  }

  /// Runs `work`, and returns false if the queue throws, as every call to a device does once the
  /// device has failed. Every rank's part then ends at its next poll.
  template <class Work>
  bool queue_accepts(Work work) {
    try {
      work();
      return true;
    } catch (...) {
      queue_has_refused();
      return false;
    }
  }
  [[gnu::cold, gnu::noinline]] void queue_has_refused() {
    if (!refusal_) {
      refusal_ = std::current_exception();
      abort(verdict_of(rank_, refusal_));
    }
  }

  [[gnu::cold, gnu::noinline]] void refuse_size(pending_receive& in, message& from) {
    abort(sentence({"rank ", from.from, " sent ", from.bytes.size(), " bytes of chunk ",
                    from.where.chunk, " where rank ", rank_, " expects ", in.into.size()}));
    matching_.keep(in);
    from.refused = true;
    give_back(from);
  }

  /// Sends a copy of a message on the control channel, so that the sender, which diagnoses a wait,
  /// waits for no one: not for a rank that computes, nor for one that has left and reads nothing
  /// any more.
  [[gnu::cold, gnu::noinline]] void send_copy(const message& out) {
    auto fresh = std::make_unique<detail::copied_message<queue_event>>(out);
    if (shared_->end(out.to).mailbox_.push(*fresh)) {
      fresh.release();  // its reader deletes it
    }
  }

  static bool is_copy(const message& sent) { return !virtual_time && sent.owner == nullptr; }

  [[gnu::cold]] void refuse(message& foreign) {
    if (!leaves_ || !is_copy(foreign)) {
      abort(leaves_ ? foreign.unread() : verdict_of(rank_, flights_.failure()));
    }
    foreign.refused = true;
    give_back(foreign);
  }

  [[gnu::noinline]] void give_back(message& read) {
    if (is_copy(read)) {
      delete &static_cast<detail::copied_message<queue_event>&>(read);
      return;
    }
    if (!queue_accepts([&] { read.event = queue_.record(); })) {
      read.event = {};
    }
    read.is_back = true;
    basic_in_process& sender = shared_->end(read.from);
    if constexpr (requires { shared_->delivery_.return_message(*shared_, read); }) {
      shared_->delivery_.return_message(*shared_, read);
    } else if constexpr (virtual_time) {
      sender.returned(read);
    } else {
      if (&sender == this || !sender.mailbox_.push(read)) {
        sender.returned(read);
      }
    }
  }

  void returned(message& mine) {
    bool intact = !mine.refused;
    // In virtual time the sender does not wait for the reader's work, since over a network the
    // receiver reads a copy.
    if constexpr (!virtual_time) {
      intact &= queue_accepts([&] { queue_.wait(mine.event); });
    }
    if (!intact) {
      flights_.end_refused(*mine.owner);
    } else {
      flights_.end(*mine.owner);
    }
  }

  /// Takes all loans back after a failure. Every coroutine is suspended in an operation that will
  /// throw, so none reads its loans again; and two ranks that hold each other's memory would wait
  /// for ever.
  void revoke_loans() {
    while (message* lent = lent_.front()) {
      end_loan(lent);
    }
    loans_revoked_ = true;
    looks_.store(0, std::memory_order_release);
  }

  void lay_down(detail::sleep_operation& fresh) {
    sleepers_.add(fresh);
    if constexpr (virtual_time) {
      shared_->delivery_.wake_later(*this, fresh.due);
    }
  }
  void wake_up() { sleepers_.wake(now(), flights_); }

  bool read_mailbox() {
    return mailbox_.read([this](message& arrived) { take_in(arrived); });
  }
  void take_in(message& arrived) {
    if (arrived.is_back) {
      returned(arrived);
    } else {
      deliver(arrived);
    }
  }

  /// After a failure: releases what this rank has shown once no peer reads it. Returns true if it
  /// did.
  bool let_go_of_what_was_shown() {
    if (!shows_ || !loans_revoked_) {
      return false;
    }
    for (int peer = 0; peer < size(); ++peer) {
      if (shared_->end(peer).looks_.load() != 0) {
        return false;
      }
    }
    shows_ = false;
    flights_.end();
    return true;
  }

  bool complete_rendezvous() {
    bool any = false;
    while (rendezvous_operation* done = at_rendezvous_.take(
               [this](const rendezvous_operation& each) { return each.complete() && look(); })) {
      flights_.end(*done);
      any = true;
    }
    return any;
  }

  fabric* shared_;
  int rank_;
  detail::backoff backoff_;
  /// Makes this rank's queue. The queue of a simulated device keeps the delivery's clock.
  static Queue queue_of(Delivery& delivery) {
    if constexpr (requires { delivery.new_queue(); }) {
      return delivery.new_queue();
    } else {
      return Queue();
    }
  }

  Queue queue_;
  run_queue ready_;
  traffic_counter counted_;
  detail::under_way flights_;
  std::exception_ptr refusal_;  // the first that the queue has thrown
  detail::matching<message, pending_receive> matching_;
  fifo<rendezvous_operation> at_rendezvous_;
  detail::sleepers sleepers_;
  detail::lent_messages<message> lent_;  // to this rank, and not given back yet
  bool idle_before_poll_ = false;
  std::atomic<bool> idle_since_poll_{false};  // atomic, because any thread may call `idle`
  bool loans_revoked_ = false;
  bool leaves_ = false;  // left before anything had failed
  bool ends_by_exception_ = false;
  bool shows_ = false;  // has shown something that peers may still read
  detail::mailbox<message> mailbox_;
  alignas(64) std::atomic<int> looks_{0};  // living rendezvous_views; only this rank writes it
};

}  // namespace tutti::transport
