#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/assert.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/fifo.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/meeting.hpp"
#include "tutti/transport/operation.hpp"
#include "tutti/transport/patience.hpp"

namespace tutti::transport {

namespace detail {

/// A send on its way: it lies in the sender's frame, is read by the receiver, and goes home.
template <class Mark>
struct letter {
  letter* next{};     // in the mailbox, among the early, or among the lent
  letter** before{};  // among the lent
  int from{};
  int to{};
  tag where{};
  std::span<const std::byte> bytes{};
  Mark mark{};  // out: the bytes are valid after it; home: the reader is done after it
  bool home{};
  bool refused{};
  operation* owner{};

  [[gnu::cold]] std::string unread() const {
    return sentence(
        {"rank ", to, " has left before it received chunk ", where.chunk, " of rank ", from});
  }
};

/// A receive that waits for its letter.
template <class Endpoint>
struct receipt {
  using letter_type = letter<typename Endpoint::queue_type::mark>;

  receipt* next{};
  int from{};  // any_rank: whoever sends on the tag's channel
  tag where{};
  std::span<std::byte> into{};
  operation* owner{};
  void (*take)(Endpoint&, receipt&, letter_type&){};
};

inline constexpr int any_rank = -1;

}  // namespace detail

/// Ranks in one process that hand over pointers and read each other's memory: a message is copied
/// once, by its receiver, and a loan not at all.
///
/// `Delivery` says when a letter reaches its receiver: `by_mailbox` is between threads, at once;
/// `virtual_link` keeps it for the time its link would take. `Queue` is the device that memory
/// lives on. A delivery that reaches ranks of other processes brings their letters home itself.
/// Cost of a message: one atomic exchange each way.
template <class Queue, class Delivery>
class basic_in_process {
 public:
  using role = tutti::role::transport;
  using queue_type = Queue;
  using mark = typename Queue::mark;
  static constexpr bool virtual_time = Delivery::virtual_time;

 private:
  using letter = detail::letter<mark>;
  using receipt = detail::receipt<basic_in_process>;

 public:
  /// What the ranks of one job share.
  class fabric {
   public:
    template <class... Arguments>
    explicit fabric(int ranks, Arguments&&... arguments)
        : places_(ranks), delivery_(ranks, std::forward<Arguments>(arguments)...) {
      for (int rank = 0; rank < ranks; ++rank) {
        ends_.push_back(std::make_unique<basic_in_process>(*this, rank, ranks));
      }
    }

    int size() const { return static_cast<int>(ends_.size()); }
    basic_in_process& end(int rank) { return *ends_[static_cast<std::size_t>(rank)]; }
    Delivery& delivery() { return delivery_; }

    /// One rank cannot go on: every other learns why at its next poll. The first reason stays.
    void abort(const std::string& reason) {
      const std::scoped_lock lock(abort_mutex_);
      if (!aborted_.load(std::memory_order_relaxed)) {
        reason_ = reason;
        aborted_.store(true, std::memory_order_release);
      }
    }
    bool aborted() const { return aborted_.load(std::memory_order_acquire); }
    /// Why; to be read once `aborted()`.
    const std::string& reason() const { return reason_; }

   private:
    friend basic_in_process;
    detail::meeting_places places_;
    Delivery delivery_;
    std::vector<std::unique_ptr<basic_in_process>> ends_;
    std::atomic<bool> aborted_{false};
    std::mutex abort_mutex_;
    std::string reason_;
  };

  basic_in_process(fabric& shared, int rank, int ranks)
      : shared_(&shared), rank_(rank), patience_(ranks), queue_(queue_of(shared.delivery_)) {}
  basic_in_process(const basic_in_process&) = delete;
  basic_in_process& operator=(const basic_in_process&) = delete;

