#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/fifo.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/backoff.hpp"
#include "tutti/transport/mpi/after_failure.hpp"
#include "tutti/transport/mpi/arrivals.hpp"
#include "tutti/transport/mpi/library.hpp"
#include "tutti/transport/mpi/request_table.hpp"
#include "tutti/transport/mpi/session.hpp"
#include "tutti/transport/mpi/transfer.hpp"
#include "tutti/transport/mpi/transfer_counts.hpp"
#include "tutti/transport/operation.hpp"
#include "tutti/transport/rendezvous.hpp"
#include "tutti/transport/segments.hpp"
#include "tutti/transport/staging.hpp"

namespace tutti::transport::detail {

/// Everything that one rank sends and receives by MPI: posts the pieces of transfers as they may
/// travel, tests requests, and gets everything back after a failure. transport/mpi.hpp says what it
/// promises. One file, because posting, completing, refusing and taking back a piece are steps of
/// one state machine, which a cut would have to hand around whole.
template <device_queue Queue>
class mpi_transfers {
  static constexpr bool on_device = has_own_memory<Queue>;

 public:
  using transfer = detail::transfer<mpi_transfers>;

  mpi_transfers(device_path path, const mpi_world& world, const backoff& waiting)
      : path_(path), world_(&world), backoff_(&waiting), notice_(world) {
    requests_.add(lanes(world) - 1, notice_.listen(), {nullptr, 0, nullptr});
  }
  mpi_transfers(const mpi_transfers&) = delete;
  mpi_transfers& operator=(const mpi_transfers&) = delete;

  Queue& queue() { return queue_; }
  run_queue& ready_coroutines() { return ready_; }
  traffic counted() const { return counted_.read(); }
  std::size_t in_flight() const { return flights_.count(); }
  const std::exception_ptr& failure() const { return flights_.failure(); }
  seconds now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  /// Staging for loans.
  staging<Queue>& loans() { return loans_; }
  /// Staging for pieces that are folded, or that MPI cannot reach.
  staging<Queue>& pieces() { return pieces_; }

  // ---- for operations

