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

/// What a transport counted since it was made; payload bytes, at the endpoint.
struct traffic {
  std::uint64_t bytes_sent{};
  std::uint64_t messages_sent{};
};

/// Counts what one thread at a time sends; any thread may read it meanwhile.
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

/// Adds or copies received bytes: called on the transport's queue as fold(queue, into, from,
/// bytes).
///
/// A fold that may also be called piece by piece, on pieces that are a multiple of `unit` bytes
/// (at most 64, a power of two), says so by that constant; the transport may then fold what has
/// come while the rest is on its way.
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

/// A transport moves bytes between ranks; one object is one rank's end of it.
///
/// * Operations begin when called and are awaited, together or later, by one coroutine: `send`,
///   `receive` (copies), `receive_fold` (combines with what is there, out of the peer's memory
///   where that can be read), `receive_loan` (a view that is given back when it is destroyed),
///   `receive_any` (a loan from whoever sends on a channel), and the pairs `exchange` and
///   `exchange_fold`. Memory of an operation belongs to it until it completes.
/// * Messages of one (peer, tag) arrive in the order sent. Sizes must agree at both ends; but a
///   loan on the coded channel may be of a shorter message, and shows how long it is.
/// * `poll` makes progress without blocking and says whether there was any; completed operations
///   put their coroutine on `ready_coroutines()`.
/// * `fail` ends every pending receive with an exception and refuses new operations; what peers
///   sent is refused, so that they fail too. `abort` tells every rank why, and all fail.
///   Coroutines resume with the exception only when `in_flight`, the operations that have not yet
///   come back, is 0. Call `fail` and `poll` between resumptions, never inside a coroutine.
/// * `now` and `sleep` keep the transport's clock, wall or virtual.
/// * Where time is not virtual, `idle(idle_polls)` is a moment of waiting after so many polls in a
///   row that brought nothing: it spins or yields and answers 0, or answers for how many seconds to
///   sleep before the next poll, which is all it does from `naps_from` on. A second argument says
///   whether anybody waits meanwhile (urgency). Any thread may call it.
/// * `host_of(rank)` is the number of the host that a rank lives on: ranks with one number share
/// it.
template <class T>
concept transport_policy = std::same_as<typename T::role, role::transport> &&
    device_queue<typename T::queue_type> &&
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

/// Who wants what the next poll may bring.
enum class urgency {
  waited_for,  ///< somebody who does nothing else
  unhurried,   ///< nobody of this rank yet: the model computes, and wants the core
};

/// Polls in a row without anything after which a transport's `idle` only answers how long to sleep.
inline constexpr std::size_t naps_from = 20000;

/// Waits a moment after `idle_polls` polls in a row that brought nothing.
template <class Transport>
void rest(Transport& world, std::size_t idle_polls) {
  if (const seconds nap = world.idle(idle_polls); nap > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(nap));
  }
}

/// The rank is a process of its own, as under mpirun, and not one thread of several.
template <class Transport>
bool is_a_process(const Transport& world) {
  if constexpr (requires { world.is_a_process(); }) {
    return world.is_a_process();
  } else {
    return false;
  }
}

/// How many ranks live on this rank's host, itself included. Cost: a look at every rank.
template <class Transport>
int ranks_here(const Transport& transport) {
  int count = 0;
  for (int rank = 0; rank < transport.size(); ++rank) {
    count += transport.host_of(rank) == transport.host_of(transport.rank()) ? 1 : 0;
  }
  return count;
}

/// Ranks can show each other something: `rendezvous(tag, bytes)` shows up to 56 bytes to every rank
/// and completes when all have shown theirs. A rank that fails keeps what they point to until the
/// last answer of a `rendezvous` is destroyed; so no coroutine keeps one over another await.
template <class T>
concept has_rendezvous = requires(T& transport, tag where, std::span<const std::byte> bytes) {
  transport.rendezvous(where, bytes);
};

/// Ranks may share some memory, if they run on one host: `may_rendezvous_at(tag)` says whether
/// there is a rendezvous on it, the same on every rank; `place_of(bytes)` where this rank's bytes
/// lie, in block 0 if nobody else reaches them, and `at(rank, place)` where this rank sees a place
/// that `rank` has.
template <class T>
concept has_host_memory = has_rendezvous<T> &&
    requires(const T& transport, tag where, std::span<const std::byte> bytes) {
  { transport.may_rendezvous_at(where) } -> std::same_as<bool>;
  { transport.at(0, transport.place_of(bytes)) } -> std::same_as<std::byte*>;
};

/// Ranks can read each other's memory, wherever it lies: a rendezvous may show a pointer.
template <class T>
concept has_addressable_peers = has_rendezvous<T> && !has_host_memory<T>;

/// The transport's own all-reduce. Every rank must start them in the same order.
template <class T>
concept has_all_reduce = requires(T& transport, tag where, std::span<float> data) {
  transport.all_reduce(where, data);
};