  int rank() const { return rank_; }
  int size() const { return shared_->size(); }
  Queue& queue() { return queue_; }
  run_queue& ready_coroutines() {
    if constexpr (virtual_time) {
      return shared_->delivery_.ready_coroutines();
    } else {
      return ready_;
    }
  }
  seconds now() const { return shared_->delivery_.now(); }
  traffic counted() const { return counted_; }
  std::size_t in_flight() const { return flights_.count(); }
  /// Why this rank's part has ended; null while it has not.
  const std::exception_ptr& failure() const { return flights_.failure(); }

  // ---- operations

  class send_operation : public detail::operation {
   public:
    send_operation(basic_in_process& self, int to, tag where, std::span<const std::byte> bytes)
        : operation(self.ready_coroutines(), 1) {
      self.begin_send(out_, *this, to, where, bytes);
    }

   private:
    letter out_;
  };

  template <class Fold>
  class folding_receipt : public receipt {
   public:
    explicit folding_receipt(Fold fold) : fold_(fold) {
      this->take = [](basic_in_process& self, receipt& which, letter& read) {
        self.queue_.wait(read.mark);
        if constexpr (!std::same_as<Fold, copy_bytes>) {  // a card writes what is only copied
          charge(self.queue_, 3 * read.bytes.size());
        }
        if (read.bytes.data() != nullptr && which.into.data() != nullptr) {
          static_cast<folding_receipt&>(which).fold_(self.queue_, which.into.data(),
                                                     read.bytes.data(), read.bytes.size());
        }
        self.give_back(read);
      };
    }

   private:
    Fold fold_;
  };

  template <class Fold>
  class receive_operation : public detail::operation {
   public:
    receive_operation(basic_in_process& self, int from, tag where, std::span<std::byte> into,
                      Fold fold)
        : operation(self.ready_coroutines(), 1), in_(fold) {
      self.begin_receive(in_, *this, from, where, into);
    }

   private:
    folding_receipt<Fold> in_;
  };

  template <class Fold>
  class exchange_operation : public detail::operation {
   public:
    exchange_operation(basic_in_process& self, int to, std::span<const std::byte> out, int from,
                       std::span<std::byte> into, tag where, Fold fold)
        : operation(self.ready_coroutines(), 2), in_(fold) {
      self.begin_send(out_, *this, to, where, out);
      self.begin_receive(in_, *this, from, where, into);
    }

   private:
    letter out_;
    folding_receipt<Fold> in_;
  };

  /// A peer's bytes, to read until the loan is destroyed.
  class loan {
   public:
    loan(basic_in_process& self, letter* lent) : self_(&self), lent_(lent) {}
    loan(loan&& other) noexcept : self_(other.self_), lent_(std::exchange(other.lent_, nullptr)) {}
    loan& operator=(loan&&) = delete;
    ~loan() { self_->end_loan(lent_); }

    std::span<const std::byte> bytes() const { return lent_->bytes; }
    int peer() const { return lent_->from; }
    tag where() const { return lent_->where; }

   private:
    basic_in_process* self_;
    letter* lent_;
  };

  class loan_operation : public detail::operation {
   public:
    loan_operation(basic_in_process& self, int from, tag where, std::size_t bytes)
        : operation(self.ready_coroutines(), 1), self_(&self) {
      in_.take = [](basic_in_process& taker, receipt& which, letter& lent) {
        taker.queue_.wait(lent.mark);
        taker.begin_loan(lent);
        static_cast<lending_receipt&>(which).lent = &lent;
      };
      self.begin_receive(in_, *this, from, where,
                         std::span<std::byte>(static_cast<std::byte*>(nullptr), bytes));
    }
    ~loan_operation() { self_->end_loan(in_.lent); }
    loan await_resume() {
      operation::await_resume();
      if (self_->loans_revoked_) {
        std::rethrow_exception(self_->flights_.failure());
      }
      return loan(*self_, std::exchange(in_.lent, nullptr));
    }

   private:
    struct lending_receipt : receipt {
      letter* lent{};
    };

    basic_in_process* self_;
    lending_receipt in_;
  };

