#pragma once

#include <array>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/operation.hpp"

namespace tutti::transport {

namespace detail {

/// A fold behind a function pointer. It keeps a copy of the fold, of at most six words.
template <class Queue>
class erased_fold {
 public:
  template <class Fold>
  explicit erased_fold(const Fold& fold)
      : call_([](const std::byte* values, Queue& queue, std::byte* into, const std::byte* from,
                 std::size_t bytes) {
          (*std::launder(reinterpret_cast<const Fold*>(values)))(queue, into, from, bytes);
        }) {
    static_assert(std::is_trivially_copyable_v<Fold> && sizeof(Fold) <= sizeof values_ &&
                  alignof(Fold) <= alignof(std::max_align_t));
    ::new (static_cast<void*>(values_.data())) Fold(fold);
  }

  void operator()(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
    call_(values_.data(), queue, into, from, bytes);
  }

 private:
  alignas(std::max_align_t) std::array<std::byte, 48> values_{};
  void (*call_)(const std::byte*, Queue&, std::byte*, const std::byte*, std::size_t);
};

/// An erased fold that may be called piece by piece. No fold's unit is coarser than 64 bytes.
template <class Queue>
class erased_piecewise_fold : public erased_fold<Queue> {
 public:
  static constexpr std::size_t unit = 64;
  using erased_fold<Queue>::erased_fold;
};

/// Room in the awaiting coroutine's frame for an operation of any transport.
class operation_room {
 public:
  operation_room() = default;
  operation_room(const operation_room&) = delete;
  operation_room& operator=(const operation_room&) = delete;
  ~operation_room() { destroy_(*this); }

  /// Constructs in place the operation that `begin()` begins and returns.
  template <class Begin>
  void hold(Begin begin) {
    using held = std::invoke_result_t<Begin>;
    static_assert(std::derived_from<held, operation> && sizeof(held) <= sizeof place_,
                  "tutti: an operation of this transport does not fit. Fix: widen operation_room");
    operation_ = ::new (static_cast<void*>(place_.data())) held(begin());
    destroy_ = [](operation_room& self) { static_cast<held*>(self.operation_)->~held(); };
  }

  operation& get() { return *operation_; }

 private:
  // Left uninitialised, which costs nothing.
  alignas(std::max_align_t) std::array<std::byte, 576> place_;
  operation* operation_{};
  void (*destroy_)(operation_room&){[](operation_room&) {}};
};

/// A loan of any transport.
class erased_loan {
 public:
  template <class Loan>
  explicit erased_loan(Loan&& lent)
      : bytes_(lent.bytes()),
        peer_(lent.peer()),
        where_(lent.where()),
        move_([](std::byte* to, std::byte* from) noexcept {
          auto* mine = std::launder(reinterpret_cast<Loan*>(from));
          if (to != nullptr) {
            ::new (static_cast<void*>(to)) Loan(std::move(*mine));
          }
          mine->~Loan();
        }) {
    static_assert(!std::is_reference_v<Loan> && sizeof(Loan) <= sizeof place_);
    ::new (static_cast<void*>(place_.data())) Loan(std::move(lent));
  }
  erased_loan(erased_loan&& other) noexcept
      : bytes_(other.bytes_),
        peer_(other.peer_),
        where_(other.where_),
        move_(std::exchange(other.move_, nullptr)) {
    if (move_ != nullptr) {
      move_(place_.data(), other.place_.data());
    }
  }
  erased_loan& operator=(erased_loan&&) = delete;
  ~erased_loan() {
    if (move_ != nullptr) {
      move_(nullptr, place_.data());
    }
  }

  std::span<const std::byte> bytes() const { return bytes_; }
  int peer() const { return peer_; }
  tag where() const { return where_; }

