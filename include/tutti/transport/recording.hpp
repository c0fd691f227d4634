#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::transport {

/// One operation, at the time when it began on the transport's clock.
struct recorded {
  enum class kind : std::uint8_t { send, receive, loan, any, rendezvous, all_reduce };

  seconds time{};
  int rank{};
  int peer{};  // -1: any rank, or all ranks
  tag where{};
  std::size_t bytes{};  // 0 if only the sender knows
  kind what{};
};

/// Records every operation of `Transport`, and otherwise is that transport, except that it hides
/// memory that processes of a host share. An exchange is recorded as a send and a receive. Cost:
/// one look at the clock and 48 bytes an operation; memory is allocated once.
template <class Transport>
class recording {
 public:
  using role = tutti::role::transport;
  using queue_type = typename Transport::queue_type;
  static constexpr bool virtual_time = has_virtual_time<Transport>;
  static constexpr bool completes_when_enqueued = is_stream_ordered<Transport>;
  static constexpr bool sends_what_is_written = tutti::sends_what_is_written<Transport>;

  /// Operations after the first `capacity` are counted by `missed` and not recorded.
  recording(Transport& inner, std::size_t capacity) : inner_(&inner) { log_.reserve(capacity); }

  std::span<const recorded> log() const { return log_; }
  std::size_t missed() const { return missed_; }

  int rank() const { return inner_->rank(); }
  int size() const { return inner_->size(); }
  int host_of(int rank) const { return inner_->host_of(rank); }
  queue_type& queue() { return inner_->queue(); }
  run_queue& ready_coroutines() { return inner_->ready_coroutines(); }
  bool poll() { return inner_->poll(); }
  seconds idle(std::size_t idle_polls, urgency who = urgency::waited_for) const {
    return inner_->idle(idle_polls, who);
  }
  seconds now() const { return inner_->now(); }
  void fail(std::exception_ptr why) { inner_->fail(why); }
  void abort(const std::string& reason) { inner_->abort(reason); }
  bool ends_by_exception() requires requires(Transport& inner) { inner.ends_by_exception(); }
  { return inner_->ends_by_exception(); }
  void leave() requires requires(Transport& inner) { inner.leave(); }
  { inner_->leave(); }
  std::size_t in_flight() const { return inner_->in_flight(); }
  traffic counted() const { return inner_->counted(); }
  const std::exception_ptr& failure() const requires requires(const Transport& inner) {
    inner.failure();
  }
  { return inner_->failure(); }
  const std::string& complaint() const requires is_stream_ordered<Transport> {
    return inner_->complaint();
  }
  bool troubled() const requires is_stream_ordered<Transport> { return inner_->troubled(); }
  bool in_real_time() const requires requires(const Transport& inner) { inner.in_real_time(); }
  { return inner_->in_real_time(); }
  bool is_a_process() const { return tutti::is_a_process(*inner_); }
  bool single_threaded() const requires requires(const Transport& inner) {
    inner.single_threaded();
  }
  { return inner_->single_threaded(); }
  [[noreturn]] void abort_job(const std::string& sentence) const requires
      requires(const Transport& inner) {
    inner.abort_job(sentence);
  }
  { inner_->abort_job(sentence); }

  auto sleep(seconds duration) { return inner_->sleep(duration); }
  auto send(int to, tag where, std::span<const std::byte> bytes) {
    note(recorded::kind::send, to, where, bytes.size());
    return inner_->send(to, where, bytes);
  }
  auto receive(int from, tag where, std::span<std::byte> into) {
    note(recorded::kind::receive, from, where, into.size());
    return inner_->receive(from, where, into);
  }
  template <class Fold>
  auto receive_fold(int from, tag where, std::span<std::byte> into, Fold fold) {
    note(recorded::kind::receive, from, where, into.size());
    return inner_->receive_fold(from, where, into, fold);
  }
  auto receive_loan(int from, tag where, std::size_t bytes) {
    note(recorded::kind::loan, from, where, bytes);
    return inner_->receive_loan(from, where, bytes);
  }
  auto receive_any(channel from_channel) {
    note(recorded::kind::any, -1, tag{from_channel, 0, 0}, 0);
    return inner_->receive_any(from_channel);
  }
  auto exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                tag where) {
    note(recorded::kind::send, to, where, out.size());
    note(recorded::kind::receive, from, where, into.size());
    return inner_->exchange(to, out, from, into, where);
  }
  template <class Fold>
  auto exchange_fold(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                     tag where, Fold fold) {
    note(recorded::kind::send, to, where, out.size());
    note(recorded::kind::receive, from, where, into.size());
    return inner_->exchange_fold(to, out, from, into, where, fold);
  }
  auto rendezvous(tag where,
                  std::span<const std::byte> bytes) requires has_addressable_peers<Transport> {
    note(recorded::kind::rendezvous, -1, where, bytes.size());
    return inner_->rendezvous(where, bytes);
  }
  auto all_reduce(tag where, std::span<float> data) requires has_all_reduce<Transport> {
    note(recorded::kind::all_reduce, -1, where, data.size_bytes());
    return inner_->all_reduce(where, data);
  }

 private:
  void note(recorded::kind what, int peer, tag where, std::size_t bytes) {
    if (log_.size() == log_.capacity()) {
      ++missed_;
    } else {
      log_.push_back({now(), rank(), peer, where, bytes, what});
    }
  }

  Transport* inner_;
  std::vector<recorded> log_;
  std::size_t missed_ = 0;
};

static_assert(transport_policy<recording<in_process>> &&
              has_addressable_peers<recording<in_process>>);

}  // namespace tutti::transport
