#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <nccl.h>
#include <span>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/function_ref.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/source_place.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/stream_ordered.hpp"

namespace tutti::transport {

/// NCCL refused a call, or work that it does in the background has failed.
class nccl_error : public communication_error {
 public:
  nccl_error(ncclResult_t code, source_place where)
      : communication_error(
            sentence({ncclGetErrorString(code), " (NCCL error ", static_cast<int>(code), " at ",
                      where.file, ":", where.line, ")", fix(code)})),
        code_(code) {}

  ncclResult_t code() const { return code_; }

  /// What helps, if that is known; otherwise empty.
  static std::string fix(ncclResult_t code) {
    switch (code) {
      case ncclUnhandledCudaError:
      case ncclSystemError:
      case ncclInvalidUsage:
        return ". Fix: set NCCL_DEBUG=WARN to see which call failed and why";
      default:
        return "";
    }
  }

 private:
  ncclResult_t code_;
};

inline void check(ncclResult_t code, source_place where = source_place::current()) {
  if (code != ncclSuccess) {
    throw nccl_error(code, where);
  }
}

/// One rank's NCCL communicator, either owned or the user's.
///
/// An owned communicator is made by all ranks together, on the current device, and does not block:
/// the host waits for calls that take longer, until a deadline. If peers are lost the communicator
/// is aborted, which ends its kernels, even if it is the user's, who must not use it any more.
class nccl_communicator {
 public:
  /// Collective. Throws nccl_error, or communication_error if the others do not come in time. While
  /// it waits it calls `meanwhile` again and again, which may throw if it hears that they will not
  /// come.
  nccl_communicator(
      const ncclUniqueId& common, int rank, int ranks, seconds deadline,
      function_ref<void()> meanwhile = [] {})
      : deadline_(deadline), owned_(true) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      check(settled(ncclCommInitRankConfig(&handle_, ranks, common, rank, &config), meanwhile));
    } catch (...) {
      abort();
      throw;
    }
  }
  nccl_communicator(const nccl_communicator&) = delete;
  nccl_communicator& operator=(const nccl_communicator&) = delete;
  nccl_communicator(nccl_communicator&& other) noexcept { swap(other); }
  nccl_communicator& operator=(nccl_communicator&& other) noexcept {
    swap(other);
    return *this;
  }
  /// Aborts what does not finish in time, since a lost peer must not hold up the end. Errors are
  /// dropped: a destructor has no one to tell.
  ~nccl_communicator() {
    if (handle_ == nullptr || !owned_) {
      return;
    }
    try {
      if (settled(ncclCommFinalize(handle_)) == ncclSuccess) {
        static_cast<void>(ncclCommDestroy(handle_));
        return;
      }
    } catch (const communication_error&) {
    }
    abort();
  }

  /// Wraps the user's communicator, which remains the user's and must outlive this. A call that
  /// throws communication_error has aborted it: then no one may destroy it.
  static nccl_communicator from_native_handle(ncclComm_t users, seconds deadline = 60) {
    nccl_communicator made(deadline);
    made.handle_ = users;
    return made;
  }
  /// Hands the communicator over to the caller, who destroys it.
  ncclComm_t release() {
    owned_ = false;
    return handle_;
  }
  /// Null once aborted.
  ncclComm_t native_handle() const { return handle_; }
  /// How long the host waits for a call that NCCL has in progress.
  seconds deadline() const { return deadline_; }

  int rank() const {
    int number = 0;
    check(ncclCommUserRank(handle_, &number));
    return number;
  }
  int size() const {
    int ranks = 0;
    check(ncclCommCount(handle_, &ranks));
    return ranks;
  }

  /// Returns the result of a call that may still be in progress, such as one that connects two
  /// ranks first. Throws communication_error at the deadline.
  ncclResult_t settled(
      ncclResult_t code, function_ref<void()> meanwhile = [] {}) const {
    const auto begin = std::chrono::steady_clock::now();
    while (code == ncclInProgress) {
      if (ncclCommGetAsyncError(handle_, &code) != ncclSuccess) {
        return ncclInternalError;
      }
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      if (waited.count() > deadline_) {
        throw communication_error(
            sentence({"NCCL has not connected all ranks within ", std::to_string(deadline_),
                      " s. Fix: set NCCL_DEBUG=INFO to see which ranks it waits for"}));
      }
      meanwhile();
      std::this_thread::yield();
    }
    return code;
  }

  /// What NCCL has found out by itself; empty if nothing.
  std::string failure() const {
    ncclResult_t found = ncclSuccess;
    if (handle_ == nullptr || ncclCommGetAsyncError(handle_, &found) != ncclSuccess ||
        found == ncclSuccess || found == ncclInProgress) {
      return {};
    }
    return sentence({"NCCL: ", ncclGetErrorString(found)});
  }

  /// Aborts the communicator, which ends its kernels. It cannot be used afterwards.
  void abort() noexcept {
    if (handle_ != nullptr) {
      static_cast<void>(ncclCommAbort(std::exchange(handle_, nullptr)));
    }
  }

 private:
  explicit nccl_communicator(seconds deadline) : deadline_(deadline) {}

  void swap(nccl_communicator& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(deadline_, other.deadline_);
    std::swap(owned_, other.owned_);
  }

  ncclComm_t handle_ = nullptr;
  seconds deadline_ = 60;
  bool owned_ = false;
};