 private:
  std::span<const std::byte> bytes_;
  int peer_;
  tag where_;
  /// Moves the loan in its second argument to the first, unless that is null, and destroys the
  /// second.
  void (*move_)(std::byte*, std::byte*) noexcept;
  alignas(std::max_align_t) std::array<std::byte, 64> place_;
};

/// The operations of a transport, behind virtual calls.
template <class Queue>
class transport_interface {
 public:
  using fold_type = erased_fold<Queue>;
  using piecewise_fold_type = erased_piecewise_fold<Queue>;
  using lend = erased_loan (*)(operation&);

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int host_of(int rank) const = 0;
  virtual Queue& queue() = 0;
  virtual run_queue& ready_coroutines() = 0;
  virtual bool poll() = 0;
  virtual seconds idle(std::size_t idle_polls, urgency who) const = 0;
  virtual seconds now() const = 0;
  virtual void fail(std::exception_ptr why) = 0;
  virtual void abort(const std::string& reason) = 0;
  virtual const std::exception_ptr& failure() const = 0;
  virtual bool ends_by_exception() = 0;
  virtual void leave() = 0;
  virtual std::size_t in_flight() const = 0;
  virtual traffic counted() const = 0;
  virtual bool is_a_process() const = 0;
  virtual bool single_threaded() const = 0;
  [[noreturn]] virtual void abort_job(const std::string& sentence) const = 0;

  virtual void sleep(operation_room&, seconds) = 0;
  virtual void send(operation_room&, int, tag, std::span<const std::byte>) = 0;
  virtual void receive(operation_room&, int, tag, std::span<std::byte>) = 0;
  virtual void fold(operation_room&, int, tag, std::span<std::byte>, const fold_type&) = 0;
  virtual void fold(operation_room&, int, tag, std::span<std::byte>,
                    const piecewise_fold_type&) = 0;
  virtual lend receive_loan(operation_room&, int, tag, std::size_t) = 0;
  virtual lend receive_any(operation_room&, channel) = 0;
  virtual void exchange(operation_room&, int, std::span<const std::byte>, int, std::span<std::byte>,
                        tag) = 0;
  virtual void exchange_fold(operation_room&, int, std::span<const std::byte>, int,
                             std::span<std::byte>, tag, const fold_type&) = 0;
  virtual void exchange_fold(operation_room&, int, std::span<const std::byte>, int,
                             std::span<std::byte>, tag, const piecewise_fold_type&) = 0;

 protected:
  ~transport_interface() = default;
};

template <class Transport, class Queue>
class interface_of final : public transport_interface<Queue> {
  using queue_type = Queue;
  using fold_type = erased_fold<queue_type>;
  using piecewise_fold_type = erased_piecewise_fold<queue_type>;
  using lend = typename transport_interface<queue_type>::lend;

 public:
  explicit interface_of(Transport& inner) : inner_(&inner) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int host_of(int rank) const override { return inner_->host_of(rank); }
  queue_type& queue() override { return inner_->queue(); }
  run_queue& ready_coroutines() override { return inner_->ready_coroutines(); }
  bool poll() override { return inner_->poll(); }
  seconds idle(std::size_t idle_polls, urgency who) const override {
    return inner_->idle(idle_polls, who);
  }
  seconds now() const override { return inner_->now(); }
  void fail(std::exception_ptr why) override { inner_->fail(why); }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  const std::exception_ptr& failure() const override {
    if constexpr (requires { inner_->failure(); }) {
      return inner_->failure();
    } else {
      static const std::exception_ptr unknown;
      return unknown;
    }
  }
  bool ends_by_exception() override {
    if constexpr (requires { inner_->ends_by_exception(); }) {
      return inner_->ends_by_exception();
    } else {
      return false;
    }
  }
  void leave() override { tutti::leave(*inner_); }
  std::size_t in_flight() const override { return inner_->in_flight(); }
  traffic counted() const override { return inner_->counted(); }
  bool is_a_process() const override { return tutti::is_a_process(*inner_); }
  bool single_threaded() const override {
    if constexpr (requires { inner_->single_threaded(); }) {
      return inner_->single_threaded();
    } else {
      return false;
    }
  }
  [[noreturn]] void abort_job(const std::string& sentence) const override {
    abandon(*inner_, sentence);
  }