  /// What every rank showed.
  class meeting_view {
   public:
    meeting_view(detail::meeting& where, std::uint64_t generation)
        : where_(&where), generation_(generation) {}
    /// Valid until this rank begins its next meeting but one on this tag.
    const std::byte* of(int rank) const { return where_->line(generation_, rank).bytes.data(); }
    template <class T>
    T shown(int rank) const {
      T value;
      std::memcpy(&value, of(rank), sizeof value);
      return value;
    }

   private:
    detail::meeting* where_;
    std::uint64_t generation_;
  };

  class meet_operation : public detail::operation {
   public:
    meet_operation(basic_in_process& self, tag where, std::span<const std::byte> bytes)
        : operation(self.ready_coroutines(), 0),
          self_(&self),
          where_(&self.shared_->places_.at(where)),
          generation_(where_->show(self.rank_, bytes)) {}

    /// Peers are usually a cache miss away, so look for a moment before going to sleep.
    bool await_ready() {
      if (self_->flights_.failed()) {
        expect_half();
        self_->flights_.park(*this);
        return operation::await_ready();
      }
      return self_->patience_.glance([this] { return complete(); });
    }
    void await_suspend(std::coroutine_handle<> waiter) {
      operation::await_suspend(waiter);
      if (!self_->flights_.failed()) {
        expect_half();
        self_->meetings_.push(*this);
        self_->flights_.begin();
      }
    }
    meeting_view await_resume() const {
      operation::await_resume();
      return meeting_view(*where_, generation_);
    }

    bool complete() const { return where_->complete(generation_); }

    meet_operation* next{};

   private:
    basic_in_process* self_;
    detail::meeting* where_;
    std::uint64_t generation_;
  };

  auto send(int to, tag where, std::span<const std::byte> bytes) {
    return send_operation(*this, to, where, bytes);
  }
  auto receive(int from, tag where, std::span<std::byte> into) {
    return receive_operation<copy_bytes>(*this, from, where, into, copy_bytes{});
  }
  template <class Fold>
  auto receive_fold(int from, tag where, std::span<std::byte> into, Fold fold) {
    return receive_operation<Fold>(*this, from, where, into, fold);
  }
  auto receive_loan(int from, tag where, std::size_t bytes) {
    return loan_operation(*this, from, where, bytes);
  }
  /// The size of the message is the sender's: read it from the loan.
  auto receive_any(channel from_channel) {
    return loan_operation(*this, detail::any_rank, tag{from_channel, 0, 0}, 0);
  }
  auto exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                tag where) {
    return exchange_operation<copy_bytes>(*this, to, out, from, into, where, copy_bytes{});
  }
  template <class Fold>
  auto exchange_fold(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                     tag where, Fold fold) {
    return exchange_operation<Fold>(*this, to, out, from, into, where, fold);
  }
  auto sleep(seconds duration) {
    return detail::sleep_operation(ready_coroutines(), flights_, now() + duration,
                                   [this](detail::sleep_operation& fresh) { lay_down(fresh); });
  }
  auto meet(tag where,
            std::span<const std::byte> bytes) requires(std::same_as<Queue, inline_queue> &&
                                                       !virtual_time) {
    return meet_operation(*this, where, bytes);
  }

  // ---- progress

  /// Call it between resumptions, never from inside a coroutine.
  bool poll() {
    if (flights_.failed() && !loans_revoked_ && ready_coroutines().empty()) {
      revoke_loans();
    }
    bool progress = false;
    if constexpr (!virtual_time) {
      progress = open_mailbox();
      progress |= !sleepers_.empty() && sleepers_.wake(now(), flights_);
      progress |= end_meetings();
    }
    if (shared_->aborted() && !flights_.failed()) {
      fail(std::make_exception_ptr(communication_error(shared_->reason())));
      progress = true;
    }
    return progress;
  }

  /// A moment of waiting after `idle_polls` polls in a row that brought nothing.
  void idle(std::size_t idle_polls) const { patience_.idle(idle_polls); }