/// The queue moves the messages of the data channel, and an operation is complete once enqueued:
/// the host waits for no peer. Messages of two ranks carry no tags and match in the order in which
/// both enqueue them. So every rank starts chunks in one order, a coroutine begins whatever must
/// move together before it awaits the first of it, and all else, in host memory, takes other
/// channels.
///
/// `failure()`: why this rank's part has ended, or null; the queue then comes to its end with
/// anything in the memory of its messages. `complaint()`: what the library reports that moves them,
/// or nothing; peers may know more. `troubled()`: one of them says something, for any thread.
template <class T>
concept is_stream_ordered = T::completes_when_enqueued;

/// Messages leave by the host's hand, when it sees that the queue has written them. A gradient is
/// ready there when it has been written: a chunk that began earlier would hold up, on the queue,
/// what other chunks receive.
template <class T>
concept sends_what_is_written = T::sends_what_is_written;

/// Time is virtual, kept by the loop that runs the ranks: nothing may block. A transport that has
/// `in_real_time()` beside this fact says by it, when it runs, whether time is real after all.
template <class T>
concept has_virtual_time = T::virtual_time;

/// Callers may block, on some rank of such a transport at least.
template <class T>
concept may_be_in_real_time = !has_virtual_time<T> || requires(const T& world) {
  { world.in_real_time() } -> std::same_as<bool>;
};

/// Callers may block on this rank.
template <class Transport>
bool in_real_time(const Transport& world) {
  if constexpr (may_be_in_real_time<Transport> && has_virtual_time<Transport>) {
    return world.in_real_time();
  } else {
    return !has_virtual_time<Transport>;
  }
}

/// Nobody polls for this rank any more: where time is real, and its transport can, what peers send
/// it comes back to them.
template <class Transport>
void leave(Transport& world) {
  if constexpr (requires { world.leave(); }) {
    if (in_real_time(world)) {
      world.leave();
    }
  }
}

/// How long a rank that has failed waits for what is in its peers' hands.
inline constexpr seconds settle_time = 5;

/// Says the sentence and ends the job: memory of this rank's is in the hands of a peer that does
/// not answer.
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

/// A transport seen by one coroutine of one chunk: the same verbs, with the tag filled in.
/// Cheap to copy; collectives and architectures know nothing else of the network.
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

  /// This chunk as a coroutine sees it that runs beside this one.
  endpoint lane(std::uint32_t lane) const {
    return endpoint(*transport_, tag{where_.channel, where_.chunk, lane});
  }

  /// This chunk on another channel.
  endpoint on(channel other) const {
    return endpoint(*transport_, tag{other, where_.chunk, where_.lane});
  }

  /// This chunk among some of the ranks, all of whom take the same list; see group_endpoint.
  group_endpoint<endpoint> group(std::span<const int> ranks) const { return {*this, ranks}; }

  /// Begins a task that goes on beside the caller, who awaits it before it ends.
  void start(task& beside) const {
    static_assert(
        !is_stream_ordered<Transport>,
        "tutti: coroutines beside each other begin their messages in two groups, but this "
        "transport's messages move a group at a time. Fix: begin all of them in one "
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
  /// There is a rendezvous on this tag, and memory may be shared; see has_host_memory.
  bool may_rendezvous() const requires has_host_memory<Transport> {
    return transport_->may_rendezvous_at(where_);
  }
  auto place_of(std::span<const std::byte> bytes) const requires has_host_memory<Transport> {
    return transport_->place_of(bytes);
  }
  template <class Place>
  std::byte* at(int rank, Place where) const requires has_host_memory<Transport> {
    return transport_->at(rank, where);
  }
  auto all_reduce(std::span<float> data) const requires has_all_reduce<Transport> {
    return transport_->all_reduce(where_, data);
  }

 private:
  Transport* transport_;
  tag where_;
};

/// An endpoint among some ranks of another, its members, who are numbered by their place in a list
/// that outlives it: a collective runs inside as if nobody else were there. Messages keep the
/// endpoint's tag, so what two members tell each other inside and outside follow in one order. What
/// takes every rank of the transport, its own all-reduce or a rendezvous, is not offered; a loan's
/// peer is the rank of the whole.
template <class Endpoint>
class group_endpoint {
 public:
  using transport_type = typename Endpoint::transport_type;
  using queue_type = typename Endpoint::queue_type;

  group_endpoint(Endpoint whole, std::span<const int> ranks)
      : whole_(whole),
        ranks_(ranks),
        rank_(static_cast<int>(loops::find(ranks, whole.rank()) - ranks.begin())) {
    TUTTI_ASSERT(rank_ < size(), "a rank is no member of the group that it asks for");
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

/// What collectives may ask of the network: an `endpoint`, or a group of one.
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
