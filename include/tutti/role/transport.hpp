#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "tutti/base/assert.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"

namespace tutti {

namespace role {
struct transport {};
}  // namespace role

/// What a transport has counted since it was made: bytes of payload and messages sent by its rank.
struct traffic {
  std::uint64_t bytes_sent{};
  std::uint64_t messages_sent{};
};

/// Counts what is sent, by one thread at a time. Any thread may read the counts meanwhile.
class traffic_counter {
 public:
  void add(std::uint64_t bytes, std::uint64_t messages = 1) {
    bytes_.store(bytes_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    messages_.store(messages_.load(std::memory_order_relaxed) + messages,
                    std::memory_order_relaxed);
  }
  traffic read() const {
    return {bytes_.load(std::memory_order_relaxed), messages_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> messages_{0};
};

/// A fold that copies received bytes. A fold is called on the transport's queue, as fold(queue,
/// into, from, bytes), and combines received bytes with those that are there.
///
/// A fold that may also be called piece by piece states `unit`: pieces are then multiples of that
/// many bytes, a power of two of at most 64. The transport may fold pieces that have come while the
/// rest of a message is on its way.
struct copy_bytes {
  static constexpr std::size_t unit = 1;

  template <class Queue>
  void operator()(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
    queue.copy(into, from, bytes);
  }
};

template <class Fold>
concept piecewise_fold = requires {
  Fold::unit;
}
&&64 % Fold::unit == 0;

/// A transport whose time is virtual and kept by the loop that runs the ranks, so that nothing may
/// block. One that has `in_real_time()` beside this fact says there, at run time, whether its time
/// is real after all.
template <class T>
concept has_virtual_time = T::virtual_time;

/// A transport on which callers may block, on some ranks at least.
template <class T>
concept may_be_in_real_time = !has_virtual_time<T> || requires(const T& world) {
  { world.in_real_time() } -> std::same_as<bool>;
};

/// Whether anybody waits for what the next poll may bring.
enum class urgency {
  waited_for,  ///< a thread waits for it and does nothing else
  unhurried,   ///< no thread of this rank waits yet: the model computes and needs the core
};

namespace detail {
/// Whether a transport waits between polls, as it must where its time may be real.
template <class T>
concept idles = !may_be_in_real_time<T> || requires(T & transport, std::size_t idle_polls) {
  { transport.idle(idle_polls) } -> std::convertible_to<seconds>;
  { transport.idle(idle_polls, urgency::unhurried) } -> std::convertible_to<seconds>;
};
}  // namespace detail

/// A transport moves bytes between ranks. One object is one rank's end of it.
///
/// * An operation begins when it is called and is awaited by one coroutine, then or later: `send`;
///   `receive` (copies); `receive_fold` (combines a message with what is in the receiver's memory,
///   and reads the peer's memory where it can); `receive_loan` (returns a view of the message,
///   which is given back when it is destroyed); `receive_any` (a loan from whoever sends on a
///   channel); and the pairs `exchange` and `exchange_fold`, each a send and a receive. The memory
///   of an operation belongs to it until it completes.
/// * Messages of one (peer, tag) arrive in the order in which they were sent. The sizes must agree
///   at both ends, but a loan on the coded channel may be of a shorter message, and shows how long
///   it is.
/// * `poll` makes progress without blocking and returns whether there was any. Completed operations
///   put their coroutine on `ready_coroutines()`.
/// * `fail` ends every pending receive with an exception and refuses new operations. It also
///   refuses what peers have sent, so that they fail too. `abort` tells every rank the reason, and
///   all fail. Coroutines resume with the exception only when `in_flight`, the number of operations
///   that have not yet come back, is 0. Call `fail` and `poll` between resumptions, never inside a
///   coroutine.
/// * `now` and `sleep` use the transport's clock, which is a real or a virtual one.
/// * Where time is not virtual, `idle(idle_polls)` waits a moment after that many polls in a row
///   that brought nothing. It spins or yields and returns 0, or it returns for how many seconds the
///   caller should sleep before the next poll; from `naps_from` polls on it does only that. A
///   second argument, which may be left out, says whether anybody waits meanwhile (urgency). Any
///   thread may call it.
/// * `host_of(rank)` is the number of the rank's host: ranks with the same number share a host.
template <class T>
concept transport_policy = std::same_as<typename T::role, role::transport> &&
    device_queue<typename T::queue_type> && detail::idles<T> &&
    requires(T& transport, const T& constant, int peer, tag where, std::span<std::byte> in,
             std::span<const std::byte> out, copy_bytes fold, std::exception_ptr why,
             const std::string& reason) {
  { constant.rank() } -> std::same_as<int>;
  { constant.size() } -> std::same_as<int>;
  { constant.host_of(peer) } -> std::same_as<int>;
  { transport.queue() } -> std::same_as<typename T::queue_type&>;
  { transport.ready_coroutines() } -> std::same_as<run_queue&>;
  { transport.poll() } -> std::same_as<bool>;
  { constant.now() } -> std::same_as<seconds>;
  transport.sleep(seconds{});
  transport.send(peer, where, out);
  transport.receive(peer, where, in);
  transport.receive_fold(peer, where, in, fold);
  transport.receive_loan(peer, where, std::size_t{});
  transport.receive_any(channel::service);
  transport.exchange(peer, out, peer, in, where);
  transport.exchange_fold(peer, out, peer, in, where, fold);
  transport.fail(why);
  transport.abort(reason);
  { constant.in_flight() } -> std::same_as<std::size_t>;
  { constant.counted() } -> std::same_as<traffic>;
};

/// The number of polls in a row without progress from which on a transport's `idle` only returns
/// how long to sleep.
inline constexpr std::size_t naps_from = 20000;

/// Waits a moment after `idle_polls` polls in a row that brought nothing.
template <class Transport>
void rest(Transport& world, std::size_t idle_polls) {
  if (const seconds nap = world.idle(idle_polls); nap > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(nap));
  }
}

/// Whether the rank is a process of its own, as under mpirun, and not one of several threads.
template <class Transport>
bool is_a_process(const Transport& world) {
  if constexpr (requires { world.is_a_process(); }) {
    return world.is_a_process();
  } else {
    return false;
  }
}

/// The number of ranks on this rank's host, itself included. Cost: a call of `host_of` for every
/// rank.
template <class Transport>
int ranks_here(const Transport& transport) {
  int count = 0;
  for (int rank = 0; rank < transport.size(); ++rank) {
    count += transport.host_of(rank) == transport.host_of(transport.rank()) ? 1 : 0;
  }
  return count;
}

/// A transport over which ranks can show each other a few bytes: `rendezvous(tag, bytes)` shows up
/// to 56 bytes to every rank and completes when all ranks have shown theirs. The bytes may hold
/// pointers: a rank that fails keeps the memory they point to until the last result of a
/// `rendezvous` is destroyed. So a coroutine must not keep such a result over another await.
template <class T>
concept has_rendezvous = requires(T& transport, tag where, std::span<const std::byte> bytes) {
  transport.rendezvous(where, bytes);
};

/// Where bytes lie in memory that ranks of a host share. Each sees it at an address of its own.
struct shared_place {
  std::uint64_t block = 0;  ///< 0: not in shared memory
  std::uint64_t offset = 0;
};

/// A transport over which ranks may share some memory, if they run on one host.
/// `may_rendezvous_at(tag)` returns whether a rendezvous on that tag is possible, the same on every
/// rank. `place_of(bytes)` returns where this rank's bytes lie in shared memory. `at(rank, place)`
/// returns where this rank sees that place of `rank`'s memory.
template <class T>
concept has_host_memory = has_rendezvous<T> &&
    requires(const T& transport, tag where, std::span<const std::byte> bytes) {
  { transport.may_rendezvous_at(where) } -> std::same_as<bool>;
  { transport.place_of(bytes) } -> std::same_as<shared_place>;
  { transport.at(0, shared_place{}) } -> std::same_as<std::byte*>;
};

/// A transport over which ranks can read each other's memory, wherever it lies, so that a
/// rendezvous may show pointers.
template <class T>
concept has_addressable_peers = has_rendezvous<T> && !requires {
  &T::may_rendezvous_at;
};

/// A transport with an all-reduce of its own. Every rank must start such all-reduces in the same
/// order.
template <class T>
concept has_all_reduce = requires(T& transport, tag where, std::span<float> data) {
  transport.all_reduce(where, data);
};

/// A transport whose queue moves the messages of the data channel. An operation is complete once it
/// is enqueued, so the host waits for no peer. Messages of two ranks carry no tags, and match in
/// the order in which both ranks enqueue them. So every rank must start chunks in the same order,
/// and a coroutine must begin all messages that move together before it awaits the first of them.
/// Messages in host memory use the other channels.
///
/// `failure()` returns why this rank's part has ended, or null; the queue then runs to its end with
/// undefined bytes in place of messages. `complaint()` returns what the library that moves the
/// messages reports, or an empty string; peers may know more. `troubled()` returns whether either
/// of these has something to report, and any thread may call it.
template <class T>
concept is_stream_ordered = T::completes_when_enqueued;

/// A transport whose host sends a message once it sees that the queue has written it. The engine
/// takes a gradient as ready only when the queue has written it, because a chunk that began earlier
/// would delay, on the queue, what other chunks receive.
template <class T>
concept sends_what_is_written = T::sends_what_is_written;

/// Whether callers may block on this rank.
template <class Transport>
bool in_real_time(const Transport& world) {
  if constexpr (may_be_in_real_time<Transport> && has_virtual_time<Transport>) {
    return world.in_real_time();
  } else {
    return !has_virtual_time<Transport>;
  }
}

/// Says that nobody polls for this rank any more. If time is real and the transport supports it,
/// messages that peers send to this rank are refused from now on and returned to them.
template <class Transport>
void leave(Transport& world) {
  if constexpr (requires { world.leave(); }) {
    if (in_real_time(world)) {
      world.leave();
    }
  }
}

/// How long a rank that has failed waits for its memory that peers are still using.
inline constexpr seconds settle_time = 5;

/// Prints the sentence and ends the job, because a peer that does not answer is still using this
/// rank's memory.
template <class Transport>
[[noreturn]] void abandon(const Transport& transport, const std::string& sentence) {
  if constexpr (requires { transport.abort_job(sentence); }) {
    transport.abort_job(sentence);
  }
  std::fprintf(stderr, "tutti: %s\n", sentence.c_str());
  std::abort();
}

template <class Endpoint>
class group_endpoint;

/// A transport as one coroutine of one chunk sees it: the same verbs, with the tag filled in. It is
/// cheap to copy. Collectives and architectures know nothing else of the network.
template <class Transport>
class endpoint {
 public:
  using transport_type = Transport;
  using queue_type = typename Transport::queue_type;

  endpoint(Transport& transport, tag where) : transport_(&transport), where_(where) {}

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  int host_of(int rank) const { return transport_->host_of(rank); }
  queue_type& queue() const { return transport_->queue(); }
  seconds now() const { return transport_->now(); }
  tag where() const { return where_; }

  /// The endpoint for a coroutine of the same chunk that runs concurrently with this one.
  endpoint lane(std::uint32_t lane) const {
    return endpoint(*transport_, tag{where_.channel, where_.chunk, lane});
  }

  /// The endpoint of the same chunk on another channel.
  endpoint on(channel other) const {
    return endpoint(*transport_, tag{other, where_.chunk, where_.lane});
  }

  /// The endpoint of the same chunk among some of the ranks, all of whom pass the same list; see
  /// group_endpoint.
  group_endpoint<endpoint> group(std::span<const int> ranks) const { return {*this, ranks}; }

  /// Starts a task that runs concurrently with the calling coroutine, which must await the task
  /// before it ends.
  void start(task& beside) const {
    static_assert(!is_stream_ordered<Transport>,
                  "tutti: concurrent coroutines begin their messages in two groups, but this "
                  "transport moves one group of messages at a time. Fix: begin all of them in one "
                  "coroutine before it awaits the first, and await them by all_of.");
    beside.start(transport_->ready_coroutines());
  }

  auto send(int peer, std::span<const std::byte> bytes) const {
    return transport_->send(peer, where_, bytes);
  }
  auto receive(int peer, std::span<std::byte> bytes) const {
    return transport_->receive(peer, where_, bytes);
  }
  template <class Fold>
  auto receive_fold(int peer, std::span<std::byte> into, Fold fold) const {
    return transport_->receive_fold(peer, where_, into, fold);
  }
  auto receive_loan(int peer, std::size_t bytes) const {
    return transport_->receive_loan(peer, where_, bytes);
  }
  auto exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) const {
    return transport_->exchange(to, out, from, in, where_);
  }
  template <class Fold>
  auto exchange_fold(int to, std::span<const std::byte> out, int from, std::span<std::byte> in,
                     Fold fold) const {
    return transport_->exchange_fold(to, out, from, in, where_, fold);
  }
  auto rendezvous(std::span<const std::byte> bytes) const requires has_rendezvous<Transport> {
    return transport_->rendezvous(where_, bytes);
  }
  /// Whether a rendezvous on this tag is possible and memory may be shared; see has_host_memory.
  bool may_rendezvous() const requires has_host_memory<Transport> {
    return transport_->may_rendezvous_at(where_);
  }
  shared_place place_of(std::span<const std::byte> bytes) const requires
      has_host_memory<Transport> {
    return transport_->place_of(bytes);
  }
  std::byte* at(int rank, shared_place where) const requires has_host_memory<Transport> {
    return transport_->at(rank, where);
  }
  auto all_reduce(std::span<float> data) const requires has_all_reduce<Transport> {
    return transport_->all_reduce(where_, data);
  }

 private:
  Transport* transport_;
  tag where_;
};

/// An endpoint among some ranks of another endpoint. These members are numbered by their place in a
/// list, which must outlive this object. A collective runs over it as if there were no other ranks.
/// Messages keep the endpoint's tag, so messages between two members inside and outside the group
/// arrive in one common order. Operations of every rank of the transport, its own all-reduce and
/// the rendezvous, are not offered. A loan's `peer()` is the rank in the whole, not the member's
/// number.
template <class Endpoint>
class group_endpoint {
 public:
  using transport_type = typename Endpoint::transport_type;
  using queue_type = typename Endpoint::queue_type;

