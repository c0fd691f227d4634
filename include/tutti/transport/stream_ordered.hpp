#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "tutti/base/error.hpp"
#include "tutti/base/fifo.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/operation.hpp"
#include "tutti/transport/staging.hpp"
#include "tutti/transport/stream_ordered/direct_or_carried.hpp"
#include "tutti/transport/stream_ordered/library.hpp"

namespace tutti::transport {

/// A transport of host memory, to carry start-up, decisions, diagnosis and failures.
template <class T>
concept host_transport =
    transport_policy<T> && std::same_as<typename T::queue_type, inline_queue> &&
    !has_virtual_time<T> &&
    requires(const T& constant) {
  { constant.failure() } -> std::same_as<const std::exception_ptr&>;
};

namespace detail {

/// One message of the group that is being assembled.
template <class Transport>
struct posting {
  posting() = default;
  posting(const posting&) = delete;
  posting& operator=(const posting&) = delete;
  ~posting() {
    if (group != nullptr) {
      group->withdraw(*this);
    }
  }

  posting* next{};
  Transport* group{};  // null: not begun yet, or already enqueued
  operation* owner{};
  int peer{};
  bool outgoing{};
  std::span<const std::byte> out{};
  std::span<std::byte> in{};
  void (*follow)(Transport&, posting&){};  // enqueues the work that follows the group
};

}  // namespace detail

/// Moves payloads through a library in the order of a stream. All else, which is small and lies in
/// host memory, goes through `Carrier`.
///
/// Messages that are begun before the first of them is awaited form one group, because a send that
/// both sides enqueue before their receive would wait for ever. Folds run on the stream right
/// behind their group, out of staging in the stream's memory. A message of no bytes does not
/// travel.
///
/// After a failure the stream runs to its end, with undefined bytes where messages were to be.
/// Cost of a message: the library's; a fold or a loan also takes staging of its size. Nothing is
/// allocated after the first step. Errors: communication_error, usage_error for a phantom (a length
/// without memory), and the library's own. One file, because a group is assembled, enqueued, folded
/// and given up by one state machine.
template <stream_library Library, host_transport Carrier>
class stream_ordered {
 public:
  using role = tutti::role::transport;
  using queue_type = typename Library::queue_type;
  using carrier_type = Carrier;
  static constexpr bool virtual_time = false;
  static constexpr bool completes_when_enqueued = true;

 private:
  using posting = detail::posting<stream_ordered>;
  friend posting;

 public:
  /// `carrier` must outlive this. The library is made with the carrier and `arguments`.
  template <class... Arguments>
  explicit stream_ordered(Carrier& carrier, Arguments&&... arguments)
      : carrier_(&carrier),
        library_(carrier, std::forward<Arguments>(arguments)...),
        staging_(library_.queue()) {}
  stream_ordered(const stream_ordered&) = delete;
  stream_ordered& operator=(const stream_ordered&) = delete;

  int rank() const { return carrier_->rank(); }
  int size() const { return carrier_->size(); }
  int host_of(int rank) const { return carrier_->host_of(rank); }
  queue_type& queue() { return library_.queue(); }
  run_queue& ready_coroutines() { return carrier_->ready_coroutines(); }
  seconds now() const { return carrier_->now(); }
  std::size_t in_flight() const { return carrier_->in_flight() + flights_.count(); }
  traffic counted() const {
    const traffic here = counted_.read();
    const traffic beside = carrier_->counted();
    return {here.bytes_sent + beside.bytes_sent, here.messages_sent + beside.messages_sent};
  }
  void leave() { tutti::leave(*carrier_); }
  bool is_a_process() const { return tutti::is_a_process(*carrier_); }
  bool single_threaded() const requires requires(const Carrier& carrier) {
    carrier.single_threaded();
  }
  { return carrier_->single_threaded(); }
  [[noreturn]] void abort_job(const std::string& sentence) const requires
      requires(const Carrier& carrier) {
    carrier.abort_job(sentence);
  }
  { carrier_->abort_job(sentence); }

  Library& library() { return library_; }

  // ---- operations

 private:
  /// An operation of the open group. Awaiting it enqueues every message that has begun, as one
  /// group.
  class grouped : public detail::operation {
   public:
    explicit grouped(stream_ordered& self) : operation(self.ready_coroutines(), 0), self_(&self) {}

