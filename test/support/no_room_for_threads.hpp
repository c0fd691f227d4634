#pragma once

#include <cstddef>
#include <pthread.h>

namespace tutti::test {

/// While an object of this class lives, this process can start no thread, because the default stack
/// size is too large to allocate.
class no_room_for_threads {
 public:
  no_room_for_threads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 46);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  no_room_for_threads(const no_room_for_threads&) = delete;
  no_room_for_threads& operator=(const no_room_for_threads&) = delete;
  ~no_room_for_threads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

}  // namespace tutti::test