  group_endpoint(Endpoint whole, std::span<const int> ranks)
      : whole_(whole),
        ranks_(ranks),
        rank_(static_cast<int>(loops::find(ranks, whole.rank()) - ranks.begin())) {
    TUTTI_ASSERT(rank_ < size(), "a rank is not a member of the group that it asks for");
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int host_of(int rank) const { return whole_.host_of(member(rank)); }
  queue_type& queue() const { return whole_.queue(); }
  seconds now() const { return whole_.now(); }
  tag where() const { return whole_.where(); }

  group_endpoint lane(std::uint32_t lane) const { return {whole_.lane(lane), ranks_}; }
  group_endpoint on(channel other) const { return {whole_.on(other), ranks_}; }
  group_endpoint<group_endpoint> group(std::span<const int> ranks) const { return {*this, ranks}; }
  void start(task& beside) const { whole_.start(beside); }

  auto send(int peer, std::span<const std::byte> bytes) const {
    return whole_.send(member(peer), bytes);
  }
  auto receive(int peer, std::span<std::byte> bytes) const {
    return whole_.receive(member(peer), bytes);
  }
  template <class Fold>
  auto receive_fold(int peer, std::span<std::byte> into, Fold fold) const {
    return whole_.receive_fold(member(peer), into, fold);
  }
  auto receive_loan(int peer, std::size_t bytes) const {
    return whole_.receive_loan(member(peer), bytes);
  }
  auto exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) const {
    return whole_.exchange(member(to), out, member(from), in);
  }
  template <class Fold>
  auto exchange_fold(int to, std::span<const std::byte> out, int from, std::span<std::byte> in,
                     Fold fold) const {
    return whole_.exchange_fold(member(to), out, member(from), in, fold);
  }

