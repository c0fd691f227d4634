#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"

namespace tutti {

/// Starts a thread that executes `work`. Throws usage_error if the process cannot have another
/// thread; the message names `whose` thread it is, and `fewer` says how to need fewer.
template <class Work>
std::thread start_thread(std::string_view whose, std::string_view fewer, Work work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& refused) {
    throw usage_error(
        sentence({whose, " could not start a thread: ", refused.what(), ". Fix: ", fewer,
                  ", or allow a process more threads (ulimit -u, ulimit -s)"}));
  }
}

}  // namespace tutti
