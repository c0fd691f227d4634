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
#include <optional>
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

namespace tutti::transport {

namespace detail {

/// What a coroutine awaits: it goes on when `pending` halves have completed.
class operation {
 public:
  operation(run_queue& queue, int halves) : queue_(&queue), pending_(halves) {}
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;
  ~operation() {
    TUTTI_ASSERT(pending_ == 0, "a coroutine was destroyed while its operation was in flight");
  }

  bool await_ready() const noexcept { return pending_ == 0; }
  void await_suspend(std::coroutine_handle<> waiter) noexcept { waiter_ = waiter; }

  void complete() {
    if (--pending_ == 0 && waiter_) {
      queue_->push(waiter_);
    }
  }
  void complete(std::exception_ptr failure) {
    failure_ = std::move(failure);
    complete();
  }

 protected:
  void rethrow() const {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  run_queue* queue_;
  std::coroutine_handle<> waiter_ = nullptr;
  int pending_;
  std::exception_ptr failure_ = nullptr;
};

/// A send on its way: it lies in the sender's frame, is read by the receiver, and goes home.
template <class Mark>
struct letter {
  letter* next{};
  int from{};
  tag where{};
  std::span<const std::byte> bytes{};
  Mark mark{};  // out: the bytes are valid after it; home: the reader is done after it
  bool home{};
  std::exception_ptr refused{};
  operation* owner{};
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
  letter_type* lent{};
};

inline constexpr int any_rank = -1;

/// One cache line for each rank, in two copies: the next meeting may begin while slow ranks still
/// read this one, and the one after that only when all have left it.
struct alignas(64) meeting_line {
  std::atomic<std::uint64_t> generation{0};
  std::array<std::byte, 56> bytes{};
};

struct meeting {
  std::vector<meeting_line> lines;
  int ranks;

  explicit meeting(int its_ranks)
      : lines(2 * static_cast<std::size_t>(its_ranks)), ranks(its_ranks) {}
  meeting_line& line(std::uint64_t generation, int rank) {
    return lines[(generation & 1) * static_cast<std::size_t>(ranks) +
                 static_cast<std::size_t>(rank)];
  }
  bool complete(std::uint64_t generation) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (line(generation, rank).generation.load(std::memory_order_acquire) < generation) {
        return false;
      }
    }
    return true;
  }
};

/// The meetings of every (chunk, lane), made on first use; finding one takes no lock.
class meeting_places {
 public:
  explicit meeting_places(int ranks) : ranks_(ranks) {}
  meeting_places(const meeting_places&) = delete;
  meeting_places& operator=(const meeting_places&) = delete;
  ~meeting_places() {
    for (auto& each : blocks_) {
      delete each.load();
    }
  }

  meeting& at(tag where) {
    const std::size_t place = where.chunk * std::size_t{lanes_per_chunk} + where.lane;
    auto& slot = blocks_.at(place / block_size);
    block* found = slot.load(std::memory_order_acquire);
    if (found == nullptr) {
      auto fresh = std::make_unique<block>(ranks_);
      if (slot.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel)) {
        found = fresh.release();
      }
    }
    return found->meetings[place % block_size];
  }

 private:
  static constexpr std::size_t block_size = 64;
  struct block {
    std::vector<meeting> meetings;
    explicit block(int ranks) {
      meetings.reserve(block_size);
      for (std::size_t i = 0; i < block_size; ++i) {
        meetings.emplace_back(ranks);
      }
    }
  };

  int ranks_;
  std::array<std::atomic<block*>, 4096> blocks_{};
};

}  // namespace detail