 private:
  int member(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  Endpoint whole_;
  std::span<const int> ranks_;
  int rank_;
};

/// What collectives may use of the network: an `endpoint`, or a group of one.
template <class E>
concept message_endpoint = std::copy_constructible<E> && device_queue<typename E::queue_type> &&
    requires(const E self, int peer, std::span<std::byte> in, std::span<const std::byte> out,
             copy_bytes fold, std::span<const int> ranks, task beside) {
  typename E::transport_type;
  { self.rank() } -> std::same_as<int>;
  { self.size() } -> std::same_as<int>;
  { self.host_of(peer) } -> std::same_as<int>;
  { self.queue() } -> std::same_as<typename E::queue_type&>;
  { self.now() } -> std::same_as<seconds>;
  { self.where() } -> std::same_as<tag>;
  { self.lane(std::uint32_t{}) } -> std::same_as<E>;
  { self.on(channel::data) } -> std::same_as<E>;
  { self.group(ranks) } -> std::same_as<group_endpoint<E>>;
  self.start(beside);
  self.send(peer, out);
  self.receive(peer, in);
  self.receive_fold(peer, in, fold);
  self.receive_loan(peer, std::size_t{});
  self.exchange(peer, out, peer, in);
  self.exchange_fold(peer, out, peer, in, fold);
};

}  // namespace tutti
