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

/// Room for so many values, made one after the other where they stay, in memory of the coroutine
/// frames' pool: for what a coroutine needs in a number known at run time only. Cost: nothing is
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

  /// Adds what `make()` returns, which need not be movable. There must be room.
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

/// Operations of one kind that begin together, to be awaited one by one in their order (`next`), or
/// all at once (`all_of`). All must have been awaited before this is destroyed.
template <class Operation>
class operations {
 public:
  /// Begins `begin(0)` to `begin(count - 1)`. What one of them throws is thrown where it is
  /// awaited, for those before it are in flight.
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

  /// All that have begun are awaited, or being so.
  bool awaited() const { return next_ == begun_.size(); }
  /// The first that nobody has awaited.
  Operation& next() {
    if (awaited()) {
      rethrow();
    }
    return begun_[next_++];
  }
  /// Throws what kept one of them from beginning, if anything did.
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

/// Awaits `meanwhile` and then those operations that nobody has awaited yet. It ends when all have,
/// also when one fails, and throws what failed first: nothing of theirs is in flight afterwards.
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
      Operation& each = begun.next();  // g++ 12 would copy the result of a call
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
