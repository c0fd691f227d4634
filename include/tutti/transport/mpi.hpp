#pragma once

#include <algorithm>
#include <climits>
#include <concepts>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/backoff.hpp"
#include "tutti/transport/mpi/host_memory.hpp"
#include "tutti/transport/mpi/library.hpp"
#include "tutti/transport/mpi/session.hpp"
#include "tutti/transport/mpi/transfer.hpp"
#include "tutti/transport/mpi/transfers.hpp"
#include "tutti/transport/operation.hpp"
#include "tutti/transport/rendezvous.hpp"

namespace tutti::transport {

/// Ranks are MPI processes whose gradients lie in the memory of `Queue`: the host's for `mpi`, and
/// for `mpi_on<cuda::stream>` that of the device that is current when it is made. Each channel has
/// a communicator of its own, so that a wildcard never takes another channel's message and nothing
/// matches the user's messages.
///
/// Long messages of the data channel travel in pieces (segments.hpp), so that folding the first
/// ones overlaps the wire. Inside a host three pieces travel at once. Between hosts all do, or four
/// long ones if they are staged. Four megabytes of each message between hosts travel in short
/// pieces, which MPI sends without asking the receiver first, and buffers where the receiver has
/// not begun to receive. Between hosts, a message that is pushed to a rank that serves (the service
/// channel) travels in short pieces only. While it is on its way it holds up no other sender's
/// messages.
///
/// While nothing is due from this host and something long is due from another, a rank that waits
/// naps, because the kernel needs the core.
///
/// A device's memory is sent when its queue has written it, and received in the queue's order; the
/// host waits for neither. Where it is staged, each piece is copied to memory that host and device
/// both reach (pinned) and sent from there, while the next piece is copied; folds read received
/// pieces there. Memory that the queue does not reach is the host's and is sent at once.
///
/// Processes that all live on one host may share memory (has_host_memory).
///
/// Cost of a message: MPI's, and one staging buffer if it is folded or lent. Staged device memory
/// is also copied over the device's bus at each end. After warm-up nothing is allocated. Errors:
/// communication_error when ranks disagree or one has failed, mpi_error when MPI refuses to start,
/// usage_error for a phantom (a length without memory), which MPI cannot send.
template <device_queue Queue>
class mpi_on {
  static constexpr bool on_device = has_own_memory<Queue>;
  using transfers = detail::mpi_transfers<Queue>;
  using transfer = typename transfers::transfer;

 public:
  using role = tutti::role::transport;
  using queue_type = Queue;
  static constexpr bool virtual_time = false;
  static constexpr bool sends_what_is_written = on_device;

  /// Takes all processes of the job. Starts MPI if it is not running; the last transport to be
  /// destroyed then ends it.
  mpi_on() : mpi_on(MPI_COMM_WORLD) {}
  /// Takes the processes of the user's communicator, which is duplicated. Collective.
  explicit mpi_on(MPI_Comm users) : mpi_on(supported_device_path(), users) {}
  /// Lets `hosts` decide which ranks share a host, whatever MPI says: those with the same number.
  mpi_on(MPI_Comm users, std::vector<int> hosts, device_path path = supported_device_path())
      : mpi_on(path, users, std::move(hosts)) {}
  /// Reaches memory of devices by `path`, whatever MPI says of itself.
  mpi_on(MPI_Comm users, device_path path) requires on_device : mpi_on(path, users) {}
  mpi_on(const mpi_on&) = delete;
  mpi_on& operator=(const mpi_on&) = delete;
  /// After a failure, ends together with the other ranks if that is possible, since peers may still
  /// have sends to this rank. If the user has finalized MPI, calls it no more.
  ~mpi_on() {
    if (detail::mpi_session::has_ended()) {
      world_.let_go();
      return;
    }
    if (std::uncaught_exceptions() > exceptions_at_birth_) {
      abort(sentence({"rank ", rank(), " ended with an exception"}));
    }
    if (!transfers_.aborted().empty()) {
      fail(std::make_exception_ptr(communication_error(transfers_.aborted())));
    }
    if (failure() &&
        !transfers_.all_departed(departure_time, [this](auto polls) { rest(*this, polls); })) {
      world_.abandon();
    } else {
      transfers_.stop_listening();
    }
  }

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  int host_of(int rank) const { return world_.host_of(rank); }
  Queue& queue() { return transfers_.queue(); }
  run_queue& ready_coroutines() { return transfers_.ready_coroutines(); }
  traffic counted() const { return transfers_.counted(); }
  std::size_t in_flight() const { return transfers_.in_flight(); }
  /// Why this rank's part has ended; null while it has not.
  const std::exception_ptr& failure() const { return transfers_.failure(); }
  seconds now() const { return transfers_.now(); }

