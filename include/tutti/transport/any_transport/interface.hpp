#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <type_traits>

#include "tutti/base/error.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/any_transport/erased.hpp"
#include "tutti/transport/operation.hpp"

namespace tutti::transport::detail {

/// The operations of a transport, behind virtual calls.
template <class Queue>
class transport_interface {
 public:
  using fold_type = erased_fold<Queue>;
  using piecewise_fold_type = erased_piecewise_fold<Queue>;

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
  virtual const awaiting<erased_loan>& receive_loan(operation_room&, int, tag, std::size_t) = 0;
  virtual const awaiting<erased_loan>& receive_any(operation_room&, channel) = 0;
  virtual void exchange(operation_room&, int, std::span<const std::byte>, int, std::span<std::byte>,
                        tag) = 0;
  virtual void exchange_fold(operation_room&, int, std::span<const std::byte>, int,
                             std::span<std::byte>, tag, const fold_type&) = 0;
  virtual void exchange_fold(operation_room&, int, std::span<const std::byte>, int,
                             std::span<std::byte>, tag, const piecewise_fold_type&) = 0;

  virtual bool may_rendezvous_at(tag) const = 0;
  virtual const awaiting<erased_view>& rendezvous(operation_room&, tag,
                                                  std::span<const std::byte>) = 0;
  virtual shared_place place_of(std::span<const std::byte>) const = 0;
  virtual std::byte* at(int rank, shared_place) const = 0;
  /// Returns nothing if the transport has no memory of its own.
  virtual std::span<float> allocate_shared(std::size_t elements) = 0;

 protected:
  ~transport_interface() = default;
};

template <class Transport, class Queue>
class interface_of final : public transport_interface<Queue> {
  using queue_type = Queue;
  using fold_type = erased_fold<queue_type>;
  using piecewise_fold_type = erased_piecewise_fold<queue_type>;

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
  const awaiting<erased_loan>& receive_loan(operation_room& room, int from, tag where,
                                            std::size_t bytes) override {
    return begin<erased_loan>(room, [&] { return inner_->receive_loan(from, where, bytes); });
  }
  const awaiting<erased_loan>& receive_any(operation_room& room, channel from_channel) override {
    return begin<erased_loan>(room, [&] { return inner_->receive_any(from_channel); });
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

  bool may_rendezvous_at(tag where) const override {
    if constexpr (has_host_memory<Transport>) {
      return inner_->may_rendezvous_at(where);
    } else {
      return has_addressable_peers<Transport>;
    }
  }
  const awaiting<erased_view>& rendezvous(operation_room& room, tag where,
                                          std::span<const std::byte> bytes) override {
    if constexpr (has_rendezvous<Transport>) {
      return begin<erased_view>(room, [&] { return inner_->rendezvous(where, bytes); });
    } else {
      throw usage_error(
          "a rendezvous is not possible over this transport. Fix: check may_rendezvous_at first");
    }
  }
  shared_place place_of(std::span<const std::byte> bytes) const override {
    if constexpr (has_host_memory<Transport>) {
      return inner_->place_of(bytes);
    } else {
      return {has_addressable_peers<Transport> && bytes.data() != nullptr ? 1U : 0U,
              reinterpret_cast<std::uintptr_t>(bytes.data())};
    }
  }
  std::byte* at([[maybe_unused]] int rank, shared_place where) const override {
    if constexpr (has_host_memory<Transport>) {
      return inner_->at(rank, where);
    } else {
      return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(where.offset));
    }
  }
  std::span<float> allocate_shared([[maybe_unused]] std::size_t elements) override {
    if constexpr (requires {
                    { inner_->allocate_shared(elements) } -> std::same_as<std::span<float>>;
                  }) {
      return inner_->allocate_shared(elements);
    } else {
      return {};
    }
  }

 private:
  template <class Result, class Begin>
  static const awaiting<Result>& begin(operation_room& room, Begin begin_in) {
    room.hold(begin_in);
    return awaiting_an<Result, std::invoke_result_t<Begin>>;
  }

  Transport* inner_;
};

}  // namespace tutti::transport::detail