    /// Counts one more message of this operation.
    void expect() { this->expect_half(); }

    bool await_ready() {
      self_->close_group();
      return operation::await_ready();
    }

   protected:
    stream_ordered* self_;
  };

  template <class Fold>
  struct folding : posting {
    explicit folding(Fold its_fold) : fold(its_fold) {}

    /// Receives copies where they belong, and the bytes of any other fold in staging.
    void begin(stream_ordered& self, grouped& its, int from, std::span<std::byte> memory) {
      if constexpr (std::same_as<Fold, copy_bytes>) {
        self.begin_receive(*this, its, from, memory);
      } else {
        into = memory;
        this->follow = [](stream_ordered& at, posting& which) {
          auto& mine = static_cast<folding&>(which);
          mine.fold(at.queue(), mine.into.data(), which.in.data(), which.in.size());
          at.staging_.give(which.in.data(), which.in.size());
        };
        self.begin_receive(*this, its, from, self.staged(memory.size()));
      }
    }

    Fold fold;
    std::span<std::byte> into{};
  };

 public:
  class send_operation : public grouped {
   public:
    send_operation(stream_ordered& self, int to, std::span<const std::byte> bytes) : grouped(self) {
      self.begin_send(out_, *this, to, bytes);
    }

   private:
    posting out_;
  };

  template <class Fold>
  class receive_operation : public grouped {
   public:
    receive_operation(stream_ordered& self, int from, std::span<std::byte> into, Fold fold)
        : grouped(self), in_(fold) {
      in_.begin(self, *this, from, into);
    }

   private:
    folding<Fold> in_;
  };

  template <class Fold>
  class exchange_operation : public grouped {
   public:
    exchange_operation(stream_ordered& self, int to, std::span<const std::byte> out, int from,
                       std::span<std::byte> into, Fold fold)
        : grouped(self), in_(fold) {
      self.begin_send(out_, *this, to, out);
      in_.begin(self, *this, from, into);
    }

   private:
    posting out_;
    folding<Fold> in_;
  };

  class all_reduce_operation : public grouped {
   public:
    all_reduce_operation(stream_ordered& self, std::span<float> data) : grouped(self) {
      self.begin_all_reduce(*this, data);
    }
  };

 private:
  using bytes_in = std::span<std::byte>;
  using bytes_out = std::span<const std::byte>;
  using carried_send = decltype(std::declval<Carrier&>().send(0, tag{}, bytes_out{}));
  using carried_receive = decltype(std::declval<Carrier&>().receive(0, tag{}, bytes_in{}));
  using carried_loan_operation =
      decltype(std::declval<Carrier&>().receive_loan(0, tag{}, std::size_t{}));
  using carried_loan = decltype(std::declval<carried_loan_operation&>().await_resume());

 public:
  /// Received bytes. They lie in staging, for work on the queue until the loan is destroyed, or in
  /// host memory if the carrier brought them.
  class loan {
   public:
    loan(stream_ordered& self, std::span<std::byte> staged, int peer, tag where)
        : self_(&self), staged_(staged), peer_(peer), where_(where) {}
    explicit loan(carried_loan&& lent) : carried_(std::move(lent)) {}
    loan(loan&& other) noexcept
        : self_(std::exchange(other.self_, nullptr)),
          staged_(other.staged_),
          peer_(other.peer_),
          where_(other.where_),
          carried_(std::move(other.carried_)) {}
    loan& operator=(loan&&) = delete;
    ~loan() {
      if (self_ != nullptr) {
        self_->give_back(staged_);
      }
    }

    std::span<const std::byte> bytes() const { return carried_ ? carried_->bytes() : staged_; }
    int peer() const { return carried_ ? carried_->peer() : peer_; }
    tag where() const { return carried_ ? carried_->where() : where_; }

   private:
    stream_ordered* self_ = nullptr;
    std::span<std::byte> staged_{};
    int peer_ = 0;
    tag where_{};
    std::optional<carried_loan> carried_{};
  };

  class loan_operation : public grouped {
   public:
    loan_operation(stream_ordered& self, int from, tag where, std::size_t bytes)
        : grouped(self), where_(where), staged_(self.staged(bytes)) {
      in_.peer = from;
      self.begin_receive(in_, *this, from, staged_);
    }
    ~loan_operation() {
      if (!lent_) {
        this->self_->give_back(staged_);
      }
    }
    loan await_resume() {
      detail::operation::await_resume();
      lent_ = true;
      return loan(*this->self_, staged_, in_.peer, where_);
    }