  void sleep(operation_room& room, seconds duration) override {
    room.hold([&] { return inner_->sleep(duration); });
  }
  void send(operation_room& room, int to, tag where, std::span<const std::byte> bytes) override {
    room.hold([&] { return inner_->send(to, where, bytes); });
  }
  void receive(operation_room& room, int from, tag where, std::span<std::byte> into) override {
    room.hold([&] { return inner_->receive(from, where, into); });
  }
  void fold(operation_room& room, int from, tag where, std::span<std::byte> into,
            const fold_type& with) override {
    room.hold([&] { return inner_->receive_fold(from, where, into, with); });
  }
  void fold(operation_room& room, int from, tag where, std::span<std::byte> into,
            const piecewise_fold_type& with) override {
    room.hold([&] { return inner_->receive_fold(from, where, into, with); });
  }
  lend receive_loan(operation_room& room, int from, tag where, std::size_t bytes) override {
    room.hold([&] { return inner_->receive_loan(from, where, bytes); });
    return &resume<decltype(inner_->receive_loan(from, where, bytes))>;
  }
  lend receive_any(operation_room& room, channel from_channel) override {
    room.hold([&] { return inner_->receive_any(from_channel); });
    return &resume<decltype(inner_->receive_any(from_channel))>;
  }
  void exchange(operation_room& room, int to, std::span<const std::byte> out, int from,
                std::span<std::byte> into, tag where) override {
    room.hold([&] { return inner_->exchange(to, out, from, into, where); });
  }
  void exchange_fold(operation_room& room, int to, std::span<const std::byte> out, int from,
                     std::span<std::byte> into, tag where, const fold_type& with) override {
    room.hold([&] { return inner_->exchange_fold(to, out, from, into, where, with); });
  }
  void exchange_fold(operation_room& room, int to, std::span<const std::byte> out, int from,
                     std::span<std::byte> into, tag where,
                     const piecewise_fold_type& with) override {
    room.hold([&] { return inner_->exchange_fold(to, out, from, into, where, with); });
  }

 private:
  template <class Operation>
  static erased_loan resume(operation& held) {
    return erased_loan(static_cast<Operation&>(held).await_resume());
  }

  Transport* inner_;
};

}  // namespace detail

/// A transport that is chosen at run time, whose queue is that of `Like` or derived from it. It is
/// the library's one type-erased boundary, for registries. Its clock is the wall's; where that of
/// `Like` is virtual it may be either, and `in_real_time()` says which. It does not offer the
/// transport's native all-reduce or rendezvous. It refuses transports whose messages move in the
/// order of a queue, since an engine must know that.
/// Cost: two indirect calls a message, no allocation.
template <class Like>
class any_like {
 public:
  using role = tutti::role::transport;
  using queue_type = typename Like::queue_type;
  static constexpr bool virtual_time = has_virtual_time<Like>;

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

  class erased_loan_operation {
   public:
    template <class Begin>
    explicit erased_loan_operation(Begin begin) : lend_(begin(room_)) {}

    bool await_ready() { return room_.get().await_ready(); }
    void await_suspend(std::coroutine_handle<> waiter) { room_.get().await_suspend(waiter); }
    detail::erased_loan await_resume() { return lend_(room_.get()); }

   private:
    detail::operation_room room_;
    typename detail::transport_interface<queue_type>::lend lend_;
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
    return erased_loan_operation(
        [&](auto& room) { return interface_->receive_loan(room, from, where, bytes); });
  }
  auto receive_any(channel from_channel) {
    return erased_loan_operation(
        [&](auto& room) { return interface_->receive_any(room, from_channel); });
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

 private:
  template <class Begin>
  static erased_operation begin(Begin begin_in) {
    return erased_operation(begin_in);
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
};

/// Any transport of host memory on the wall's clock.
using any_transport = any_like<in_process>;
static_assert(transport_policy<any_transport>);

}  // namespace tutti::transport
