#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace tutti {

/// What tutti throws when it cannot go on: one sentence that names the culprit and the fix.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller's input is wrong: a flag, a file, a size, an order of calls.
class usage_error : public error {
 public:
  using error::error;
};

/// Ranks can no longer work together: one is missing, silent, or declares something else. Every
/// rank that can still hear throws the same sentence.
class communication_error : public error {
 public:
  using error::error;
};

/// The words of any exception.
inline std::string what(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace tutti