   private:
    tag where_;
    std::span<std::byte> staged_;
    bool lent_ = false;
    posting in_{};
  };

  auto send(int to, tag where, std::span<const std::byte> bytes) {
    using either = detail::direct_or_carried<send_operation, carried_send>;
    return where.channel == channel::data
               ? either([&] { return send_operation(*this, to, bytes); })
               : either([&] { return carrier_->send(to, where, bytes); });
  }
  auto receive(int from, tag where, std::span<std::byte> into) {
    using either = detail::direct_or_carried<receive_operation<copy_bytes>, carried_receive>;
    return where.channel == channel::data
               ? either([&] { return receive_operation<copy_bytes>(*this, from, into, {}); })
               : either([&] { return carrier_->receive(from, where, into); });
  }
  auto receive_loan(int from, tag where, std::size_t bytes) {
    using either = detail::direct_or_carried<loan_operation, carried_loan_operation>;
    return where.channel == channel::data
               ? either([&] { return loan_operation(*this, from, where, bytes); })
               : either([&] { return carrier_->receive_loan(from, where, bytes); });
  }
  /// The sender decides the size of the message: read it from the loan.
  auto receive_any(channel from_channel) {
    if (from_channel == channel::data) {
      throw usage_error(
          "messages on this transport's data channel carry no sender. Fix: receive from a rank by "
          "its number, or send on another channel");
    }
    return carrier_->receive_any(from_channel);
  }
  template <class Fold>
  auto receive_fold(int from, tag where, std::span<std::byte> into, Fold fold) {
    expect_data(where);
    return receive_operation<Fold>(*this, from, into, fold);
  }
  auto exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                tag where) {
    expect_data(where);
    return exchange_operation<copy_bytes>(*this, to, out, from, into, copy_bytes{});
  }
  template <class Fold>
  auto exchange_fold(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                     tag where, Fold fold) {
    expect_data(where);
    return exchange_operation<Fold>(*this, to, out, from, into, fold);
  }
  /// The library's own sum, in place. It is counted as the bytes that a ring would send.
  auto all_reduce(tag where, std::span<float> data) {
    expect_data(where);
    return all_reduce_operation(*this, data);
  }
  auto sleep(seconds duration) { return carrier_->sleep(duration); }

  // ---- progress

  /// Call it between resumptions, never from inside a coroutine.
  bool poll() {
    bool progress = carrier_->poll();
    if (flights_.failed()) {
      return release_the_failed() || progress;
    }
    if (carrier_->failure()) {
      fail(carrier_->failure());
      return true;
    }
    if (!open_.empty()) {  // begun by a coroutine that then awaited something else
      close_group();
      progress = true;
    }
    if (complaint_.empty() && ++polls_ % polls_a_look == 0) {
      complaint_ = library_.failure();
      troubled_.store(!complaint_.empty(), std::memory_order_release);
    }
    return progress;
  }

  seconds idle(std::size_t idle_polls, urgency who = urgency::waited_for) const {
    return carrier_->idle(idle_polls, who);
  }

  /// Ends this rank's part, and what the library has on the stream. Coroutines resume, with the
  /// exception, when `in_flight()` is 0; keep polling until then.
  void fail(std::exception_ptr why) {
    if (flights_.failed()) {
      return;
    }
    flights_.begin();  // for everything that is with the carrier
    flights_.fail(why);
    library_.abort();
    carrier_->fail(std::move(why));
    troubled_.store(true, std::memory_order_release);
    while (posting* each = open_.pop()) {
      each->group = nullptr;
      flights_.end(*each->owner);
    }
    release_the_failed();
  }

  /// Ends every rank's part, with this sentence, at its next poll. The first sentence stays.
  void abort(const std::string& reason) { carrier_->abort(reason); }

  /// Why this rank's part has ended; null while it has not.
  const std::exception_ptr& failure() const { return flights_.failure(); }
  /// What the library has found out by itself about its peers; empty if nothing. Which rank is to
  /// blame is for the ranks to find out.
  const std::string& complaint() const { return complaint_; }
  /// Whether `failure` or `complaint` has something to say. Any thread may ask; the other two are
  /// for the thread that polls.
  bool troubled() const { return troubled_.load(std::memory_order_acquire); }