  static std::uint64_t wide_tag(tag where) {
    return std::uint64_t{where.chunk} * lanes_per_chunk + where.lane;
  }
  /// Returns `where`. Throws usage_error if MPI cannot carry that tag or those bytes.
  tag valid(tag where, std::span<const std::byte> bytes) const {
    if (wide_tag(where) > world_->greatest_tag()) {
      throw usage_error(sentence({"chunk ", where.chunk, " needs a tag above MPI's greatest, ",
                                  world_->greatest_tag(), ". Fix: cut tensors into fewer chunks"}));
    }
    if (bytes.data() == nullptr && !bytes.empty()) {
      throw usage_error("MPI cannot send phantoms. Fix: give the tensors memory, or simulate");
    }
    return where;
  }
  /// Whether the queue's work reaches this memory, which may be a device's, so that MPI must use it
  /// in the queue's order.
  bool is_the_queues([[maybe_unused]] std::span<const std::byte> memory) {
    if constexpr (on_device) {
      return queue_.reaches(memory.data());
    } else {
      return false;
    }
  }
  /// Whether MPI cannot reach this memory.
  bool stages(std::span<const std::byte> memory) {
    return on_device && path_ == device_path::staged && is_the_queues(memory);
  }
  void begin_send(transfer& out, operation& owner, int to, tag where,
                  std::span<const std::byte> bytes) {
    out.outgoing = true;
    out.often_done_at_once = bytes.size() <= eager_bytes;
    out.failed = !queue_accepts([&] { out.in_order = is_the_queues(bytes); });
    out.data = const_cast<std::byte*>(bytes.data());  // MPI reads it only
    if (begin(out, owner, to, where, cut(to, where, bytes.size()))) {
      counted_.add(bytes.size());
      start(out);
    }
  }
  void begin_receive(transfer& in, operation& owner, int from, tag where, std::size_t bytes) {
    if (begin(in, owner, from, where, cut(from, where, bytes))) {
      start(in);
    }
  }
  /// Begins both halves. For a long message MPI asks the receiver first, and the answer travels on
  /// the connection that carries the receiver's own bytes, behind them. So that two hosts need not
  /// take turns, each posts its send, which asks, before its receive, which answers. If the receive
  /// needs staging, the send asks for no more pieces than the receive can answer.
  void begin_exchange(transfer& out, transfer& in, operation& owner, int to,
                      std::span<const std::byte> bytes, int from, std::size_t into, tag where) {
    if (near(to) || bytes.size() <= asks_beyond) {
      begin_receive(in, owner, from, where, into);
      begin_send(out, owner, to, where, bytes);
      return;
    }
    const segments pieces = cut(from, where, into);
    if (to == from && in.folds_pieces() && pieces.count() > pieces.early() + turn) {
      in.other_half = &out;
      out.other_half = &in;
      in.granted = out.granted = pieces.early() + turn;
      out.began = now();
    }
    begin_send(out, owner, to, where, bytes);
    begin_receive(in, owner, from, where, into);
  }
  /// Takes memory for a message that is lent, and that may turn out shorter.
  void lend(transfer& in, std::size_t bytes) {
    in.data = loans_.take(bytes);
    in.room = bytes;
  }
  void begin_receive_any(transfer& in, operation& owner, channel from_channel) {
    if (begin(in, owner, MPI_ANY_SOURCE, tag{from_channel, 0, 0}, {})) {
      from_anybody_[static_cast<std::size_t>(from_channel)].wait(in);
    }
  }
  void begin_all_reduce(transfer& all, operation& owner, tag where, std::span<float> data) {
    all.outgoing = true;  // there is nothing that `fail` could cancel
    if (!begin(all, owner, world_->rank(), where, {})) {
      return;
    }
    const auto peers = static_cast<std::uint64_t>(world_->size() - 1);
    counted_.add(2 * peers * data.size_bytes() / static_cast<std::uint64_t>(world_->size()),
                 2 * peers);
    ++collectives_;
    all.complete = [](mpi_transfers& self, transfer&) { --self.collectives_; };
    all.posted = 1;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code =
        MPI_Iallreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                       world_->communicator(channel::data), &request);
    started(all, {&all, 0, nullptr}, request, code);
    if (all.in_flight == 0) {
      finish(all);
    }
  }

  // ---- for a rendezvous in their host's memory, which stays until all ranks let go of it

  bool failed() const { return flights_.failed(); }
  void park(operation& fresh) { flights_.park(fresh); }
  rendezvous rendezvous_on(tag where) const { return world_->memory().rendezvous_at(where); }
  /// Shows `bytes` in this rank's next round of the rendezvous `where`. Returns the number of the
  /// round, or 0 if this rank's part has ended.
  std::uint64_t show(rendezvous where, std::span<const std::byte> bytes) const {
    return failed() ? 0 : where.show(world_->rank(), bytes);
  }
  /// Waits a moment for `done()`, if the polling loop has resumed the coroutine that asks. Returns
  /// true if it came.
  template <class Done>
  bool glance(Done done) {
    return ready_.draining() && backoff_->glance(done);
  }
  static bool look() { return true; }
  static void look_away() {}
  void wait_for_all(rendezvous_operation<mpi_transfers>& fresh) {
    at_rendezvous_.push(fresh);
    flights_.begin();
  }

  auto sleep(seconds duration) {
    return sleep_operation(ready_, flights_, now() + duration,
                           [this](sleep_operation& fresh) { sleepers_.add(fresh); });
  }

  /// Runs `work`, and returns false if the queue throws, as every call to a device does once the
  /// device has failed. Every rank's part then ends at its next poll.
  template <class Work>
  bool queue_accepts(Work work) {
    try {
      work();
      return true;
    } catch (...) {
      if (!refusal_) {
        refusal_ = std::current_exception();
        abort(verdict_of(world_->rank(), refusal_));
      }
      return false;
    }
  }
  /// Returns an event at the queue's present end, or one that has passed if the queue has failed.
  typename Queue::event so_far() {
    typename Queue::event here{};
    queue_accepts([&] { here = queue_.record(); });
    return here;
  }

  // ---- progress

