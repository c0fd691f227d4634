#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <concepts>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iterator>
#include <list>
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#include <span>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/fifo.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/source_place.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/operation.hpp"
#include "tutti/transport/patience.hpp"
#include "tutti/transport/segments.hpp"
#include "tutti/transport/staging.hpp"

namespace tutti::transport {

/// MPI refused a call.
class mpi_error : public communication_error {
 public:
  mpi_error(int code, source_place where)
      : communication_error(
            sentence({text(code), " (MPI error ", code, " at ", where.file, ":", where.line, ")"})),
        code_(code) {}

  int code() const { return code_; }

  /// MPI's own words for `code`.
  static std::string text(int code) {
    std::array<char, MPI_MAX_ERROR_STRING + 1> words{};
    int length = 0;
    MPI_Error_string(code, words.data(), &length);
    return words.data();
  }

 private:
  int code_;
};

inline void check(int code, source_place where = source_place::current()) {
  if (code != MPI_SUCCESS) {
    throw mpi_error(code, where);
  }
}

/// Prints the sentence and ends every process of the job: for when a peer is dead and what was sent
/// to it can never come home.
[[noreturn]] inline void abort_job(const std::string& sentence) {
  std::fprintf(stderr, "tutti: %s\n", sentence.c_str());
  std::fflush(nullptr);
  std::signal(SIGALRM, SIG_DFL);
  alarm(5);  // MPI_Abort itself has been seen to hang on a peer that is being finalised
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

namespace detail {

/// Starts MPI if nobody has, and ends it if it was the one.
class mpi_session {
 public:
  mpi_session() {
    int running = 0;
    check(MPI_Initialized(&running));
    if (running == 0) {
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level_));
      ours_ = true;
    } else {
      check(MPI_Query_thread(&level_));
    }
  }
  mpi_session(const mpi_session&) = delete;
  mpi_session& operator=(const mpi_session&) = delete;
  ~mpi_session() {
    if (ours_) {
      MPI_Finalize();  // a destructor has nobody to tell
    }
  }

  int level() const { return level_; }
  bool ours() const { return ours_; }
  /// The job is lost: ending MPI would wait for the dead.
  void abandon() { ours_ = false; }

 private:
  int level_ = MPI_THREAD_SINGLE;
  bool ours_ = false;
};

/// A communicator of our own with the user's ranks, whose errors come back as codes.
class mpi_communicator {
 public:
  explicit mpi_communicator(MPI_Comm like) {
    check(MPI_Comm_dup(like, &handle_));
    check(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN));
  }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;
  ~mpi_communicator() {
    if (handle_ != MPI_COMM_NULL) {
      MPI_Comm_free(&handle_);
    }
  }

  MPI_Comm get() const { return handle_; }
  void abandon() { handle_ = MPI_COMM_NULL; }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
};

}  // namespace detail

/// How MPI gets at a device's memory: by itself, or by way of the host's.
enum class device_path { direct, staged };

/// Direct where MPI says at run time that it takes a device's addresses (CUDA-aware), otherwise
/// staged.
inline device_path supported_device_path() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1 ? device_path::direct : device_path::staged;
#else
  return device_path::staged;
#endif
}

/// Ranks are MPI processes whose gradients lie where `Queue` works: `mpi` on the host,
/// `mpi_on<cuda::stream>` on the device that is current where it is made. Channels are
/// communicators of its own, so that a wildcard never takes another channel's message and nothing
/// meets the user's messages.
///
/// Long messages of the data channel travel in pieces, so that folding the first overlaps the wire.
/// A device's memory is sent when its queue has come so far, and received in the queue's order; the
/// host waits for neither. Staged, each piece is copied to memory that both reach (pinned) and sent
/// from there, while folds read there what has come; the next piece is copied meanwhile. Memory
/// that the queue does not reach is the host's and travels at once.
///
/// Cost of a message: MPI's, one staging buffer where it is folded or lent; of a device's memory,
/// staged, a copy over its bus at each end besides; after warm-up nothing is allocated. Errors:
/// communication_error when ranks disagree or one has failed, mpi_error when MPI refuses to start.
/// Every payload needs memory: MPI moves no phantoms.
template <device_queue Queue>
class mpi_on {
  static constexpr bool on_device = has_own_memory<Queue>;

 public:
  using role = tutti::role::transport;
  using queue_type = Queue;
  static constexpr bool virtual_time = false;
  static constexpr bool sends_what_is_written = on_device;