namespace detail {

/// What each rank tells rank 0 before they make a communicator; of fixed size.
struct nccl_peer {
  std::int32_t version{};
  std::array<char, 64> device{};  // its PCI bus address
  std::array<char, 192> host{};
};

/// Rank 0's answer: how to connect, or why the ranks cannot.
struct nccl_invitation {
  ncclUniqueId common{};
  std::array<char, 320> why{};
};

/// Returns what NCCL tells hosts apart by: NCCL_HOSTID if it is set, otherwise the host's name and
/// boot id.
inline std::string nccl_host() {
  if (const char* users = std::getenv("NCCL_HOSTID")) {
    return users;
  }
  std::array<char, 128> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return name.data() + (" " + boot);
}

inline nccl_peer nccl_peer_of_this_rank() {
  nccl_peer peer;
  int version = 0;
  check(ncclGetVersion(&version));
  peer.version = version;
  int device = 0;
  cuda::check(cudaGetDevice(&device));
  cuda::check(
      cudaDeviceGetPCIBusId(peer.device.data(), static_cast<int>(peer.device.size()) - 1, device));
  nccl_host().copy(peer.host.data(), peer.host.size() - 1);
  return peer;
}

inline std::string spelt_nccl_version(std::int32_t code) {
  return sentence({code / 10000, ".", code / 100 % 100, ".", code % 100});
}

/// Why these ranks cannot make a communicator; empty if they can.
inline std::string nccl_obstacle(std::span<const nccl_peer> all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].version != all[0].version) {
      return sentence({"rank 0 runs NCCL ", spelt_nccl_version(all[0].version), " and rank ", rank,
                       " NCCL ", spelt_nccl_version(all[rank].version),
                       ". Fix: install one version everywhere"});
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (all[rank].device == all[other].device && all[rank].host == all[other].host) {
        return sentence(
            {"ranks ", other, " and ", rank, " share the device ", all[rank].device.data(),
             ", which NCCL refuses. Fix: give each rank its own device, or, where processes "
             "must share one, give each process its own NCCL_HOSTID"});
      }
    }
  }
  return {};
}

