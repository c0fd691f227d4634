#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/task.hpp"

namespace tutti {

/// An array of fixed capacity whose elements are constructed in place, one after the other, and
/// never move. Its memory comes from the pool of coroutine frames (base/task.hpp). It is for
/// coroutines that need a number of objects which is known only at run time. Cost: nothing is
/// allocated once the pool is warm.
template <class T>
class frame_array {
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

 public:
  explicit frame_array(std::size_t room) : room_(room), values_(take(room)) {}
  frame_array(const frame_array&) = delete;
  frame_array& operator=(const frame_array&) = delete;
  ~frame_array() {
    std::destroy_n(values_, size_);
    if (values_ != nullptr) {
      detail::frames.give(values_, room_ * sizeof(T));
    }
  }

  /// Constructs the next element from what `make()` returns, which need not be movable. There must
  /// be room.
  template <class Make>
  void add(Make make) {
    ::new (static_cast<void*>(values_ + size_)) T(make());
    ++size_;
  }

  std::size_t room() const { return room_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t index) { return values_[index]; }
  std::span<const T> span() const { return {values_, size_}; }

 private:
  static T* take(std::size_t room) {
    return room == 0 ? nullptr : static_cast<T*>(detail::frames.take(room * sizeof(T)));
  }

  std::size_t room_;
  T* values_;
  std::size_t size_ = 0;
};

/// Operations of one type that begin together. They are awaited one by one in order (`next`) or all
/// together (`all_of`). All must have been awaited before this is destroyed.
template <class Operation>
class operations {
 public:
  /// Begins the operations `begin(0)` to `begin(count - 1)`. If one of them throws, the exception
  /// is kept until that operation would be awaited, because those before it are in flight.
  template <class Begin>
  operations(std::size_t count, Begin begin) : begun_(count) {
    try {
      for (std::size_t index = 0; index < count; ++index) {
        begun_.add([&] { return begin(index); });
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  /// Whether every operation that has begun has been handed out by `next`.
  bool awaited() const { return next_ == begun_.size(); }
  /// Returns the first operation that has not been awaited. If all that have begun have been
  /// awaited, throws what kept the next one from beginning.
  Operation& next() {
    if (awaited()) {
      rethrow();
    }
    return begun_[next_++];
  }
  /// Throws what kept an operation from beginning, if anything did.
  void rethrow() const {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  frame_array<Operation> begun_;
  std::size_t next_ = 0;
  std::exception_ptr failure_;
};
template <class Begin>
operations(std::size_t, Begin) -> operations<std::invoke_result_t<Begin&, std::size_t>>;

/// Awaits `meanwhile` and then every operation that has not been awaited yet. It ends only when all
/// have completed, even if one fails, so that none is in flight afterwards. Then it throws the
/// first failure.
template <class Operation>
task all_of(operations<Operation>& begun, task meanwhile = {}) {
  std::exception_ptr failure;
  try {
    co_await meanwhile;
  } catch (...) {
    failure = std::current_exception();
  }
  while (!begun.awaited()) {
    try {
      Operation& each = begun.next();  // named, because g++ 12 would copy the result of a call
      co_await each;
    } catch (...) {
      if (!failure) {
        failure = std::current_exception();
      }
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  begun.rethrow();
}

}  // namespace tutti