  /// For how many seconds a rank may nap: more than 0 while long messages are due from other hosts
  /// and nothing is due from this one. It is a few hundredths of the time that a piece takes. While
  /// no one here waits it is four times as long, so that the model keeps the core, though a peer
  /// may wait. Any thread may ask.
  seconds nap(urgency who) const {
    return nap_.load(std::memory_order_relaxed) * (who == urgency::unhurried ? 4 : 1);
  }

  /// Returns `nap`, or less if a sleep is due earlier. Any thread may ask.
  seconds until_sleepers_are_due(seconds nap) const { return sleepers_.cut_short(nap, now()); }

  bool poll() {
    if (gave_up_) {
      return false;
    }
    bool progress = test_requests();
    progress |= hand_over_what_is_written();
    for (std::size_t each = 0; each < channels; ++each) {
      progress |= from_anybody_[each].awaited() && receive_from_anybody(static_cast<channel>(each));
    }
    progress |= !sleepers_.empty() && sleepers_.wake(now(), flights_);
    progress |= complete_rendezvous();
    progress |= send_to_the_silent();
    if (!notice_.sentence().empty() && !flights_.failed()) {
      fail(refusal_ ? refusal_ : std::make_exception_ptr(communication_error(notice_.sentence())));
      progress = true;
    }
    if (flights_.failed()) {
      drain();
    }
    nap_.store(unwritten_.empty() ? counts_.nap() : 0, std::memory_order_relaxed);
    return progress;
  }

  void fail(std::exception_ptr why) {
    if (flights_.failed()) {
      return;
    }
    flights_.fail(std::move(why));
    failed_at_ = now();
    if (world_->memory().lends()) {  // ranks that wait at a rendezvous learn of it by no message
      abort(verdict_of(world_->rank(), flights_.failure()));
    }
    for (const unwritten_piece& each : std::exchange(unwritten_, {})) {
      take_back(each.which);
      give_back(each.which, each.until);
    }
    while (transfer* each = unposted_.pop()) {
      each->failed = true;
      each->listed = false;
      if (each->in_flight == 0) {
        finish(*each);
      }
    }
    requests_.for_each([](const posted_piece& each, MPI_Request& request) {
      if (each.owner != nullptr) {
        each.owner->failed = true;
        if (!each.owner->outgoing) {
          MPI_Cancel(&request);  // refused if it has matched: then it just completes
        }
      }
    });
    for (auto& each : from_anybody_) {
      while (transfer* waiting = each.next_waiting()) {
        flights_.end(*waiting->owner);
      }
    }
    while (auto* waiting = at_rendezvous_.pop()) {
      flights_.end(*waiting);
    }
    sleepers_.fail(flights_);
    flights_.settle();
  }

  void abort(const std::string& reason) { notice_.tell_all(reason); }