  bool is_a_process() const { return true; }
  /// The thread level that MPI granted: MPI_THREAD_SINGLE … MPI_THREAD_MULTIPLE.
  int thread_level() const { return world_.session().level(); }
  /// Whether progress may be made only on the thread that calls, so that there is no progress
  /// thread. A user who has started MPI may call it at any time, which takes a higher thread level.
  bool single_threaded() const {
    return thread_level() < (world_.session().ours() ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE);
  }
  /// The communicator of the data channel.
  MPI_Comm native_handle() const { return world_.communicator(channel::data); }
  /// Prints the sentence and ends every process of the job, for an engine whose peer is dead.
  [[noreturn]] void abort_job(const std::string& sentence) const { transport::abort_job(sentence); }

  // ---- operations

  class send_operation : public detail::operation {
   public:
    send_operation(transfers& self, int to, tag where, std::span<const std::byte> bytes)
        : operation(self.ready_coroutines(), 1) {
      self.begin_send(out_, *this, to, where, bytes);
    }

   private:
    transfer out_;
  };

  template <class Fold>
  class receive_operation : public detail::operation {
   public:
    receive_operation(transfers& self, int from, tag where, std::span<std::byte> into, Fold fold)
        : operation(self.ready_coroutines(), 1), in_(self, into, fold) {
      self.begin_receive(in_, *this, from, where, into.size());
    }

   private:
    detail::folding_transfer<transfers, Fold> in_;
  };

  template <class Fold>
  class exchange_operation : public detail::operation {
   public:
    exchange_operation(transfers& self, int to, std::span<const std::byte> out, int from,
                       std::span<std::byte> into, tag where, Fold fold)
        : operation(self.ready_coroutines(), 2), in_(self, into, fold) {
      self.begin_exchange(out_, in_, *this, to, out, from, into.size(), where);
    }

   private:
    transfer out_;
    detail::folding_transfer<transfers, Fold> in_;
  };

  /// Received bytes, which the host and work on the queue may read until the loan is destroyed.
  class loan {
   public:
    loan(transfers& self, std::byte* bytes, std::size_t room, std::size_t size, int peer, tag where)
        : self_(&self), bytes_(bytes), room_(room), size_(size), peer_(peer), where_(where) {}
    loan(loan&& other) noexcept
        : self_(other.self_),
          bytes_(std::exchange(other.bytes_, nullptr)),
          room_(other.room_),
          size_(other.size_),
          peer_(other.peer_),
          where_(other.where_) {}
    loan& operator=(loan&&) = delete;
    ~loan() {
      if (bytes_ != nullptr) {
        self_->loans().give(bytes_, room_, self_->so_far());
      }
    }

    std::span<const std::byte> bytes() const { return {bytes_, size_}; }
    int peer() const { return peer_; }
    tag where() const { return where_; }

   private:
    transfers* self_;
    std::byte* bytes_;
    std::size_t room_;
    std::size_t size_;
    int peer_;
    tag where_;
  };

  class loan_operation : public detail::operation {
   public:
    loan_operation(transfers& self, int from, tag where, std::size_t bytes)
        : operation(self.ready_coroutines(), 1), self_(&self) {
      in_.failed = !self.queue_accepts([&] { self.lend(in_, bytes); });
      in_.lends = true;
      self.begin_receive(in_, *this, from, where, bytes);
    }
    explicit loan_operation(transfers& self, channel from_channel)
        : operation(self.ready_coroutines(), 1), self_(&self) {
      self.begin_receive_any(in_, *this, from_channel);
    }
    ~loan_operation() {
      if (in_.data != nullptr) {
        self_->loans().give(in_.data, in_.room);
      }
    }
    loan await_resume() {
      operation::await_resume();
      return loan(*self_, std::exchange(in_.data, nullptr), in_.room, in_.cut.bytes(), in_.peer,
                  in_.where);
    }

   private:
    transfers* self_;
    transfer in_;
  };

  class all_reduce_operation : public detail::operation {
   public:
    all_reduce_operation(transfers& self, tag where, std::span<float> data)
        : operation(self.ready_coroutines(), 1) {
      self.begin_all_reduce(in_, *this, where, data);
    }

   private:
    transfer in_;
  };

  auto send(int to, tag where, std::span<const std::byte> bytes) {
    return send_operation(transfers_, to, transfers_.valid(where, bytes), bytes);
  }
  auto receive(int from, tag where, std::span<std::byte> into) {
    return receive_operation<copy_bytes>(transfers_, from, transfers_.valid(where, into), into,
                                         copy_bytes{});
  }
  template <class Fold>
  auto receive_fold(int from, tag where, std::span<std::byte> into, Fold fold) {
    return receive_operation<Fold>(transfers_, from, transfers_.valid(where, into), into, fold);
  }
  auto receive_loan(int from, tag where, std::size_t bytes) {
    return loan_operation(transfers_, from, transfers_.valid(where, {}), bytes);
  }
  /// The sender decides the size of the message: read it from the loan. Throws usage_error for the
  /// data channel, whose messages may come in pieces.
  auto receive_any(channel from_channel) {
    if (from_channel == channel::data) {
      throw usage_error(
          "over MPI, messages on the data channel cannot be received from just any peer. Fix: "
          "receive from a rank by its number, or send on another channel");
    }
    return loan_operation(transfers_, from_channel);
  }
  auto exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                tag where) {
    transfers_.valid(where, out);
    return exchange_operation<copy_bytes>(transfers_, to, out, from, into,
                                          transfers_.valid(where, into), copy_bytes{});
  }
  template <class Fold>
  auto exchange_fold(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                     tag where, Fold fold) {
    transfers_.valid(where, out);
    return exchange_operation<Fold>(transfers_, to, out, from, into, transfers_.valid(where, into),
                                    fold);
  }
  auto sleep(seconds duration) { return transfers_.sleep(duration); }
  /// MPI's own sum, in place. Every rank must start them in the same order. It is counted as the
  /// bytes that a ring would send. After a failure it cannot be cancelled: see `poll`.
  auto all_reduce(tag where, std::span<float> data) requires(!on_device) {
    if (data.size() > INT_MAX) {
      throw usage_error(
          "MPI adds at most 2^31 - 1 numbers at once, and a chunk has more. Fix: cut smaller "
          "chunks");
    }
    return all_reduce_operation(transfers_, transfers_.valid(where, std::as_bytes(data)), data);
  }