  /// Ends this rank's part: pending receives fail with `why`, new operations are refused, and what
  /// peers sent goes home refused, so that they fail too. Coroutines go on, with the exception,
  /// when `in_flight()` is 0. Call it between resumptions, never from inside a coroutine.
  [[gnu::cold]] void fail(std::exception_ptr why) {
    if (flights_.failed()) {
      return;
    }
    flights_.fail(std::move(why));
    for (auto& each : receipts_) {
      end_all(each);
    }
    end_all(any_receipts_);
    for (auto& each : unexpected_) {
      while (letter* foreign = each.pop()) {
        refuse(*foreign);
      }
    }
    while (meet_operation* waiting = meetings_.pop()) {
      flights_.end(*waiting);
    }
    sleepers_.fail(flights_);
    flights_.settle();
  }

  /// Ends every rank's part, with this sentence, at its next poll. The first sentence stays.
  void abort(const std::string& reason) { shared_->abort(reason); }

  /// This rank will not poll again: letters to it are refused from now on.
  void leave() {
    if (flights_.failed()) {
      abort(verdict_of(rank_, flights_.failure()));
    } else {
      leaves_ = true;
      fail(std::make_exception_ptr(communication_error(sentence({"rank ", rank_, " has left"}))));
    }
    if constexpr (!virtual_time) {
      letter* last = mailbox_.exchange(closed(), std::memory_order_acq_rel);
      take_all(last == closed() ? nullptr : last);
    }
  }

  /// What this rank waits for, for a sentence about a job that does not move; empty if nothing.
  std::string waits_for() const {
    std::string words;
    const auto add = [&](const std::string& clause) {
      words += (words.empty() ? "" : ", ") + clause;
    };
    for (const auto& each : receipts_) {
      for (const receipt* in = each.front(); in != nullptr; in = in->next) {
        add(sentence({"chunk ", in->where.chunk, " from rank ", in->from}));
      }
    }
    for (const receipt* in = any_receipts_.front(); in != nullptr; in = in->next) {
      add("a message from any rank");
    }
    return words;
  }

  /// What others have sent to this rank and it has not received; empty if nothing.
  std::string has_not_received() const {
    std::string words;
    for (const auto& each : unexpected_) {
      for (const letter* out = each.front(); out != nullptr; out = out->next) {
        words += sentence(
            {words.empty() ? "" : ", ", "chunk ", out->where.chunk, " from rank ", out->from});
      }
    }
    return words;
  }

  /// A letter has reached this rank. `Delivery` calls it on the thread that polls this rank.
  void deliver(letter& arrived) {
    if (flights_.failed()) {
      refuse(arrived);
      return;
    }
    auto& waiting = receipts_[slot(arrived.from, arrived.where)];
    receipt* match = waiting.take([&](const receipt& each) {
      return each.from == arrived.from && each.where == arrived.where;
    });
    if (match == nullptr && !any_receipts_.empty()) {
      match = any_receipts_.take(
          [&](const receipt& each) { return each.where.channel == arrived.where.channel; });
    }
    if (match != nullptr) {
      take(*match, arrived);
    } else {
      early(arrived.from, arrived.where).push(arrived);
    }
  }

 private:
  friend Delivery;
  static constexpr std::size_t table_size = 256;

  static letter* closed() { return reinterpret_cast<letter*>(alignof(letter)); }
  static std::size_t slot(int from, tag where) {
    return (static_cast<std::size_t>(from) * 31 + where.chunk * 7 + where.lane +
            static_cast<std::size_t>(where.channel) * 101) %
           table_size;
  }

  /// Letters that came before their receive. Channels that are received from anybody keep theirs
  /// in the order of arrival, or a wildcard would favour some ranks.
  fifo<letter>& early(int from, tag where) {
    return where.channel == channel::data
               ? unexpected_[slot(from, where)]
               : unexpected_[table_size + static_cast<std::size_t>(where.channel)];
  }

