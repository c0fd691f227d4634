#pragma once

#if __cplusplus < 202002L  // else the first error would be about -fcoroutines
#error "tutti needs C++20. Fix: -std=c++20"
#endif

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

#include "tutti/base/sentence.hpp"

namespace tutti {

/// The base of tutti's exceptions. The message is one sentence that names the culprit and the fix.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller's input is wrong: a flag, a file, a size or an order of calls.
class usage_error : public error {
 public:
  using error::error;
};

/// The ranks' settings or declarations differ. Every rank knows of it, so that no rank need be
/// told.
class disagreement : public usage_error {
 public:
  using usage_error::usage_error;
};

/// A selection has found a NaN. `element` is counted from `chunk_context::drawn_from`. An engine,
/// which knows the tensor, replaces this error by a usage_error that names it.
class no_magnitude : public usage_error {
 public:
  explicit no_magnitude(std::uint64_t its_element)
      : usage_error(said_of(sentence({"gradient element ", its_element}))), element(its_element) {}

  static std::string said_of(const std::string& which) {
    return which +
           " is not a number and has no magnitude to select by. Fix: find the step that diverged; "
           "lower the learning rate or clip the gradients";
  }

  std::uint64_t element;
};

/// Throws the error of a selection that has found a NaN among its elements, on the host or on a
/// device.
[[noreturn]] inline void refuse_nan(std::uint64_t element) { throw no_magnitude(element); }

/// Ranks can no longer work together: one is missing, silent, or declares something else. Every
/// rank that can still receive messages throws it with the same sentence.
class communication_error : public error {
 public:
  using error::error;
};

/// Throws the error of a received payload that names an element beyond the end of its chunk.
[[noreturn]] inline void refuse_element(std::uint64_t element, std::uint64_t elements) {
  throw communication_error(
      sentence({"a payload names element ", element, " of a chunk that has ", elements,
                " elements. Fix: give every rank the same compression options"}));
}

/// Returns the message of any exception.
inline std::string what(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

/// Returns whether the failure is one with which a rank ends because other ranks do.
inline bool tells_of_others(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const communication_error&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// Keeps in `first` the cause of a job's failure: the earlier of the two, unless that only reports
/// the failure of other ranks and `why` does not.
inline void keep_the_first(std::exception_ptr& first, const std::exception_ptr& why) {
  if (!first || (tells_of_others(first) && !tells_of_others(why))) {
    first = why;
  }
}

/// Returns what other ranks are told of `rank`'s failure: its message, preceded by the rank's
/// number unless the message names a rank already. All ranks then end with one sentence.
inline std::string verdict_of(int rank, const std::exception_ptr& failure) {
  const std::string words = what(failure);
  const bool names_a_rank = words.find("rank ") != std::string::npos;
  return names_a_rank ? words : sentence({"rank ", rank, " failed: ", words});
}

}  // namespace tutti