  /// All processes of the job. Starts MPI, and ends it in the destructor, if nobody has started it.
  mpi_on() : mpi_on(borrowed::no, MPI_COMM_WORLD, supported_device_path()) {}
  /// The processes of the user's communicator, which is duplicated. Collective.
  explicit mpi_on(MPI_Comm users) : mpi_on(borrowed::yes, users, supported_device_path()) {}
  /// The same, whatever MPI says of itself.
  mpi_on(MPI_Comm users, device_path path) requires on_device : mpi_on(borrowed::yes, users, path) {
  }
  mpi_on(const mpi_on&) = delete;
  mpi_on& operator=(const mpi_on&) = delete;
  ~mpi_on() { depart(); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  Queue& queue() { return queue_; }
  run_queue& ready_coroutines() { return ready_; }
  traffic counted() const { return counted_; }
  std::size_t in_flight() const { return flights_.count(); }
  /// Why this rank's part has ended; null while it has not.
  const std::exception_ptr& failure() const { return flights_.failure(); }
  seconds now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  /// MPI_THREAD_SINGLE … MPI_THREAD_MULTIPLE, as MPI granted it.
  int thread_level() const { return session_.level(); }
  /// Progress may only be made on the thread that calls: no progress thread.
  bool single_threaded() const {
    return thread_level() < (borrowed_ ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED);
  }
  /// The communicator of the data channel.
  MPI_Comm native_handle() const { return communicators_[0].get(); }
  /// As the free function: for an engine whose peer is dead.
  [[noreturn]] void abort_job(const std::string& sentence) const { transport::abort_job(sentence); }

 private:
  /// One direction of one message: its pieces, those posted and those under way.
  struct course {
    course* next{};
    detail::operation* owner{};
    tag where{};
    int peer{};
    int mpi_tag{};
    bool outgoing{};
    bool listed{};   // among those with pieces yet to post
    bool blocked{};  // behind another of the same peer and tag
    bool failed{};
    bool often_done_at_once{};
    bool in_order{};    // MPI gets at its memory when the queue has come so far
    std::byte* data{};  // null: each piece is received in staging, and folded from there
    detail::segments cut{};
    std::size_t posted{};
    std::size_t flying{};   // posted, and not over
    std::size_t waiting{};  // of those, for the queue
    void (*fold_piece)(mpi_on&, course&, detail::segments::piece, const std::byte*){};
    void (*all_here)(mpi_on&, course&){};

    bool precedes(const course& other) const {
      return peer == other.peer && where == other.where && outgoing == other.outgoing;
    }
  };

  template <class Fold>
  class receiving : public course {
   public:
    /// Copies land where they belong, folds that can work piecewise fold each piece as it comes.
    receiving(mpi_on& self, std::span<std::byte> into, Fold fold) : into_(into), fold_(fold) {
      if (std::same_as<Fold, copy_bytes> && !self.stages(into)) {
        this->data = into.data();
        this->in_order = self.is_the_queues(into);
      } else if constexpr (piecewise_fold<Fold>) {
        this->fold_piece = [](mpi_on& end, course& which, detail::segments::piece piece,
                              const std::byte* from) {
          auto& mine = static_cast<receiving&>(which);
          mine.fold_(end.queue_, mine.into_.data() + piece.offset, from, piece.size);
        };
      } else {
        this->data = self.pieces_.take(into.size());
        this->all_here = [](mpi_on& end, course& which) {
          auto& mine = static_cast<receiving&>(which);
          if (!mine.failed) {
            mine.fold_(end.queue_, mine.into_.data(), mine.data, mine.into_.size());
          }
          end.pieces_.give(mine.data, mine.into_.size(), end.queue_.record());
        };
      }
    }
    std::span<std::byte> into() const { return into_; }

   private:
    std::span<std::byte> into_;
    Fold fold_;
  };

 public:
  // ---- operations

  class send_operation : public detail::operation {
   public:
    send_operation(mpi_on& self, int to, tag where, std::span<const std::byte> bytes)
        : operation(self.ready_, 1) {
      self.begin_send(out_, *this, to, where, bytes);
    }

   private:
    course out_;
  };

  template <class Fold>
  class receive_operation : public detail::operation {
   public:
    receive_operation(mpi_on& self, int from, tag where, std::span<std::byte> into, Fold fold)
        : operation(self.ready_, 1), in_(self, into, fold) {
      self.begin_receive(in_, *this, from, where, into.size());
    }

   private:
    receiving<Fold> in_;
  };

  template <class Fold>
  class exchange_operation : public detail::operation {
   public:
    exchange_operation(mpi_on& self, int to, std::span<const std::byte> out, int from,
                       std::span<std::byte> into, tag where, Fold fold)
        : operation(self.ready_, 2), in_(self, into, fold) {
      self.begin_receive(in_, *this, from, where, into.size());
      self.begin_send(out_, *this, to, where, out);
    }

   private:
    course out_;
    receiving<Fold> in_;
  };

  /// Received bytes, for the host and for work on the queue until the loan is destroyed.
  class loan {
   public:
    loan(mpi_on& self, std::byte* bytes, std::size_t size, int peer, tag where)
        : self_(&self), bytes_(bytes), size_(size), peer_(peer), where_(where) {}
    loan(loan&& other) noexcept
        : self_(other.self_),
          bytes_(std::exchange(other.bytes_, nullptr)),
          size_(other.size_),
          peer_(other.peer_),
          where_(other.where_) {}
    loan& operator=(loan&&) = delete;
    ~loan() {
      if (bytes_ != nullptr) {
        self_->loans_.give(bytes_, size_, self_->queue_.record());
      }
    }

    std::span<const std::byte> bytes() const { return {bytes_, size_}; }
    int peer() const { return peer_; }
    tag where() const { return where_; }

   private:
    mpi_on* self_;
    std::byte* bytes_;
    std::size_t size_;
    int peer_;
    tag where_;
  };

  class loan_operation : public detail::operation {
   public:
    loan_operation(mpi_on& self, int from, tag where, std::size_t bytes)
        : operation(self.ready_, 1), self_(&self) {
      in_.data = self.loans_.take(bytes);
      self.begin_receive(in_, *this, from, where, bytes);
    }
    explicit loan_operation(mpi_on& self, channel from_channel)
        : operation(self.ready_, 1), self_(&self) {
      self.begin_receive_any(in_, *this, from_channel);
    }
    ~loan_operation() {
      if (in_.data != nullptr) {
        self_->loans_.give(in_.data, in_.cut.bytes());
      }
    }
    loan await_resume() {
      operation::await_resume();
      return loan(*self_, std::exchange(in_.data, nullptr), in_.cut.bytes(), in_.peer, in_.where);
    }

   private:
    mpi_on* self_;
    course in_;
  };

  class all_reduce_operation : public detail::operation {
   public:
    all_reduce_operation(mpi_on& self, tag where, std::span<float> data)
        : operation(self.ready_, 1) {
      self.begin_all_reduce(in_, *this, where, data);
    }

   private:
    course in_;
  };

  auto send(int to, tag where, std::span<const std::byte> bytes) {
    return send_operation(*this, to, valid(where, bytes), bytes);
  }
  auto receive(int from, tag where, std::span<std::byte> into) {
    return receive_operation<copy_bytes>(*this, from, valid(where, into), into, copy_bytes{});
  }
  template <class Fold>
  auto receive_fold(int from, tag where, std::span<std::byte> into, Fold fold) {
    return receive_operation<Fold>(*this, from, valid(where, into), into, fold);
  }
  auto receive_loan(int from, tag where, std::size_t bytes) {
    return loan_operation(*this, from, valid(where, {}), bytes);
  }
  /// The size of the message is the sender's: read it from the loan. Not on the data channel, whose
  /// messages may come in pieces.
  auto receive_any(channel from_channel) {
    if (from_channel == channel::data) {
      throw usage_error(
          "MPI ranks receive from anybody on every channel but the data channel. Fix: receive from "
          "a rank by its number, or send on another channel");
    }
    return loan_operation(*this, from_channel);
  }
  auto exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                tag where) {
    valid(where, out);
    return exchange_operation<copy_bytes>(*this, to, out, from, into, valid(where, into),
                                          copy_bytes{});
  }
  template <class Fold>
  auto exchange_fold(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                     tag where, Fold fold) {
    valid(where, out);
    return exchange_operation<Fold>(*this, to, out, from, into, valid(where, into), fold);
  }
  auto sleep(seconds duration) {
    return detail::sleep_operation(
        ready_, flights_, now() + duration,
        [this](detail::sleep_operation& fresh) { sleepers_.add(fresh); });
  }
  /// MPI's own sum, in place. Every rank starts them in the same order. Counted as the bytes that a
  /// ring would send. After a failure it cannot be called back: see `poll`.
  auto all_reduce(tag where, std::span<float> data) requires(!on_device) {
    if (data.size() > INT_MAX) {
      throw usage_error("MPI adds at most 2^31 numbers at once. Fix: cut smaller chunks");
    }
    return all_reduce_operation(*this, valid(where, std::as_bytes(data)), data);
  }