  void begin_send(letter& out, detail::operation& owner, int to, tag where,
                  std::span<const std::byte> bytes) {
    if (flights_.failed()) {
      flights_.park(owner);
      return;
    }
    counted_.bytes_sent += bytes.size();
    ++counted_.messages_sent;
    out.from = rank_;
    out.to = to;
    out.where = where;
    out.bytes = bytes;
    out.mark = queue_.record();
    out.owner = &owner;
    flights_.begin();
    shared_->delivery_.carry(*shared_, out);
  }

  void begin_receive(receipt& in, detail::operation& owner, int from, tag where,
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
      open_mailbox();
    }
    flights_.begin();
    if (letter* already = take_early(from, where)) {
      take(in, *already);
    } else {
      file(in);
    }
  }

  void file(receipt& in) {
    if (in.from == detail::any_rank) {
      any_receipts_.push(in);
    } else {
      receipts_[slot(in.from, in.where)].push(in);
    }
  }

  letter* take_early(int from, tag where) {
    if (from != detail::any_rank) {
      return early(from, where).take([&](const letter& each) {
        return each.from == from && each.where == where;
      });
    }
    if (where.channel != channel::data) {
      return early(from, where).pop();
    }
    for (std::size_t i = 0; i < table_size; ++i) {
      if (letter* found = unexpected_[i].pop()) {
        return found;
      }
    }
    return nullptr;
  }

  /// `in` and `from` belong together. If their sizes differ nobody can go on: both wait, filed and
  /// refused, until every rank learns it at its next poll.
  void take(receipt& in, letter& from) {
    if (in.from != detail::any_rank && from.bytes.size() != in.into.size()) {
      abort(sentence({"rank ", from.from, " sent ", from.bytes.size(), " bytes of chunk ",
                      from.where.chunk, " where rank ", rank_, " expects ", in.into.size()}));
      file(in);
      from.refused = true;
      give_back(from);
      return;
    }
    in.take(*this, in, from);
    flights_.end(*in.owner);
  }

  void end_all(fifo<receipt>& waiting) {
    while (receipt* each = waiting.pop()) {
      flights_.end(*each->owner);
    }
  }

  void refuse(letter& foreign) {
    abort(leaves_ ? foreign.unread() : verdict_of(rank_, flights_.failure()));
    foreign.refused = true;
    give_back(foreign);
  }

  void give_back(letter& read) {
    read.mark = queue_.record();
    read.home = true;
    basic_in_process& sender = shared_->end(read.from);
    if constexpr (requires { shared_->delivery_.bring_home(*shared_, read); }) {
      shared_->delivery_.bring_home(*shared_, read);
    } else if constexpr (virtual_time) {
      sender.came_home(read);
    } else {
      if (&sender == this || !sender.push_mail(read)) {
        sender.came_home(read);
      }
    }
  }

  void came_home(letter& mine) {
    if constexpr (!virtual_time) {  // over a network the receiver reads a copy
      queue_.wait(mine.mark);
    }
    if (mine.refused) {
      flights_.end_refused(*mine.owner);
    } else {
      flights_.end(*mine.owner);
    }
  }

  /// Every coroutine is suspended in an operation that will throw, so none reads its loans again;
  /// and two ranks that hold each other's memory would wait for ever.
  void revoke_loans() {
    while (letter* lent = lent_) {
      end_loan(lent);
    }
    loans_revoked_ = true;
  }

  void begin_loan(letter& lent) {
    lent.next = lent_;
    lent.before = &lent_;
    if (lent_ != nullptr) {
      lent_->before = &lent.next;
    }
    lent_ = &lent;
  }
  /// `lent` is null where there is no loan any more.
  void end_loan(letter* lent) {
    if (lent == nullptr || loans_revoked_) {
      return;
    }
    *lent->before = lent->next;
    if (lent->next != nullptr) {
      lent->next->before = lent->before;
    }
    give_back(*lent);
  }

  void lay_down(detail::sleep_operation& fresh) {
    sleepers_.add(fresh);
    if constexpr (virtual_time) {
      shared_->delivery_.wake_later(*this, fresh.due);
    }
  }
  void wake_up() { sleepers_.wake(now(), flights_); }

  /// False if this rank has left and nobody reads its mail.
  bool push_mail(letter& mail) {
    letter* last = mailbox_.load(std::memory_order_relaxed);
    do {
      if (last == closed()) {
        return false;
      }
      mail.next = last;
    } while (!mailbox_.compare_exchange_weak(last, &mail, std::memory_order_release,
                                             std::memory_order_relaxed));
    return true;
  }

  bool open_mailbox() {
    letter* last = mailbox_.load(std::memory_order_relaxed);
    if (last == nullptr || last == closed()) {
      return false;
    }
    take_all(mailbox_.exchange(nullptr, std::memory_order_acquire));
    return true;
  }

  void take_all(letter* last) {
    letter* first = nullptr;
    while (last != nullptr) {  // the mailbox is last in, first out
      letter* before = last->next;
      last->next = first;
      first = std::exchange(last, before);
    }
    while (first != nullptr) {
      letter& mail = *std::exchange(first, first->next);
      if (mail.home) {
        came_home(mail);
      } else {
        deliver(mail);
      }
    }
  }

  bool end_meetings() {
    bool any = false;
    while (meet_operation* met =
               meetings_.take([](const meet_operation& each) { return each.complete(); })) {
      flights_.end(*met);
      any = true;
    }
    return any;
  }

  fabric* shared_;
  int rank_;
  detail::patience patience_;
  /// A device's queue keeps the delivery's time, if there is such a device.
  static Queue queue_of(Delivery& delivery) {
    if constexpr (requires { delivery.new_queue(); }) {
      return delivery.new_queue();
    } else {
      return Queue();
    }
  }

  Queue queue_;
  run_queue ready_;
  traffic counted_;
  detail::under_way flights_;
  std::array<fifo<receipt>, table_size> receipts_;
  std::array<fifo<letter>, table_size + channels> unexpected_;  // then one for each channel
  fifo<receipt> any_receipts_;
  fifo<meet_operation> meetings_;
  detail::sleepers sleepers_;
  letter* lent_ = nullptr;  // to this rank, and not given back
  bool loans_revoked_ = false;
  bool leaves_ = false;  // and nothing had failed
  alignas(64) std::atomic<letter*> mailbox_{nullptr};
};

