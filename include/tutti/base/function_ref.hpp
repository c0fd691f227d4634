#pragma once

#include <memory>
#include <utility>

namespace tutti {

template <class Signature>
class function_ref;

/// A reference to a caller's function object, so that the function which takes it is no template
/// and is compiled once. The function object must outlive it. Cost: a call through a pointer.
template <class Result, class... Arguments>
class function_ref<Result(Arguments...)> {
 public:
  template <class F>
  function_ref(const F& of) : of_(std::addressof(of)), call_(call<F>) {}

  Result operator()(Arguments... arguments) const {
    return call_(of_, std::forward<Arguments>(arguments)...);
  }

 private:
  template <class F>
  static Result call(const void* which, Arguments... arguments) {
    return (*static_cast<const F*>(which))(std::forward<Arguments>(arguments)...);
  }

  const void* of_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace tutti
