#pragma once

#include <array>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/tag.hpp"
#include "tutti/transport/operation.hpp"

/// What goes into a transport's operations and comes out of them, with its type erased.
namespace tutti::transport::detail {

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

/// Keeps an object of any type, of at most 64 bytes, until its own end.
class kept_object {
 public:
  template <class Kept>
  requires(!std::is_reference_v<Kept> &&
           !std::same_as<Kept, kept_object>) explicit kept_object(Kept&& object)
      : move_([](std::byte* to, std::byte* from) noexcept {
          auto* mine = std::launder(reinterpret_cast<Kept*>(from));
          if (to != nullptr) {
            ::new (static_cast<void*>(to)) Kept(std::move(*mine));
          }
          mine->~Kept();
        }) {
    static_assert(sizeof(Kept) <= sizeof place_ && alignof(Kept) <= alignof(std::max_align_t));
    ::new (static_cast<void*>(place_.data())) Kept(std::move(object));
  }
  kept_object(kept_object&& other) noexcept : move_(std::exchange(other.move_, nullptr)) {
    if (move_ != nullptr) {
      move_(place_.data(), other.place_.data());
    }
  }
  kept_object& operator=(kept_object&&) = delete;
  ~kept_object() {
    if (move_ != nullptr) {
      move_(nullptr, place_.data());
    }
  }

  template <class Kept>
  const Kept& as() const {
    return *std::launder(reinterpret_cast<const Kept*>(place_.data()));
  }

 private:
  /// Moves the object in its second argument to the first, unless that is null, and destroys the
  /// second.
  void (*move_)(std::byte*, std::byte*) noexcept;
  alignas(std::max_align_t) std::array<std::byte, 64> place_;
};

/// A loan of any transport.
class erased_loan {
 public:
  template <class Loan>
  requires(!std::same_as<Loan, erased_loan>) explicit erased_loan(Loan&& lent)
      : bytes_(lent.bytes()), peer_(lent.peer()), where_(lent.where()), lent_(std::move(lent)) {}

  std::span<const std::byte> bytes() const { return bytes_; }
  int peer() const { return peer_; }
  tag where() const { return where_; }

 private:
  std::span<const std::byte> bytes_;
  int peer_;
  tag where_;
  kept_object lent_;
};

/// What every rank has shown in a rendezvous of any transport.
class erased_view {
 public:
  template <class View>
  requires(!std::same_as<View, erased_view>) explicit erased_view(View&& view)
      : of_([](const kept_object& kept, int rank) { return kept.as<View>().of(rank); }),
        view_(std::move(view)) {}

  const std::byte* of(int rank) const { return of_(view_, rank); }
  template <class T>
  T shown(int rank) const {
    T value;
    std::memcpy(&value, of(rank), sizeof value);
    return value;
  }

 private:
  const std::byte* (*of_)(const kept_object&, int);
  kept_object view_;
};

/// How a coroutine awaits an operation that returns something.
template <class Result>
struct awaiting {
  bool (*ready)(operation&);
  void (*suspend)(operation&, std::coroutine_handle<>);
  Result (*resume)(operation&);
};
template <class Result, class Operation>
constexpr awaiting<Result> awaiting_an{
    [](operation& held) { return static_cast<Operation&>(held).await_ready(); },
    [](operation& held, std::coroutine_handle<> waiter) {
      static_cast<Operation&>(held).await_suspend(waiter);
    },
    [](operation& held) { return Result(static_cast<Operation&>(held).await_resume()); }};

}  // namespace tutti::transport::detail
