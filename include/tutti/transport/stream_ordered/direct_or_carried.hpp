#pragma once

#include <coroutine>
#include <new>
#include <type_traits>
#include <utility>

namespace tutti::transport::detail {

/// The operation of a message that goes one of two ways: directly, or with the carrier.
template <class Direct, class Carried>
class direct_or_carried {
 public:
  /// `make()` begins and returns an operation of either type.
  template <class Make>
  explicit direct_or_carried(Make make)
      : direct_way_(std::is_same_v<std::invoke_result_t<Make>, Direct>) {
    if constexpr (std::is_same_v<std::invoke_result_t<Make>, Direct>) {
      ::new (static_cast<void*>(&direct_)) Direct(make());
    } else {
      ::new (static_cast<void*>(&carried_)) Carried(make());
    }
  }
  direct_or_carried(const direct_or_carried&) = delete;
  direct_or_carried& operator=(const direct_or_carried&) = delete;
  ~direct_or_carried() {
    if (direct_way_) {
      direct_.~Direct();
    } else {
      carried_.~Carried();
    }
  }

  bool await_ready() { return direct_way_ ? direct_.await_ready() : carried_.await_ready(); }
  void await_suspend(std::coroutine_handle<> waiter) {
    if (direct_way_) {
      direct_.await_suspend(waiter);
    } else {
      carried_.await_suspend(waiter);
    }
  }
  decltype(auto) await_resume() {
    using result = decltype(std::declval<Direct&>().await_resume());
    if (direct_way_) {
      return direct_.await_resume();
    }
    return static_cast<result>(carried_.await_resume());
  }

 private:
  union {
    Direct direct_;
    Carried carried_;
  };
  bool direct_way_;
};

}  // namespace tutti::transport::detail