  // ---- memory that the host's processes share

  /// Returns zeros that every process of the host reaches as long as this transport lives, for the
  /// gradients of an arena, which collectives then add up in place. If ranks are on several hosts,
  /// or MPI cannot share that much, the memory is this process's own. Collective; call it before an
  /// engine is made. The process keeps the memory to its end. Cost: MPI_Win_allocate_shared's.
  /// After a failure peers may still write there for a moment.
  std::span<float> allocate_shared(std::size_t elements) requires(!on_device) {
    const auto bytes = world_.memory().allocate(elements * sizeof(float));
    return {reinterpret_cast<float*>(bytes.data()), elements};
  }
  /// Whether there is a rendezvous on `where`. All ranks get the same answer.
  bool may_rendezvous_at(tag where) const requires(!on_device) {
    return world_.memory().may_rendezvous_at(where);
  }
  /// Shows up to 56 bytes to every rank and completes when all have shown theirs.
  auto rendezvous(tag where, std::span<const std::byte> bytes) requires(!on_device) {
    if (!may_rendezvous_at(where)) {
      throw usage_error(sentence({"a rendezvous is not possible on chunk ", where.chunk, ", lane ",
                                  where.lane, ". Fix: check may_rendezvous_at first"}));
    }
    return detail::rendezvous_operation<transfers>(transfers_, transfers_.valid(where, bytes),
                                                   bytes);
  }
  /// Where this rank's bytes lie in shared memory; block 0 if they lie elsewhere.
  shared_place place_of(std::span<const std::byte> bytes) const requires(!on_device) {
    return world_.memory().place_of(bytes);
  }
  /// The address at which this process sees a place of `rank`.
  std::byte* at(int rank, shared_place where) const requires(!on_device) {
    return world_.memory().at(rank, where);
  }

  // ---- progress

  /// Makes progress, and returns true if there was any. Call it between resumptions, never from
  /// inside a coroutine.
  ///
  /// After a failure it receives and drops what peers still send, so that their sends complete.
  /// Native all-reduces that some rank never joined do not complete: once they are all that is
  /// left, and a second after the failure at the earliest, this rank calls MPI no more and lets
  /// their coroutines go.
  bool poll() { return transfers_.poll(); }

  seconds idle(std::size_t idle_polls, urgency who = urgency::waited_for) const {
    const seconds affordable = transfers_.nap(who);
    // A model on a device does not want the core, so nothing is gained by a longer nap.
    const urgency whose = on_device ? urgency::waited_for : who;
    const seconds nap = affordable > 0 ? affordable : backoff_.idle(idle_polls, whose);
    return nap > 0 ? transfers_.until_sleepers_are_due(nap) : 0;
  }

  /// Ends this rank's part: receives are cancelled and fail with `why`, new operations are refused,
  /// and peers that send here fail, too. If ranks share memory, every rank's part ends. Coroutines
  /// resume, with the exception, when `in_flight()` is 0; keep polling until then. Call it between
  /// resumptions, never from inside a coroutine.
  void fail(std::exception_ptr why) { transfers_.fail(std::move(why)); }

  /// Ends every rank's part, with this sentence, at its next poll. The first sentence stays.
  void abort(const std::string& reason) { transfers_.abort(reason); }

 private:
  /// How long ranks that are alive wait for dead ones at the end, in all transports together.
  static constexpr seconds departure_time = 5;

  mpi_on(device_path path, MPI_Comm users, std::vector<int> hosts = {})
      : world_(users, std::move(hosts)),
        backoff_(ranks_here(world_)),
        transfers_(path, world_, backoff_) {}

  int exceptions_at_birth_ = std::uncaught_exceptions();
  detail::mpi_world world_;
  detail::backoff backoff_;
  transfers transfers_;
};

/// Ranks are MPI processes that train on the host.
using mpi = mpi_on<inline_queue>;

static_assert(transport_policy<mpi> && has_all_reduce<mpi> && has_host_memory<mpi>);

}  // namespace tutti::transport