  /// Whether all ranks have come to their end within `limit` after a failure and nothing that they
  /// sent is on its way here. A rank that has died must not keep the others waiting, nor keep them
  /// for `limit` in each of a process's transports, which mostly fail together. The first one's
  /// wait is therefore the others' too, of whom each waits for a second at least.
  template <class Idle>
  bool all_departed(seconds limit, Idle idle) {
    MPI_Request departed = MPI_REQUEST_NULL;
    if (gave_up_ || MPI_Ibarrier(world_->failures(), &departed) != MPI_SUCCESS) {
      return false;
    }
    static std::atomic<seconds> last_ends{std::numeric_limits<seconds>::lowest()};
    const seconds begins = MPI_Wtime();  // one clock for all transports
    if (last_ends + limit < begins) {
      last_ends = begins + limit;
    }
    const seconds deadline = std::max(last_ends.load(), begins + 1);
    int done = 0;
    for (std::size_t polls = 0; done == 0 && !gave_up_ && MPI_Wtime() < deadline; ++polls) {
      test_requests();
      drain();
      MPI_Test(&departed, &done, MPI_STATUS_IGNORE);
      idle(polls);
    }
    return done != 0 && dropped_.done();
  }
  /// Stops listening for failures of other ranks.
  void stop_listening() {
    requests_.for_each([](const posted_piece& each, MPI_Request& request) {
      if (each.owner == nullptr) {
        MPI_Cancel(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      }
    });
  }
  /// The sentence that ends every rank's part; empty while there is none.
  const std::string& aborted() const { return notice_.sentence(); }

 private:
  struct posted_piece {
    transfer* owner;
    std::size_t piece;
    std::byte* staged;
  };
  /// A piece that waits until the queue has come to `until`.
  struct unwritten_piece {
    posted_piece which;
    typename Queue::event until;
  };
  /// How many pieces of one transfer are in flight at once inside a host: enough to keep memory
  /// busy, few enough that their staging stays in cache.
  static constexpr std::size_t window_inside = 3;
  /// How many long pieces are in flight between hosts if they need staging (16 MiB). Pieces without
  /// staging are posted all at once, since each asks its receiver first.
  static constexpr std::size_t turn = segments::first_questions;
  static constexpr seconds longest_wait = 1;
  static constexpr std::size_t eager_bytes = 4096;
  /// The size beyond which messages ask their receiver first: Open MPI's limit over TCP.
  static constexpr std::size_t asks_beyond = 64_KiB;

  /// One lane for sends to each rank, one for receives from each, and one for the notice of
  /// failures.
  static std::size_t lanes(const mpi_world& world) {
    return 2 * static_cast<std::size_t>(world.size()) + 1;
  }
  bool near(int peer) const { return world_->host_of(peer) == world_->host_of(world_->rank()); }
  bool through_host(const transfer& which) const {
    return which.in_order && path_ == device_path::staged;
  }
  transfer_counts::due due(const transfer& its) const {
    if (near(its.peer)) {
      return transfer_counts::due::soon;
    }
    const bool whole = its.cut.count() == 1;
    return whole && its.cut.bytes() <= asks_beyond ? transfer_counts::due::behind
                                                   : transfer_counts::due::late;
  }
  std::size_t window_of(const transfer& which) const {
    if (near(which.peer)) {
      return window_inside;
    }
    return through_host(which) || which.folds_pieces() ? turn : transfer::unlimited;
  }

  segments cut(int peer, tag where, std::size_t bytes) const {
    const bool pushed = where.channel == channel::service;
    if (where.channel != channel::data && !pushed) {
      return segments::whole(bytes);
    }
    if (near(peer)) {
      return pushed ? segments::whole(bytes) : segments(bytes);
    }
    return pushed ? segments::to_a_listener(bytes) : segments::between_hosts(bytes);
  }
  bool begin(transfer& fresh, operation& owner, int peer, tag where, segments cut) {
    fresh.owner = &owner;
    fresh.peer = peer;
    fresh.where = where;
    fresh.mpi_tag = static_cast<int>(wide_tag(where));
    fresh.cut = cut;
    if (flights_.failed() || fresh.failed) {
      fresh.failed = true;
      if (fresh.complete != nullptr) {
        fresh.complete(*this, fresh);
      }
      flights_.park(owner);
      return false;
    }
    flights_.begin();
    return true;
  }

  /// Posts a transfer, or queues it behind another. Messages of one peer and tag must not overtake,
  /// so a transfer with pieces left to post holds back those that come after it.
  void start(transfer& fresh) {
    fresh.window = window_of(fresh);
    for (transfer* each = unposted_.front(); each != nullptr; each = each->next) {
      fresh.blocked |= each->precedes(fresh);
    }
    if (fresh.blocked) {
      fresh.listed = true;
      unposted_.push(fresh);
    } else {
      post_on(fresh);
    }
  }

  void post_on(transfer& which) {
    while (which.may_post()) {
      post(which, which.posted++);
    }
    const bool more = which.unwritten > 0 || (!which.failed && which.has_more());
    if (more && !which.listed) {
      which.listed = true;
      unposted_.push(which);
    } else if (!more && which.listed) {
      which.listed = false;
      unposted_.take([&](const transfer& each) { return &each == &which; });
      unblock_after(which);
    }
    if (which.in_flight == 0 && !more) {
      finish(which);
    }
  }

  /// Called when a half of an exchange in turns has nothing in flight. When a turn of the receive
  /// has come, the next turn of both halves begins, the send first: the peer, whose message has
  /// begun, waits for no later turn of this rank than that one.
  void take_turn(transfer& its) {
    transfer& other = *its.other_half;
    if (its.outgoing) {
      its.waits_until = now() + std::min(longest_wait, 4 * (now() - its.began));
      return;
    }
    its.granted += turn;
    other.granted = its.has_more() ? std::max(other.granted, its.granted) : transfer::unlimited;
    if (other.listed && !other.blocked) {
      post_on(other);
    }
  }

  /// Finds a send that waits for its next turn while nothing comes, and lets it wait no longer,
  /// since the peer may be one that receives everything before it sends. Returns true if there was
  /// one.
  bool send_to_the_silent() {
    for (transfer* each = unposted_.front(); each != nullptr; each = each->next) {
      if (each->waits_for_a_turn() && !each->other_half->begun() && now() > each->waits_until) {
        each->granted = transfer::unlimited;
        post_on(*each);
        return true;
      }
    }
    return false;
  }

  void unblock_after(const transfer& done) {
    for (transfer* each = unposted_.front(); each != nullptr; each = each->next) {
      if (done.precedes(*each)) {
        each->blocked = false;
        post_on(*each);
        return;
      }
    }
  }

  void post(transfer& which, std::size_t index) {
    const bool copied = through_host(which);
    posted_piece posted{&which, index, nullptr};
    typename Queue::event written{};
    const bool well = queue_accepts([&] {
      if (copied || which.folds_pieces()) {
        posted.staged = pieces_.take(which.cut.longest(index));
      }
      if (copied) {
        queue_.copy(posted.staged, which.data + which.cut[index].offset, which.cut[index].size);
      }
      if (which.in_order) {
        written = queue_.record();
      }
    });
    if (!well) {
      which.failed = true;
      give_back(posted, {});
    } else if (which.in_order) {
      which.enters(index);
      ++which.unwritten;
      unwritten_.push_back({posted, std::move(written)});
    } else {
      hand_over(posted);
    }
  }

  void hand_over(const posted_piece& posted) {
    transfer& its = *posted.owner;
    const segments::piece piece = its.cut[posted.piece];
    std::byte* at = posted.staged != nullptr ? posted.staged : its.data + piece.offset;
    const MPI_Comm where = world_->communicator(its.where.channel);
    const mpi_bytes all(piece.size);
    MPI_Request request = MPI_REQUEST_NULL;
    const int code =
        its.outgoing
            ? MPI_Isend(at, all.count(), all.type(), its.peer, its.mpi_tag, where, &request)
            : MPI_Irecv(at, all.count(), all.type(), its.peer, its.mpi_tag, where, &request);
    started(its, posted, request, code);
  }

  /// Posts the pieces that waited for the queue, as far as it has come. Returns true if there were
  /// any.
  bool hand_over_what_is_written() {
    auto end = unwritten_.begin();
    queue_accepts([&] {
      end = loops::find_if(unwritten_,
                           [](const unwritten_piece& each) { return !Queue::passed(each.until); });
    });
    if (end == unwritten_.begin()) {
      return false;
    }
    written_.assign(std::make_move_iterator(unwritten_.begin()), std::make_move_iterator(end));
    unwritten_.erase(unwritten_.begin(), end);
    for (const unwritten_piece& each : written_) {
      transfer& its = take_back(each.which);
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

  /// Stops counting a piece as one that waits for the queue.
  static transfer& take_back(const posted_piece& which) {
    which.owner->leaves(which.piece);
    --which.owner->unwritten;
    return *which.owner;
  }
  void give_back(const posted_piece& which, typename Queue::event until) {
    if (which.staged != nullptr) {
      pieces_.give(which.staged, which.owner->cut.longest(which.piece), std::move(until));
    }
  }

  void started(transfer& which, const posted_piece& posted, MPI_Request request, int code) {
    int over = 0;
    if (code != MPI_SUCCESS) {
      call_refused(which, code);
      over = 1;
    } else if (which.often_done_at_once) {
      const int tested = MPI_Test(&request, &over, MPI_STATUS_IGNORE);
      if (tested != MPI_SUCCESS) {
        call_refused(which, tested);
        over = request == MPI_REQUEST_NULL ? 1 : 0;
      }
    }
    if (over != 0) {
      give_back(posted, {});
      return;
    }
    which.enters(posted.piece);
    counts_.begin(due(which), now());
    requests_.add(2 * static_cast<std::size_t>(which.peer) + (which.outgoing ? 1 : 0), request,
                  posted);
  }

  bool complete_rendezvous() {
    bool any = false;
    while (auto* done = at_rendezvous_.take([](const auto& each) { return each.complete(); })) {
      flights_.end(*done);
      any = true;
    }
    return any;
  }

  bool test_requests() {
    return requests_.test([this](const posted_piece& which,
                                 const MPI_Status& status) { complete_piece(which, status); },
                          [this](int code) { call_refused(code); });
  }

  void complete_piece(const posted_piece& which, const MPI_Status& status) {
    const std::size_t bytes = bytes_of(status);
    if (which.owner == nullptr) {
      if (status.MPI_ERROR == MPI_SUCCESS) {
        notice_.hear(bytes);
      } else {
        call_refused(status.MPI_ERROR);
      }
      return;
    }
    transfer& its = *which.owner;
    its.leaves(which.piece);
    counts_.end(due(its));
    if (!its.outgoing && due(its) == transfer_counts::due::late &&
        (its.over() || !its.cut.is_early(which.piece))) {
      counts_.came(now());
    }
    if (!its.failed) {
      check_piece(its, which, status.MPI_ERROR, bytes);
    }
    give_back(which, its.outgoing ? typename Queue::event{} : so_far());
    if (its.other_half != nullptr && its.in_flight == 0) {
      take_turn(its);
    }
    post_on(its);
  }

  void check_piece(transfer& its, const posted_piece& which, int code, std::size_t bytes) {
    const segments::piece piece = its.cut[which.piece];
    if (code != MPI_SUCCESS && code != MPI_ERR_TRUNCATE) {
      call_refused(its, code);
    } else if (its.may_be_shorter() && code == MPI_SUCCESS) {
      its.cut = segments::whole(bytes);
    } else if (its.may_end_before && code == MPI_SUCCESS) {
      its.before_end += piece.size - bytes;
    } else if (!its.outgoing && (code == MPI_ERR_TRUNCATE || bytes != piece.size)) {
      refuse(its, disagreement(its, which.piece, bytes));
    } else if (its.fold_piece != nullptr) {
      its.failed = !queue_accepts([&] { its.fold_piece(*this, its, piece, which.staged); });
    }
  }

  /// Words for a piece whose length is not that of this rank's cut: what the sender's size must
  /// have been.
  std::string disagreement(const transfer& in, std::size_t index, std::size_t came) const {
    std::string sent = "another number of";
    if (index == 0) {
      const std::size_t least = near(in.peer) ? segments::whole_limit : segments::whole_limit_far;
      const bool first_of_many = came >= least && in.where.channel == channel::data;
      sent = sentence({first_of_many ? "at least " : "", came});
    } else if (index + 1 == in.cut.count()) {
      sent = sentence({in.cut[index].offset + came});
    }
    return sentence({"rank ", in.peer, " sent ", sent, " bytes of chunk ", in.where.chunk,
                     " where rank ", world_->rank(), " expects ", in.cut.bytes()});
  }

  /// Ends every rank's part after MPI has refused a call that belongs to no transfer.
  [[gnu::cold]] void call_refused(int code) {
    abort(sentence({"rank ", world_->rank(), " failed: ", mpi_error::text(code)}));
  }

  [[gnu::cold]] void call_refused(transfer& its, int code) {
    its.failed = true;
    call_refused(code);
  }

  /// Ends every rank's part at its next poll, because no rank can go on.
  void refuse(transfer& its, const std::string& reason) {
    its.failed = true;
    abort(reason);
  }

  void finish(transfer& its) {
    if (its.complete != nullptr) {
      its.complete(*this, its);
    }
    if (its.owner == nullptr) {
      flights_.end();  // from any rank: a receive takes it later
    } else if (its.failed) {
      flights_.end_refused(*its.owner);
    } else {
      flights_.end(*its.owner);
    }
  }

  /// Looks for messages on a channel, and hands the next that has come whole to the receive from
  /// any rank that has waited longest. Returns true if it made progress.
  bool receive_from_anybody(channel on) {
    auto& coming = from_anybody_[static_cast<std::size_t>(on)];
    const bool begun = probe(on, coming);
    return hand_on(coming) || begun;
  }
  bool hand_on(arrivals<transfer>& coming) {
    const transfer* come = coming.take();
    if (come == nullptr) {
      return false;
    }
    transfer& in = *coming.next_waiting();
    in.peer = come->peer;
    in.where = come->where;
    in.cut = come->cut;
    in.data = come->data;
    in.room = come->room;
    flights_.end(*in.owner);
    return true;
  }

  /// Begins to receive a message that MPI has found. All pieces of those found before are posted,
  /// so what is found now is a first piece. Returns true if there was one.
  bool probe(channel on, arrivals<transfer>& coming) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    const int asked = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_->communicator(on), &found,
                                  &message, &status);
    if (asked != MPI_SUCCESS) {
      call_refused(asked);
      return false;
    }
    if (found == 0) {
      return false;
    }
    const mpi_bytes first(bytes_of(status));
    const bool cut_up = on == channel::service && !near(status.MPI_SOURCE);
    const segments cut =
        cut_up ? segments::begun_by(bytes_of(status)) : segments::whole(bytes_of(status));
    transfer fresh;
    if (!queue_accepts([&] { lend(fresh, cut.bytes()); })) {
      dropped_.receive(message, bytes_of(status));
      return true;
    }
    fresh.peer = status.MPI_SOURCE;
    fresh.where.channel = on;
    fresh.where.chunk = static_cast<std::uint32_t>(status.MPI_TAG) / lanes_per_chunk;
    fresh.where.lane = static_cast<std::uint32_t>(status.MPI_TAG) % lanes_per_chunk;
    fresh.mpi_tag = status.MPI_TAG;
    fresh.cut = cut;
    fresh.may_end_before = cut_up;
    fresh.complete = [](mpi_transfers&, transfer& its) {
      its.cut.end_at(its.cut.bytes() - its.before_end);
    };
    fresh.often_done_at_once = cut.bytes() <= eager_bytes;
    fresh.window = transfer::unlimited;
    fresh.posted = 1;
    transfer& in = coming.begin(fresh);
    flights_.begin();
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Imrecv(in.data, first.count(), first.type(), &message, &request);
    started(in, {&in, 0, nullptr}, request, code);
    post_on(in);
    return true;
  }

  /// After a failure: receives what peers have sent, so that their sends complete. If any came,
  /// tells every rank of the failure. Gives up on native all-reduces that do not complete.
  void drain() {
    if (dropped_.receive_all(*world_)) {
      abort(verdict_of(world_->rank(), flights_.failure()));
    }
    dropped_.done();
    if (collectives_ > 0 && flights_.count() == collectives_ && now() > failed_at_ + 1) {
      give_up();
    }
  }

  /// Calls MPI no more, and fails what is in flight.
  void give_up() {
    gave_up_ = true;
    for (const posted_piece& each : requests_.abandon()) {
      if (each.owner != nullptr) {
        each.owner->failed = true;
        finish(*each.owner);
      }
    }
    flights_.settle();
  }

  device_path path_;
  const mpi_world* world_;
  const backoff* backoff_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();

  Queue queue_;
  run_queue ready_;
  traffic_counter counted_;
  under_way flights_;
  staging<Queue> loans_{queue_, place::shared};
  /// Folds read the pieces, so they lie in the queue's own memory if MPI reaches it.
  staging<Queue> pieces_{queue_, path_ == device_path::direct ? place::own : place::shared};
  sleepers sleepers_;
  std::array<arrivals<transfer>, channels> from_anybody_;
  fifo<rendezvous_operation<mpi_transfers>> at_rendezvous_;
  fifo<transfer> unposted_;
  std::vector<unwritten_piece> unwritten_;
  std::vector<unwritten_piece> written_;
  request_table<posted_piece> requests_{lanes(*world_)};
  transfer_counts counts_;
  std::atomic<seconds> nap_{0};

  abort_notice notice_;
  std::exception_ptr refusal_;  // the first that the queue has thrown
  seconds failed_at_ = 0;
  dropped_messages dropped_;
  std::size_t collectives_ = 0;
  bool gave_up_ = false;
};

}  // namespace tutti::transport::detail