 private:
  static constexpr std::size_t polls_a_look = 64;

  static void expect_data(tag where) {
    if (where.channel != channel::data) {
      throw usage_error(
          "pairs, folds and sums work only on the data channel. Fix: use send and receive_loan for "
          "data in host memory");
    }
  }
  static void expect_memory(std::span<const std::byte> bytes) {
    if (bytes.data() == nullptr && !bytes.empty()) {
      throw usage_error("a device cannot send phantoms. Fix: give the tensors memory, or simulate");
    }
  }

  std::span<std::byte> staged(std::size_t bytes) {
    return {bytes == 0 ? nullptr : staging_.take(bytes), bytes};
  }
  void give_back(std::span<std::byte> staged) {
    if (!staged.empty()) {
      staging_.give(staged.data(), staged.size());
    }
  }

  void begin_send(posting& fresh, grouped& owner, int to, std::span<const std::byte> bytes) {
    expect_memory(bytes);
    fresh.outgoing = true;
    fresh.out = bytes;
    fresh.peer = to;
    if (!flights_.failed()) {
      counted_.add(bytes.size());
    }
    begin(fresh, owner, bytes.empty());
  }
  void begin_receive(posting& fresh, grouped& owner, int from, std::span<std::byte> bytes) {
    expect_memory(bytes);
    fresh.in = bytes;
    fresh.peer = from;
    begin(fresh, owner, bytes.empty());
  }
  void begin(posting& fresh, grouped& owner, bool nothing_to_move) {
    fresh.owner = &owner;
    if (flights_.failed()) {
      owner.expect();
      flights_.park(owner);
    } else if (!nothing_to_move) {
      owner.expect();
      flights_.begin();
      fresh.group = this;
      open_.push(fresh);
    }
  }

  void begin_all_reduce(grouped& owner, std::span<float> data) {
    expect_memory(std::as_bytes(data));
    close_group();
    if (!flights_.failed() && !data.empty()) {
      const auto peers = static_cast<std::uint64_t>(size() - 1);
      counted_.add(2 * peers * data.size_bytes() / static_cast<std::uint64_t>(size()), 2 * peers);
      guarded([&] { library_.all_reduce(data); });
    }
    if (flights_.failed()) {
      owner.expect();
      flights_.park(owner);
    }
  }

  /// Takes a message out of the group: the coroutine that began it ended without awaiting it.
  void withdraw(posting& begun) {
    open_.take([&](const posting& each) { return &each == &begun; });
    begun.group = nullptr;
    flights_.end(*begun.owner);
  }

  void close_group() {
    if (open_.empty() || flights_.failed()) {
      return;
    }
    guarded([this] {
      library_.begin_group();
      for (posting* each = open_.front(); each != nullptr; each = each->next) {
        if (each->outgoing) {
          library_.send(each->out, each->peer);
        } else {
          library_.receive(each->in, each->peer);
        }
      }
      library_.end_group();
    });
    while (posting* each = open_.pop()) {
      each->group = nullptr;
      if (each->follow != nullptr) {
        guarded([this, each] { each->follow(*this, *each); });
      }
      flights_.end(*each->owner);
    }
  }

  /// Enqueues work. If the library refuses it, every rank's part ends, since a rank that fails has
  /// no other way left to tell its peers.
  template <class Enqueue>
  void guarded(Enqueue enqueue) {
    try {
      enqueue();
    } catch (...) {
      const auto why = std::current_exception();
      carrier_->abort(verdict_of(rank(), why));
      fail(why);
    }
  }

  /// After a failure, resumes the coroutines once the carrier has nothing in flight, since a
  /// coroutine that unwinds frees the memory of its messages. Returns true if it did.
  bool release_the_failed() {
    if (released_ || carrier_->in_flight() != 0) {
      return false;
    }
    released_ = true;
    flights_.end();
    return true;
  }

  Carrier* carrier_;
  Library library_;
  detail::staging<queue_type> staging_;
  traffic_counter counted_;
  detail::under_way flights_;
  fifo<posting> open_;
  std::string complaint_;
  std::atomic<bool> troubled_{false};
  std::size_t polls_ = 0;
  bool released_ = false;
};

}  // namespace tutti::transport