template <class T>
std::span<const std::byte> shown(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// The value of `awaited` in a rank that knows that rank 0 has come: rank 0 will say which other
/// rank is missing.
inline constexpr int nobody = -1;

/// Sends every rank's `mine` to rank 0, which acknowledges each, and rank 0's answer to every rank.
/// `awaited` is always the rank that this one waits for, or `nobody`.
template <class Carrier>
task bootstrap_nccl(Carrier& carrier, const nccl_peer& mine, nccl_invitation& answer,
                    int& awaited) {
  const endpoint<Carrier> self(carrier, tag{channel::host, 0, 0});
  if (self.rank() != 0) {
    co_await self.send(0, shown(mine));
    co_await self.receive(0, {});
    awaited = nobody;
    const auto mail = co_await self.receive_loan(0, sizeof answer);
    std::memcpy(&answer, mail.bytes().data(), sizeof answer);
    co_return;
  }
  std::vector<nccl_peer> all(static_cast<std::size_t>(self.size()), mine);
  std::vector<char> has_come(all.size());
  for (int others = 1; others < self.size(); ++others) {
    awaited =
        static_cast<int>(std::find(has_come.begin() + 1, has_come.end(), 0) - has_come.begin());
    int peer = 0;
    {
      const auto mail = co_await carrier.receive_any(channel::host);
      peer = mail.peer();
      std::memcpy(&all[static_cast<std::size_t>(peer)], mail.bytes().data(), sizeof mine);
    }
    has_come[static_cast<std::size_t>(peer)] = 1;
    co_await self.send(peer, {});
  }
  const std::string why = nccl_obstacle(all);
  why.copy(answer.why.data(), answer.why.size() - 1);
  if (why.empty()) {
    check(ncclGetUniqueId(&answer.common));
  }
  for (int rank = 1; rank < self.size(); ++rank) {
    awaited = rank;
    co_await self.send(rank, shown(answer));
  }
}

/// Throws the failure of the other ranks if the carrier has heard of one: they will not come any
/// more.
template <class Carrier>
void expect_others(Carrier& carrier) {
  carrier.poll();
  if (const std::exception_ptr why = carrier.failure()) {
    std::rethrow_exception(why);
  }
}

/// Drives a carrier until `asking` has ended. At the deadline it fails on every rank. A rank that
/// knows that rank 0 has come starts the deadline anew then, and adds a grace time in which rank 0
/// can name the rank that is missing. Rank 0 may read what this rank has sent until it answers; if
/// it never answers, the job ends.
template <class Carrier>
void complete(Carrier& carrier, task& asking, const int& awaited, seconds deadline) {
  asking.start(carrier.ready_coroutines());
  const seconds grace = std::min(deadline, settle_time);
  seconds end = carrier.now() + deadline;
  bool may_be_late = true;
  for (std::size_t idle = 0; !asking.done();) {
    const bool resumed = carrier.ready_coroutines().drain() != 0;
    if (!carrier.poll() && !resumed) {
      rest(carrier, idle++);
    }
    if (awaited == nobody && std::exchange(may_be_late, false)) {
      end = carrier.now() + deadline + grace;
    }
    if (carrier.now() > end) {
      const auto missing =
          sentence({"rank ", std::max(awaited, 0),
                    " did not take part in creating the NCCL communicator in time"});
      carrier.abort(missing);
      carrier.fail(std::make_exception_ptr(communication_error(missing)));
    }
    if (carrier.now() > end + grace) {
      abandon(carrier, what(carrier.failure()));
    }
  }
  asking.result();
}

}  // namespace detail

/// NCCL as the library of stream_ordered. It works on an urgent stream of its own, on the device
/// that is current when this is made.
///
/// Making it is collective and connects every pair of ranks. Unless the communicator is the user's
/// it throws usage_error on every rank, in one sentence, if NCCL's versions differ or two ranks
/// share a device. `deadline` limits that, and whatever NCCL does on the host; kernels are watched
/// by whoever waits for the stream.
class nccl_library {
 public:
  using queue_type = cuda::stream;

  template <host_transport Carrier>
  explicit nccl_library(Carrier& carrier, seconds deadline = 60)
      : stream_(cuda::priority::urgent), communicator_(connected(carrier, deadline)) {
    connect(carrier, deadline);
  }
  /// Uses the user's communicator, whose ranks must be the carrier's. Collective as well, within
  /// the communicator's deadline, since the ranks may not be connected yet. Versions and devices
  /// are not compared: whoever made the communicator has found them fit.
  template <host_transport Carrier>
  nccl_library(Carrier& carrier, nccl_communicator users)
      : stream_(cuda::priority::urgent), communicator_(std::move(users)) {
    if (communicator_.rank() != carrier.rank() || communicator_.size() != carrier.size()) {
      throw usage_error(
          sentence({"rank ", carrier.rank(), " of ", carrier.size(), " is rank ",
                    communicator_.rank(), " of ", communicator_.size(),
                    " in this NCCL communicator. Fix: create it with the same ranks"}));
    }
    connect(carrier, communicator_.deadline());
  }

  cuda::stream& queue() { return stream_; }
  const nccl_communicator& communicator() const { return communicator_; }