/// Ranks in one process that hand over pointers and read each other's memory: a message is copied
/// once, by its receiver, and a loan not at all.
///
/// `Delivery` says when a letter reaches its receiver: `by_mailbox` is between threads, at once;
/// `simulated` keeps it for the time its link would take. `Queue` is the device that memory lives
/// on. Cost of a message: one atomic exchange each way.
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
        ends_.push_back(std::make_unique<basic_in_process>(*this, rank));
      }
    }

    int size() const { return static_cast<int>(ends_.size()); }
    basic_in_process& end(int rank) { return *ends_[static_cast<std::size_t>(rank)]; }
    Delivery& delivery() { return delivery_; }

    /// One rank cannot go on: every other learns why at its next poll. The first reason stays.
    void abort(const std::string& reason) {
      const std::scoped_lock lock(abort_mutex_);
      if (!aborted_.load(std::memory_order_relaxed)) {
        reason_ = std::make_exception_ptr(communication_error(reason));
        aborted_.store(true, std::memory_order_release);
      }
    }

   private:
    friend basic_in_process;
    detail::meeting_places places_;
    Delivery delivery_;
    std::vector<std::unique_ptr<basic_in_process>> ends_;
    std::atomic<bool> aborted_{false};
    std::mutex abort_mutex_;
    std::exception_ptr reason_;
  };

  basic_in_process(fabric& shared, int rank) : shared_(&shared), rank_(rank) {}
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
  std::size_t in_flight() const { return in_flight_; }

  // ---- operations

  class send_operation : public detail::operation {
   public:
    send_operation(basic_in_process& self, int to, tag where, std::span<const std::byte> bytes)
        : operation(self.ready_coroutines(), 1) {
      self.begin_send(out_, *this, to, where, bytes);
    }
    void await_resume() const { this->rethrow(); }

   private:
    letter out_;
  };

  template <class Fold>
  class folding_receipt : public receipt {
   public:
    explicit folding_receipt(Fold fold) : fold_(fold) {
      this->take = [](basic_in_process& self, receipt& which, letter& read) {
        self.queue_.wait(read.mark);
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
    void await_resume() const { this->rethrow(); }

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
    void await_resume() const { this->rethrow(); }

   private:
    letter out_;
    folding_receipt<Fold> in_;
  };

  /// A peer's bytes, to read until the loan is destroyed.
  class loan {
   public:
    loan(basic_in_process& self, letter& lent) : self_(&self), lent_(&lent) {}
    loan(loan&& other) noexcept : self_(other.self_), lent_(std::exchange(other.lent_, nullptr)) {}
    loan(const loan&) = delete;
    loan& operator=(const loan&) = delete;
    ~loan() {
      if (lent_ != nullptr) {
        self_->give_back(*lent_);
      }
    }

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
        which.lent = &lent;
      };
      self.begin_receive(in_, *this, from, where,
                         std::span<std::byte>(static_cast<std::byte*>(nullptr), bytes));
    }
    loan await_resume() const {
      this->rethrow();
      return loan(*self_, *in_.lent);
    }

   private:
    basic_in_process* self_;
    receipt in_;
  };

  class sleep_operation : public detail::operation {
   public:
    sleep_operation(basic_in_process& self, seconds duration)
        : operation(self.ready_coroutines(), 1), due(self.now() + duration) {
      if constexpr (virtual_time) {
        self.shared_->delivery_.at(due, *this);
      } else {
        self.sleepers_.push(*this);
      }
    }
    void await_resume() const { this->rethrow(); }

    sleep_operation* next{};
    seconds due;
  };

  /// What every rank showed.
  class meeting_view {
   public:
    meeting_view(detail::meeting& where, std::uint64_t generation)
        : where_(&where), generation_(generation) {}
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

  class meet_operation {
   public:
    meet_operation(basic_in_process& self, tag where, std::span<const std::byte> bytes)
        : self_(&self), where_(&self.shared_->places_.at(where)) {
      generation_ =
          1 + std::max(where_->line(0, self.rank_).generation.load(std::memory_order_relaxed),
                       where_->line(1, self.rank_).generation.load(std::memory_order_relaxed));
      auto& mine = where_->line(generation_, self.rank_);
      TUTTI_ASSERT(bytes.size() <= mine.bytes.size(), "a meeting shows at most 56 bytes");
      std::ranges::copy(bytes, mine.bytes.begin());
      mine.generation.store(generation_, std::memory_order_release);
    }
    meet_operation(const meet_operation&) = delete;
    meet_operation& operator=(const meet_operation&) = delete;

    /// Peers are usually a cache miss away, so look for a moment before going to sleep.
    bool await_ready() {
      const bool crowded = self_->crowded_;
      for (int glance = 0; glance < (crowded ? crowded_glances : glances); ++glance) {
        if (where_->complete(generation_)) {
          return true;
        }
        if (crowded) {
          std::this_thread::yield();
        } else {
          pause();
        }
      }
      return false;
    }
    void await_suspend(std::coroutine_handle<> waiter) {
      waiter_ = waiter;
      self_->meetings_.push(*this);
      ++self_->in_flight_;
    }
    meeting_view await_resume() const {
      if (failure_) {
        std::rethrow_exception(failure_);
      }
      return meeting_view(*where_, generation_);
    }

    bool complete() const { return where_->complete(generation_); }

    meet_operation* next{};

   private:
    friend basic_in_process;
    static constexpr int glances = 4000;
    static constexpr int crowded_glances = 4;

    basic_in_process* self_;
    detail::meeting* where_;
    std::uint64_t generation_{};
    std::coroutine_handle<> waiter_;
    std::exception_ptr failure_;
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
  auto sleep(seconds duration) { return sleep_operation(*this, duration); }
  auto meet(tag where,
            std::span<const std::byte> bytes) requires(std::same_as<Queue, inline_queue> &&
                                                       !virtual_time) {
    return meet_operation(*this, where, bytes);
  }

  // ---- progress

  bool poll() {
    bool progress = false;
    if constexpr (!virtual_time) {
      progress = open_mailbox();
      progress |= wake_sleepers();
      progress |= end_meetings();
    }
    if (shared_->aborted_.load(std::memory_order_acquire) && !failure_) {
      fail(shared_->reason_);
      progress = true;
    }
    return progress;
  }

  /// A moment of waiting after `idle` polls in a row that brought nothing: spin, yield, nap.
  void idle(std::size_t idle_polls) const {
    if (!crowded_ && idle_polls < 1000) {
      pause();
    } else if (idle_polls < 20000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  void fail(std::exception_ptr why) {
    if (failure_) {
      return;
    }
    failure_ = std::move(why);
    for (auto& each : receipts_) {
      while (receipt* waiting = each.pop()) {
        end(*waiting, failure_);
      }
    }
    while (receipt* waiting = any_receipts_.pop()) {
      end(*waiting, failure_);
    }
    for (auto& each : unexpected_) {
      while (letter* foreign = each.pop()) {
        refuse(*foreign, failure_);
      }
    }
    while (meet_operation* waiting = meetings_.pop()) {
      end(*waiting, failure_);
    }
    while (sleep_operation* waiting = sleepers_.pop()) {
      waiting->complete(failure_);
    }
  }

  /// This rank will not poll again: letters to it are refused from now on.
  void leave() {
    if (!failure_) {
      fail(std::make_exception_ptr(
          communication_error("rank " + std::to_string(rank_) + " has left")));
    }
    if constexpr (!virtual_time) {
      letter* last = mailbox_.exchange(closed(), std::memory_order_acq_rel);
      take_all(last == closed() ? nullptr : last);
    }
  }

  /// A letter has reached this rank. `Delivery` calls it on the thread that polls this rank.
  void deliver(letter& arrived) {
    if (failure_) {
      refuse(arrived, failure_);
      return;
    }
    auto& waiting = receipts_[slot(arrived.from, arrived.where)];
    receipt* match = waiting.take([&](const receipt& each) {
      return each.from == arrived.from && each.where == arrived.where;
    });
    if (match == nullptr) {
      match = any_receipts_.take(
          [&](const receipt& each) { return each.where.channel == arrived.where.channel; });
    }
    if (match != nullptr) {
      take(*match, arrived);
    } else {
      unexpected_[slot(arrived.from, arrived.where)].push(arrived);
    }
  }

 private:
  friend Delivery;
  static constexpr std::size_t table_size = 256;

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  static letter* closed() { return reinterpret_cast<letter*>(alignof(letter)); }
  static std::size_t slot(int from, tag where) {
    return (static_cast<std::size_t>(from) * 31 + where.chunk * 7 + where.lane +
            static_cast<std::size_t>(where.channel) * 101) %
           table_size;
  }

  void begin_send(letter& out, detail::operation& owner, int to, tag where,
                  std::span<const std::byte> bytes) {
    if (failure_) {
      owner.complete(failure_);
      return;
    }
    counted_.bytes_sent += bytes.size();
    ++counted_.messages_sent;
    out.from = rank_;
    out.where = where;
    out.bytes = bytes;
    out.mark = queue_.record();
    out.owner = &owner;
    ++in_flight_;
    shared_->delivery_.carry(*shared_, out, to);
  }

  void begin_receive(receipt& in, detail::operation& owner, int from, tag where,
                     std::span<std::byte> into) {
    if (failure_) {
      owner.complete(failure_);
      return;
    }
    in.from = from;
    in.where = where;
    in.into = into;
    in.owner = &owner;
    if constexpr (!virtual_time) {
      open_mailbox();
    }
    ++in_flight_;
    if (letter* early = take_unexpected(from, where)) {
      take(in, *early);
    } else if (from == detail::any_rank) {
      any_receipts_.push(in);
    } else {
      receipts_[slot(from, where)].push(in);
    }
  }

  letter* take_unexpected(int from, tag where) {
    if (from != detail::any_rank) {
      return unexpected_[slot(from, where)].take(
          [&](const letter& each) { return each.from == from && each.where == where; });
    }
    for (auto& each : unexpected_) {
      if (letter* found = each.take(
              [&](const letter& candidate) { return candidate.where.channel == where.channel; })) {
        return found;
      }
    }
    return nullptr;
  }

  void take(receipt& in, letter& from) {
    if (in.from != detail::any_rank && from.bytes.size() != in.into.size()) {
      const auto why = std::make_exception_ptr(communication_error(
          "rank " + std::to_string(from.from) + " sent " + std::to_string(from.bytes.size()) +
          " bytes of chunk " + std::to_string(from.where.chunk) + " where rank " +
          std::to_string(rank_) + " expects " + std::to_string(in.into.size())));
      refuse(from, why);
      end(in, why);
      return;
    }
    in.take(*this, in, from);
    --in_flight_;
    in.owner->complete();
  }

  void end(receipt& waiting, const std::exception_ptr& why) {
    --in_flight_;
    waiting.owner->complete(why);
  }
  void end(meet_operation& waiting, std::exception_ptr why) {
    --in_flight_;
    waiting.failure_ = std::move(why);
    ready_coroutines().push(waiting.waiter_);
  }

  void refuse(letter& foreign, std::exception_ptr why) {
    foreign.refused = std::move(why);
    give_back(foreign);
  }

  void give_back(letter& read) {
    read.mark = queue_.record();
    read.home = true;
    basic_in_process& sender = shared_->end(read.from);
    if constexpr (virtual_time) {
      sender.came_home(read);
    } else {
      if (&sender == this || !sender.push_mail(read)) {
        sender.came_home(read);
      }
    }
  }

  void came_home(letter& mine) {
    queue_.wait(mine.mark);
    --in_flight_;
    mine.owner->complete(std::move(mine.refused));
  }

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

  bool wake_sleepers() {
    bool any = false;
    while (!sleepers_.empty()) {
      const seconds time = now();
      sleep_operation* due =
          sleepers_.take([&](const sleep_operation& each) { return each.due <= time; });
      if (due == nullptr) {
        break;
      }
      due->complete();
      any = true;
    }
    return any;
  }

  bool end_meetings() {
    bool any = false;
    while (meet_operation* met =
               meetings_.take([](const meet_operation& each) { return each.complete(); })) {
      --in_flight_;
      ready_coroutines().push(met->waiter_);
      any = true;
    }
    return any;
  }

  fabric* shared_;
  int rank_;
  bool crowded_ = static_cast<unsigned>(size()) > std::thread::hardware_concurrency();
  Queue queue_{};
  run_queue ready_;
  traffic counted_;
  std::size_t in_flight_ = 0;
  std::exception_ptr failure_;
  std::array<fifo<receipt>, table_size> receipts_;
  std::array<fifo<letter>, table_size> unexpected_;
  fifo<receipt> any_receipts_;
  fifo<meet_operation> meetings_;
  fifo<sleep_operation> sleepers_;
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
  void carry(Fabric& shared, Letter& out, int to) {
    auto& receiver = shared.end(to);
    if (!receiver.push_mail(out)) {
      out.refused =
          std::make_exception_ptr(communication_error("rank " + std::to_string(to) + " has left"));
      shared.end(out.from).came_home(out);
    }
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// A rank is a thread.
using in_process = basic_in_process<inline_queue, by_mailbox>;

/// Calls `body(world)` on `ranks` threads, each with its own end of one in-process transport, and
/// returns when all have. If a rank throws, the others end with its words, and the first exception
/// is thrown here.
template <class Transport = in_process, class Body>
void run_ranks(int ranks, Body body) {
  if (ranks < 1) {
    throw usage_error("cannot run " + std::to_string(ranks) + " ranks. Fix: use at least 1");
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
          shared.abort("rank " + std::to_string(rank) + " failed: " + what(first));
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