/// Delivery between threads: into the receiver's mailbox, at once.
class by_mailbox {
 public:
  static constexpr bool virtual_time = false;

  explicit by_mailbox(int) {}

  seconds now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  template <class Fabric, class Letter>
  void carry(Fabric& shared, Letter& out) {
    if (!shared.end(out.to).push_mail(out)) {
      shared.abort(out.unread());
      out.refused = true;
      shared.end(out.from).came_home(out);
    }
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// A rank is a thread.
using in_process = basic_in_process<inline_queue, by_mailbox>;

static_assert(transport_policy<in_process> && has_addressable_peers<in_process>);

/// Calls `body(world)` on `ranks` threads, each with its own end of one in-process transport, and
/// returns when all have. If a rank throws, the others end with its words, and the first exception
/// is thrown here.
template <class Transport = in_process, class Body>
void run_ranks(int ranks, Body body) {
  if (ranks < 1) {
    throw usage_error(sentence({"cannot run ", ranks, " ranks. Fix: use at least 1"}));
  }
  typename Transport::fabric shared(ranks);
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::exception_ptr first;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Transport& world = shared.end(rank);
      try {
        body(world);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!first) {
          first = std::current_exception();
          shared.abort(verdict_of(rank, first));
        }
      }
      world.leave();
    });
  }
  for (auto& each : threads) {
    each.join();
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace tutti::transport