  // ---- progress

  /// Call it between resumptions, never from inside a coroutine.
  ///
  /// After a failure it receives and drops what peers still send, so that their sends end. Native
  /// all-reduces that some rank never joined do not end: a second after all else has, this rank
  /// falls silent for good, calls MPI no more, and lets their coroutines go.
  bool poll() {
    if (silent_) {
      return false;
    }
    bool progress = test_requests();
    progress |= hand_over_what_is_written();
    for (auto& each : any_waiting_) {
      progress |= !each.empty() && probe(each);
    }
    progress |= !sleepers_.empty() && sleepers_.wake(now(), flights_);
    if (!aborted_.empty() && !flights_.failed()) {
      fail(std::make_exception_ptr(communication_error(aborted_)));
      progress = true;
    }
    if (flights_.failed()) {
      drain();
    }
    return progress;
  }

  /// A moment of waiting after `idle_polls` polls in a row that brought nothing.
  void idle(std::size_t idle_polls) const { patience_.idle(idle_polls); }

  /// Ends this rank's part: receives are cancelled and fail with `why`, new operations are refused,
  /// and peers that send here fail too. Coroutines go on, with the exception, when `in_flight()` is
  /// 0; keep polling. Call it between resumptions, never from inside a coroutine.
  void fail(std::exception_ptr why) {
    if (flights_.failed()) {
      return;
    }
    flights_.fail(std::move(why));
    failed_at_ = now();
    for (const awaited& each : std::exchange(awaited_, {})) {
      take_back(each.which);
      give_back(each.which, each.until);
    }
    while (course* each = unposted_.pop()) {
      each->failed = true;
      each->listed = false;
      if (each->flying == 0) {
        finish(*each);
      }
    }
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      course* each = entries_[i].owner;
      if (each != nullptr && each->owner != nullptr) {
        each->failed = true;
        if (!each->outgoing) {
          MPI_Cancel(&requests_[i]);  // refused if it has matched: then it just completes
        }
      }
    }
    for (auto& channel : any_waiting_) {
      while (course* each = channel.pop()) {
        flights_.end(*each->owner);
      }
    }
    sleepers_.fail(flights_);
    flights_.settle();
  }

  /// Ends every rank's part, with this sentence, at its next poll. The first sentence stays.
  void abort(const std::string& reason) {
    if (!aborted_.empty()) {
      return;
    }
    aborted_ = reason.substr(0, notice_bytes);
    for (int peer = 0; peer < size_; ++peer) {
      MPI_Request sent = MPI_REQUEST_NULL;
      if (peer != rank_ && MPI_Isend(aborted_.data(), static_cast<int>(aborted_.size()), MPI_CHAR,
                                     peer, 0, notices_.get(), &sent) == MPI_SUCCESS) {
        MPI_Request_free(&sent);  // short, so it has left already; aborted_ stays as it is
      }
    }
  }

 private:
  enum class borrowed { no, yes };
  struct entry {
    course* owner;
    std::size_t piece;
    std::byte* staged;
  };
  /// Until the queue has come so far.
  struct awaited {
    entry which;
    typename Queue::mark until;
  };
  struct unwanted {
    std::vector<std::byte> bytes;
    MPI_Request request;
  };
  /// Pieces of one course under way at once: enough to keep the wire busy, few enough that their
  /// staging stays in cache.
  static constexpr std::size_t window = 3;
  static constexpr std::size_t notice_bytes = 1024;
  static constexpr std::size_t eager_bytes = 4096;
  static constexpr seconds patience_with_the_dead = 5;

  mpi_on(borrowed whose, MPI_Comm users, device_path path)
      : path_(path),
        borrowed_(whose == borrowed::yes),
        communicators_{detail::mpi_communicator(users), detail::mpi_communicator(users),
                       detail::mpi_communicator(users), detail::mpi_communicator(users)},
        notices_(users),
        rank_(rank_in(users)),
        size_(size_of(users)),
        tag_limit_(tag_limit(native_handle())),
        patience_(ranks_on_this_host(users)) {
    requests_.reserve(1024);
    entries_.reserve(1024);
    landed_.reserve(1024);
    notice_.resize(notice_bytes);
    MPI_Request listening = MPI_REQUEST_NULL;
    check(MPI_Irecv(notice_.data(), notice_bytes, MPI_CHAR, MPI_ANY_SOURCE, 0, notices_.get(),
                    &listening));
    enter(listening, entry{nullptr, 0, nullptr});
  }

  static int rank_in(MPI_Comm all) {
    int rank = 0;
    check(MPI_Comm_rank(all, &rank));
    return rank;
  }
  static int size_of(MPI_Comm all) {
    int size = 0;
    check(MPI_Comm_size(all, &size));
    return size;
  }
  static int ranks_on_this_host(MPI_Comm all) {
    MPI_Comm here = MPI_COMM_NULL;
    check(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here));
    const int ranks = size_of(here);
    check(MPI_Comm_free(&here));
    return ranks;
  }
  static std::uint64_t tag_limit(MPI_Comm own) {
    int* limit = nullptr;
    int known = 0;
    check(MPI_Comm_get_attr(own, MPI_TAG_UB, &limit, &known));
    return known != 0 ? static_cast<std::uint64_t>(*limit) : 32767;
  }

  static std::uint64_t wide_tag(tag where) {
    return std::uint64_t{where.chunk} * lanes_per_chunk + where.lane;
  }
  tag valid(tag where, std::span<const std::byte> bytes) const {
    if (wide_tag(where) > tag_limit_) {
      throw usage_error(sentence({"chunk ", where.chunk, " is beyond MPI's greatest tag, ",
                                  tag_limit_, ". Fix: cut fewer chunks"}));
    }
    if (where.channel != channel::data && bytes.size() > INT_MAX) {
      throw usage_error("MPI's messages beside data are shorter than 2 GiB");
    }
    if (bytes.data() == nullptr && !bytes.empty()) {
      throw usage_error("MPI moves no phantoms. Fix: give the tensors memory, or simulate");
    }
    return where;
  }
  detail::segments cut(tag where, std::size_t bytes) const {
    return where.channel == channel::data ? detail::segments(bytes)
                                          : detail::segments::whole(bytes);
  }
  /// Its order is the queue's, and it may be a device's.
  bool is_the_queues([[maybe_unused]] std::span<const std::byte> memory) {
    if constexpr (on_device) {
      return queue_.reaches(memory.data());
    } else {
      return false;
    }
  }
  /// MPI cannot get at it.
  bool stages(std::span<const std::byte> memory) {
    return on_device && path_ == device_path::staged && is_the_queues(memory);
  }
  MPI_Comm communicator(channel of) const {
    return communicators_[static_cast<std::size_t>(of)].get();
  }

  void begin_send(course& out, detail::operation& owner, int to, tag where,
                  std::span<const std::byte> bytes) {
    out.outgoing = true;
    out.often_done_at_once = bytes.size() <= eager_bytes;
    out.in_order = is_the_queues(bytes);
    out.data = const_cast<std::byte*>(bytes.data());  // MPI reads it only
    if (begin(out, owner, to, where, cut(where, bytes.size()))) {
      counted_.bytes_sent += bytes.size();
      ++counted_.messages_sent;
      launch(out);
    }
  }
  void begin_receive(course& in, detail::operation& owner, int from, tag where, std::size_t bytes) {
    if (begin(in, owner, from, where, cut(where, bytes))) {
      launch(in);
    }
  }
  void begin_receive_any(course& in, detail::operation& owner, channel from_channel) {
    if (begin(in, owner, MPI_ANY_SOURCE, tag{from_channel, 0, 0}, {})) {
      any_waiting_[static_cast<std::size_t>(from_channel)].push(in);
    }
  }
  void begin_all_reduce(course& all, detail::operation& owner, tag where, std::span<float> data) {
    all.outgoing = true;  // nothing that could be cancelled
    if (!begin(all, owner, rank_, where, {})) {
      return;
    }
    const auto peers = static_cast<std::uint64_t>(size_ - 1);
    counted_.bytes_sent += 2 * peers * data.size_bytes() / static_cast<std::uint64_t>(size_);
    counted_.messages_sent += 2 * peers;
    ++collectives_;
    all.all_here = [](mpi_on& self, course&) { --self.collectives_; };
    all.posted = 1;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Iallreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()),
                                    MPI_FLOAT, MPI_SUM, native_handle(), &request);
    started(all, {&all, 0, nullptr}, request, code);
    if (all.flying == 0) {
      finish(all);
    }
  }

  bool begin(course& fresh, detail::operation& owner, int peer, tag where, detail::segments cut) {
    fresh.owner = &owner;
    fresh.peer = peer;
    fresh.where = where;
    fresh.mpi_tag = static_cast<int>(wide_tag(where));
    fresh.cut = cut;
    if (flights_.failed()) {
      fresh.failed = true;
      if (fresh.all_here != nullptr) {
        fresh.all_here(*this, fresh);
      }
      flights_.park(owner);
      return false;
    }
    flights_.begin();
    return true;
  }

  /// Messages of one peer and tag must not overtake: what has pieces left to post holds back what
  /// comes after it.
  void launch(course& fresh) {
    for (course* each = unposted_.front(); each != nullptr; each = each->next) {
      fresh.blocked |= each->precedes(fresh);
    }
    if (fresh.blocked) {
      fresh.listed = true;
      unposted_.push(fresh);
    } else {
      post_on(fresh);
    }
  }

  void post_on(course& which) {
    while (!which.failed && which.flying < window && which.posted < which.cut.count()) {
      post(which, which.posted++);
    }
    const bool more = which.waiting > 0 || (!which.failed && which.posted < which.cut.count());
    if (more && !which.listed) {
      which.listed = true;
      unposted_.push(which);
    } else if (!more && which.listed) {
      which.listed = false;
      unposted_.take([&](const course& each) { return &each == &which; });
      unblock_after(which);
    }
    if (which.flying == 0 && !more) {
      finish(which);
    }
  }

  void unblock_after(const course& done) {
    for (course* each = unposted_.front(); each != nullptr; each = each->next) {
      if (done.precedes(*each)) {
        each->blocked = false;
        post_on(*each);
        return;
      }
    }
  }

  void post(course& which, std::size_t index) {
    const bool through_host = which.in_order && path_ == device_path::staged;
    const bool folded = which.data == nullptr && which.fold_piece != nullptr;
    const entry posted{&which, index,
                       through_host || folded ? pieces_.take(which.cut.longest()) : nullptr};
    if (through_host) {
      queue_.copy(posted.staged, which.data + which.cut[index].offset, which.cut[index].size);
    }
    if (which.in_order) {
      ++which.flying;
      ++which.waiting;
      awaited_.push_back({posted, queue_.record()});
    } else {
      hand_over(posted);
    }
  }

  void hand_over(const entry& posted) {
    course& its = *posted.owner;
    const detail::segments::piece piece = its.cut[posted.piece];
    std::byte* at = posted.staged != nullptr ? posted.staged : its.data + piece.offset;
    const MPI_Comm where = communicator(its.where.channel);
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = its.outgoing ? MPI_Isend(at, static_cast<int>(piece.size), MPI_BYTE, its.peer,
                                              its.mpi_tag, where, &request)
                                  : MPI_Irecv(at, static_cast<int>(piece.size), MPI_BYTE, its.peer,
                                              its.mpi_tag, where, &request);
    started(its, posted, request, code);
  }

  /// Whatever waited for the queue goes on its way where that has come so far.
  bool hand_over_what_is_written() {
    const auto end = std::ranges::find_if_not(
        awaited_, [](const awaited& each) { return Queue::passed(each.until); });
    if (end == awaited_.begin()) {
      return false;
    }
    written_.assign(std::make_move_iterator(awaited_.begin()), std::make_move_iterator(end));
    awaited_.erase(awaited_.begin(), end);
    for (const awaited& each : written_) {
      course& its = take_back(each.which);
      if (its.failed) {
        give_back(each.which, {});
      } else {
        hand_over(each.which);
      }
      post_on(its);
    }
    written_.clear();
    return true;
  }

  /// A piece that has waited for the queue is not under way any more.
  static course& take_back(const entry& which) {
    --which.owner->flying;
    --which.owner->waiting;
    return *which.owner;
  }
  void give_back(const entry& which, typename Queue::mark until) {
    if (which.staged != nullptr) {
      pieces_.give(which.staged, which.owner->cut.longest(), std::move(until));
    }
  }

  void started(course& which, const entry& posted, MPI_Request request, int code) {
    int over = 0;
    if (code != MPI_SUCCESS) {
      refuse(which, mpi_error::text(code));
      over = 1;
    } else if (which.often_done_at_once) {
      MPI_Test(&request, &over, MPI_STATUS_IGNORE);
    }
    if (over != 0) {
      give_back(posted, {});
      return;
    }
    ++which.flying;
    enter(request, posted);
  }

  void enter(MPI_Request request, const entry& posted) {
    requests_.push_back(request);
    entries_.push_back(posted);
    if (indices_.size() < requests_.size()) {
      indices_.resize(requests_.capacity());
      statuses_.resize(requests_.capacity());
    }
  }

  bool test_requests() {
    int done = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &done,
                                  indices_.data(), statuses_.data());
    if (done == 0 || done == MPI_UNDEFINED) {
      return false;
    }
    landed_.clear();
    for (std::size_t i = 0; i < static_cast<std::size_t>(done); ++i) {
      if (code != MPI_ERR_IN_STATUS) {
        statuses_[i].MPI_ERROR = MPI_SUCCESS;
      }
      landed_.push_back({entries_[static_cast<std::size_t>(indices_[i])], statuses_[i]});
    }
    strike_out_completed();
    for (const auto& each : landed_) {
      land(each.which, each.status);
    }
    return true;
  }

  void strike_out_completed() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] != MPI_REQUEST_NULL) {
        requests_[kept] = requests_[i];
        entries_[kept++] = entries_[i];
      }
    }
    requests_.resize(kept);
    entries_.resize(kept);
  }

  void land(const entry& which, const MPI_Status& status) {
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (which.owner == nullptr) {
      if (aborted_.empty()) {
        aborted_.assign(notice_.data(), static_cast<std::size_t>(bytes));
      }
      return;
    }
    course& its = *which.owner;
    --its.flying;
    if (!its.failed) {
      judge(its, which, status.MPI_ERROR, static_cast<std::size_t>(bytes));
    }
    give_back(which, its.outgoing ? typename Queue::mark{} : queue_.record());
    post_on(its);
  }

  void judge(course& its, const entry& which, int code, std::size_t bytes) {
    const detail::segments::piece piece = its.cut[which.piece];
    if (code != MPI_SUCCESS && code != MPI_ERR_TRUNCATE) {
      refuse(its, mpi_error::text(code));
    } else if (!its.outgoing && (code == MPI_ERR_TRUNCATE || bytes != piece.size)) {
      refuse(its, disagreement(its, which.piece, bytes));
    } else if (its.fold_piece != nullptr) {
      its.fold_piece(*this, its, piece, which.staged);
    }
  }

  /// A piece of another length than this rank's cut says: what the sender's size must have been.
  std::string disagreement(const course& in, std::size_t index, std::size_t came) const {
    std::string sent = "another number of";
    if (index == 0) {
      const bool first_of_many =
          came >= detail::segments::whole_limit && in.where.channel == channel::data;
      sent = sentence({first_of_many ? "at least " : "", came});
    } else if (index + 1 == in.cut.count()) {
      sent = sentence({in.cut[index].offset + came});
    }
    return sentence({"rank ", in.peer, " sent ", sent, " bytes of chunk ", in.where.chunk,
                     " where rank ", rank_, " expects ", in.cut.bytes()});
  }

  /// Nobody can go on, of which every rank learns at its next poll.
  void refuse(course& its, const std::string& reason) {
    its.failed = true;
    abort(reason);
  }

  void finish(course& its) {
    if (its.all_here != nullptr) {
      its.all_here(*this, its);
    }
    if (its.failed) {
      flights_.end_refused(*its.owner);
    } else {
      flights_.end(*its.owner);
    }
  }

  /// A message for whoever waits for one from anybody.
  bool probe(fifo<course>& waiting) {
    const channel on = waiting.front()->where.channel;
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator(on), &found, &message, &status));
    if (found == 0) {
      return false;
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    course& in = *waiting.pop();
    in.peer = status.MPI_SOURCE;
    in.where.chunk = static_cast<std::uint32_t>(status.MPI_TAG) / lanes_per_chunk;
    in.where.lane = static_cast<std::uint32_t>(status.MPI_TAG) % lanes_per_chunk;
    in.cut = detail::segments::whole(static_cast<std::size_t>(bytes));
    in.data = loans_.take(in.cut.bytes());
    in.often_done_at_once = in.cut.bytes() <= eager_bytes;
    in.posted = 1;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Imrecv(in.data, bytes, MPI_BYTE, &message, &request);
    started(in, {&in, 0, nullptr}, request, code);
    if (in.flying == 0) {
      finish(in);
    }
    return true;
  }

  /// After a failure: takes what peers sent, so that it goes home, and tells them.
  void drain() {
    for (const auto& each : communicators_) {
      int found = 1;
      while (found != 0) {
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, each.get(), &found, &message, &status);
        if (found != 0) {
          int bytes = 0;
          MPI_Get_count(&status, MPI_BYTE, &bytes);
          auto& fresh = unwanted_.emplace_back();
          fresh.bytes.resize(static_cast<std::size_t>(bytes));
          MPI_Imrecv(fresh.bytes.data(), bytes, MPI_BYTE, &message, &fresh.request);
          abort(verdict_of(rank_, flights_.failure()));
        }
      }
    }
    unwanted_.remove_if([](unwanted& each) {
      int done = 0;
      MPI_Test(&each.request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    });
    if (collectives_ > 0 && flights_.count() == collectives_ && now() > failed_at_ + 1) {
      fall_silent();
    }
  }

  void fall_silent() {
    silent_ = true;
    for (const entry& each : std::exchange(entries_, {})) {
      if (each.owner != nullptr) {
        each.owner->failed = true;
        finish(*each.owner);
      }
    }
    requests_.clear();
    flights_.settle();
  }

  /// Leaves together where that is possible: after a failure peers may still have sends to this
  /// rank, and one that is dead must not hold the living.
  void depart() {
    if (std::uncaught_exceptions() > exceptions_at_birth_) {
      abort(sentence({"rank ", rank_, " ended with an exception"}));
    }
    if (!aborted_.empty()) {
      fail(std::make_exception_ptr(communication_error(aborted_)));
    }
    if (flights_.failed() && !all_departed()) {
      session_.abandon();
      notices_.abandon();
      for (auto& each : communicators_) {
        each.abandon();
      }
      return;
    }
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (entries_[i].owner == nullptr) {
        MPI_Cancel(&requests_[i]);
        MPI_Wait(&requests_[i], MPI_STATUS_IGNORE);
      }
    }
  }

  bool all_departed() {
    MPI_Request departed = MPI_REQUEST_NULL;
    if (silent_ || MPI_Ibarrier(notices_.get(), &departed) != MPI_SUCCESS) {
      return false;
    }
    const seconds deadline = now() + patience_with_the_dead;
    int done = 0;
    for (std::size_t polls = 0; done == 0 && !silent_ && now() < deadline; ++polls) {
      test_requests();
      drain();
      MPI_Test(&departed, &done, MPI_STATUS_IGNORE);
      idle(polls);
    }
    return done != 0 && unwanted_.empty();
  }

  device_path path_;
  bool borrowed_;
  int exceptions_at_birth_ = std::uncaught_exceptions();
  detail::mpi_session session_;
  std::array<detail::mpi_communicator, channels> communicators_;
  detail::mpi_communicator notices_;
  int rank_;
  int size_;
  std::uint64_t tag_limit_;
  detail::patience patience_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();

  Queue queue_;
  run_queue ready_;
  traffic counted_;
  detail::under_way flights_;
  detail::staging<Queue> loans_{queue_, detail::place::shared};
  /// Where MPI gets at the queue's memory, folds read there what has come.
  detail::staging<Queue> pieces_{
      queue_, path_ == device_path::direct ? detail::place::own : detail::place::shared};
  detail::sleepers sleepers_;
  std::array<fifo<course>, channels> any_waiting_;
  fifo<course> unposted_;
  std::vector<awaited> awaited_;
  std::vector<awaited> written_;

  // One row of these for each request; never shrunk.
  struct landing {
    entry which;
    MPI_Status status;
  };
  std::vector<MPI_Request> requests_;
  std::vector<entry> entries_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<landing> landed_;

  std::string aborted_;
  std::string notice_;
  seconds failed_at_ = 0;
  std::list<unwanted> unwanted_;
  std::size_t collectives_ = 0;
  bool silent_ = false;
};

/// Ranks are MPI processes that train on the host.
using mpi = mpi_on<inline_queue>;

static_assert(transport_policy<mpi> && has_all_reduce<mpi>);

}  // namespace tutti::transport