  void begin_group() { note(enabled() ? ncclGroupStart() : ncclSuccess); }
  void send(std::span<const std::byte> bytes, int peer) {
    if (enabled()) {
      note(ncclSend(bytes.data(), bytes.size(), ncclUint8, peer, communicator_.native_handle(),
                    stream_.native_handle()));
    }
  }
  void receive(std::span<std::byte> bytes, int peer) {
    if (enabled()) {
      note(ncclRecv(bytes.data(), bytes.size(), ncclUint8, peer, communicator_.native_handle(),
                    stream_.native_handle()));
    }
  }
  void end_group() {
    if (enabled()) {
      const ncclResult_t ended = ncclGroupEnd();
      const ncclResult_t first = std::exchange(refused_, ncclSuccess);
      check(first != ncclSuccess ? first : communicator_.settled(ended));
    }
  }

  void all_reduce(std::span<float> data) {
    if (enabled()) {
      check(communicator_.settled(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32,
                                                ncclSum, communicator_.native_handle(),
                                                stream_.native_handle())));
    }
  }

  std::string failure() const { return communicator_.failure(); }
  void abort() { communicator_.abort(); }

 private:
  template <class Carrier>
  static nccl_communicator connected(Carrier& carrier, seconds deadline) {
    const detail::nccl_peer mine = detail::nccl_peer_of_this_rank();
    detail::nccl_invitation answer;
    int awaited = 0;
    task bootstrap = detail::bootstrap_nccl(carrier, mine, answer, awaited);
    detail::complete(carrier, bootstrap, awaited, deadline);
    if (answer.why[0] != '\0') {
      throw usage_error(answer.why.data());
    }
    return nccl_communicator(answer.common, carrier.rank(), carrier.size(), deadline,
                             [&carrier] { detail::expect_others(carrier); });
  }

  /// Exchanges a byte between all ranks and adds up one float. NCCL connects two ranks at their
  /// first message and blocks the host meanwhile; that is better here than in a step, where ranks
  /// that wait for each other must hear of each other. Where it connects each algorithm at its
  /// first use, one that only larger sums take is connected in a step, unless NCCL_RUNTIME_CONNECT
  /// is 0.
  template <class Carrier>
  void connect(Carrier& carrier, seconds deadline) {
    cuda::buffer<std::byte> places =
        stream_.allocate<std::byte>(static_cast<std::size_t>(carrier.size()) + 1);
    cuda::buffer<float> sum = stream_.allocate<float>(1);
    try {
      reach_all(carrier, places.span(), sum.span(), deadline);
    } catch (...) {
      abort();  // before the buffers are freed, which waits for whatever the device still runs
      throw;
    }
  }

  template <class Carrier>
  void reach_all(Carrier& carrier, std::span<std::byte> places, std::span<float> sum,
                 seconds deadline) {
    const int rank = carrier.rank();
    const int ranks = carrier.size();
    stream_.clear(places.data(), places.size());
    stream_.clear(sum.data(), sizeof(float));
    begin_group();
    for (int distance = 1; distance < ranks; ++distance) {
      const int from = (rank + ranks - distance) % ranks;
      send(places.last(1), (rank + distance) % ranks);
      receive(places.subspan(static_cast<std::size_t>(from), 1), from);
    }
    end_group();
    all_reduce(sum);
    const auto end = stream_.record();
    const auto begin = std::chrono::steady_clock::now();
    while (!cuda::stream::passed(end)) {
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      const std::string found = failure();
      if (!found.empty() || waited.count() > deadline) {
        throw communication_error(
            found.empty()
                ? sentence({"rank ", rank, " could not exchange a byte with every other rank"})
                : found);
      }
      detail::expect_others(carrier);
      std::this_thread::yield();
    }
  }

  bool enabled() const { return communicator_.native_handle() != nullptr; }
  void note(ncclResult_t code) {
    if (refused_ == ncclSuccess && code != ncclInProgress) {
      refused_ = code;
    }
  }

  cuda::stream stream_;
  nccl_communicator communicator_;
  ncclResult_t refused_ = ncclSuccess;
};
static_assert(stream_library<nccl_library>);

/// Each rank owns a device, and they communicate by NCCL: `nccl<mpi>` if ranks are processes,
/// `nccl<in_process>` if they are threads. Make the device current, then the transport.
template <host_transport Carrier>
using nccl = stream_ordered<nccl_library, Carrier>;

}  // namespace tutti::transport
