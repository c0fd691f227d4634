#pragma once

#include <memory>
#include <utility>

namespace tutti {

template <class Signature>
class function_ref;

/// A function of the caller's, by reference, so that what calls it is compiled once. Lives no
/// longer than what it was made of. Cost: a call through a pointer.
template <class Result, class... Arguments>
class function_ref<Result(Arguments...)> {
 public:
  template <class F>
  function_ref(const F& of)
      : of_(std::addressof(of)), call_([](const void* which, Arguments... arguments) -> Result {
          return (*static_cast<const F*>(which))(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const {
    return call_(of_, std::forward<Arguments>(arguments)...);
  }

 private:
  const void* of_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace tutti
