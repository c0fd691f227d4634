#pragma once

#include <memory>

namespace tutti {

/// A question of the caller's, by reference, so that what asks it again and again is compiled once.
/// Lives no longer than what it was made of. Cost: a call through a pointer.
class predicate {
 public:
  template <class F>
  predicate(const F& asks)
      : of_(std::addressof(asks)),
        answer_([](const void* of) -> bool { return (*static_cast<const F*>(of))(); }) {}

  bool operator()() const { return answer_(of_); }

 private:
  const void* of_;
  bool (*answer_)(const void*);
};

}  // namespace tutti
