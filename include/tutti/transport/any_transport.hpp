#pragma once

#include <array>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <exception>
#include <new>
#include <span>
#include <string>

#include "tutti/base/line_vector.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/any_transport/erased.hpp"
#include "tutti/transport/any_transport/interface.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::transport {

/// A transport that is chosen at run time, whose queue is that of `Like` or derived from it. It is
/// the library's one type-erased boundary, for registries. Its clock is the wall's; where that of
/// `Like` is virtual it may be either, and `in_real_time()` says which. Where ranks of `Like` reach
/// each other's memory, it offers what of it the transport has (has_host_memory); threads share all
/// of theirs. It does not offer the transport's native all-reduce. It refuses transports whose
/// messages move in the order of a queue, since an engine must know that.
/// Cost: two indirect calls a message, no allocation.
template <class Like>
class any_like {
 public:
  using role = tutti::role::transport;
  using queue_type = typename Like::queue_type;
  static constexpr bool virtual_time = has_virtual_time<Like>;
  /// Whether some of the transports that it may stand for share memory between ranks.
  static constexpr bool shares_memory = has_rendezvous<Like>;

  /// `inner` must outlive it.
  template <transport_policy Transport>
  requires(std::derived_from<typename Transport::queue_type, queue_type> &&
           (virtual_time || !has_virtual_time<Transport>)&&!is_stream_ordered<Transport> &&
           !sends_what_is_written<Transport> &&
           !std::same_as<Transport, any_like>) explicit any_like(Transport& inner)
      : interface_(::new (static_cast<void*>(&place_))
                       detail::interface_of<Transport, queue_type>(inner)),
        in_real_time_(tutti::in_real_time(inner)) {
    static_assert(sizeof(detail::interface_of<Transport, queue_type>) <= sizeof place_);
  }
  any_like(const any_like&) = delete;
  any_like& operator=(const any_like&) = delete;

  int rank() const { return interface_->rank(); }
  int size() const { return interface_->size(); }
  int host_of(int rank) const { return interface_->host_of(rank); }
  queue_type& queue() { return interface_->queue(); }
  run_queue& ready_coroutines() { return interface_->ready_coroutines(); }
  bool poll() { return interface_->poll(); }
  seconds idle(std::size_t idle_polls, urgency who = urgency::waited_for) const {
    return interface_->idle(idle_polls, who);
  }
  seconds now() const { return interface_->now(); }
  void fail(std::exception_ptr why) { interface_->fail(why); }
  void abort(const std::string& reason) { interface_->abort(reason); }
  const std::exception_ptr& failure() const { return interface_->failure(); }
  bool ends_by_exception() { return interface_->ends_by_exception(); }
  void leave() { interface_->leave(); }
  std::size_t in_flight() const { return interface_->in_flight(); }
  traffic counted() const { return interface_->counted(); }
  bool in_real_time() const { return in_real_time_; }
  bool is_a_process() const { return interface_->is_a_process(); }
  /// Whether progress may be made only on the thread that calls.
  bool single_threaded() const { return interface_->single_threaded(); }
  [[noreturn]] void abort_job(const std::string& sentence) const {
    interface_->abort_job(sentence);
    std::abort();  // never reached, but g++ does not know that a virtual call does not return
  }

  class erased_operation {
   public:
    template <class Begin>
    explicit erased_operation(Begin begin) {
      begin(room_);
    }

    bool await_ready() { return room_.get().await_ready(); }
    void await_suspend(std::coroutine_handle<> waiter) { room_.get().await_suspend(waiter); }
    void await_resume() { room_.get().await_resume(); }

   private:
    detail::operation_room room_;
  };

  template <class Result>
  class erased_operation_of {
   public:
    template <class Begin>
    explicit erased_operation_of(Begin begin) : awaiting_(&begin(room_)) {}

    bool await_ready() { return awaiting_->ready(room_.get()); }
    void await_suspend(std::coroutine_handle<> waiter) { awaiting_->suspend(room_.get(), waiter); }
    Result await_resume() { return awaiting_->resume(room_.get()); }

   private:
    detail::operation_room room_;
    const detail::awaiting<Result>* awaiting_;
  };

  auto sleep(seconds duration) {
    return begin([&](auto& room) { interface_->sleep(room, duration); });
  }
  auto send(int to, tag where, std::span<const std::byte> bytes) {
    return begin([&](auto& room) { interface_->send(room, to, where, bytes); });
  }
  auto receive(int from, tag where, std::span<std::byte> into) {
    return begin([&](auto& room) { interface_->receive(room, from, where, into); });
  }
  template <class Fold>
  auto receive_fold(int from, tag where, std::span<std::byte> into, Fold fold) {
    return begin([&](auto& room) { interface_->fold(room, from, where, into, erase(fold)); });
  }
  auto receive_loan(int from, tag where, std::size_t bytes) {
    return begin<detail::erased_loan>([&](auto& room) -> auto& {
      return interface_->receive_loan(room, from, where, bytes);
    });
  }
  auto receive_any(channel from_channel) {
    return begin<detail::erased_loan>([&](auto& room) -> auto& {
      return interface_->receive_any(room, from_channel);
    });
  }
  auto exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                tag where) {
    return begin([&](auto& room) { interface_->exchange(room, to, out, from, into, where); });
  }
  template <class Fold>
  auto exchange_fold(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                     tag where, Fold fold) {
    return begin([&](auto& room) {
      interface_->exchange_fold(room, to, out, from, into, where, erase(fold));
    });
  }

  // ---- memory that ranks share (has_host_memory)

  bool may_rendezvous_at(tag where) const requires shares_memory {
    return interface_->may_rendezvous_at(where);
  }
  auto rendezvous(tag where, std::span<const std::byte> bytes) requires shares_memory {
    return begin<detail::erased_view>([&](auto& room) -> auto& {
      return interface_->rendezvous(room, where, bytes);
    });
  }
  shared_place place_of(std::span<const std::byte> bytes) const requires shares_memory {
    return interface_->place_of(bytes);
  }
  std::byte* at(int rank, shared_place where) const requires shares_memory {
    return interface_->at(rank, where);
  }
  /// Returns zeros that live as long as this object and the transport do: the transport's shared
  /// memory if it has some to give (transport::mpi), otherwise this rank's own.
  std::span<float> allocate_shared(std::size_t elements) requires shares_memory {
    const auto shared = interface_->allocate_shared(elements);
    return shared.empty() ? span_of(own_.emplace_back(elements)) : shared;
  }

 private:
  template <class Begin>
  static erased_operation begin(Begin begin_in) {
    return erased_operation(begin_in);
  }
  template <class Result, class Begin>
  static erased_operation_of<Result> begin(Begin begin_in) {
    return erased_operation_of<Result>(begin_in);
  }
  template <class Fold>
  static auto erase(const Fold& fold) {
    if constexpr (piecewise_fold<Fold>) {
      return detail::erased_piecewise_fold<queue_type>(fold);
    } else {
      return detail::erased_fold<queue_type>(fold);
    }
  }

  alignas(void*) std::array<std::byte, 2 * sizeof(void*)> place_{};
  detail::transport_interface<queue_type>* interface_;
  bool in_real_time_;
  std::deque<line_vector<float>> own_{};
};

/// Any transport of host memory on the wall's clock.
using any_transport = any_like<in_process>;
static_assert(transport_policy<any_transport> && has_host_memory<any_transport>);

}  // namespace tutti::transport
