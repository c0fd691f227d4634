#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

#include "tutti/base/sentence.hpp"

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

/// Ranks set or declare something otherwise than others, of which every rank has heard.
class disagreement : public usage_error {
 public:
  using usage_error::usage_error;
};

/// What a selection says of a NaN among the elements to choose from, wherever it was found.
[[noreturn]] inline void refuse_nan(std::uint64_t element) {
  throw usage_error(
      sentence({"gradient element ", element,
                " is not a number and has no magnitude to select by. Fix: find the step that "
                "diverged; lower the learning rate or clip the gradients."}));
}

/// Ranks can no longer work together: one is missing, silent, or declares something else. Every
/// rank that can still hear throws the same sentence.
class communication_error : public error {
 public:
  using error::error;
};

/// What is said of a payload that came with an element which its chunk has not.
[[noreturn]] inline void refuse_element(std::uint64_t element, std::uint64_t elements) {
  throw communication_error(
      sentence({"a payload names element ", element, " of a chunk that has ", elements,
                " elements. Fix: give every rank the same compression options"}));
}

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

/// A rank ends with it because others do.
inline bool tells_of_others(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const communication_error&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// `first` stays what began a job's failure: the earlier, unless it only tells of others.
inline void keep_the_first(std::exception_ptr& first, const std::exception_ptr& why) {
  if (!first || (tells_of_others(first) && !tells_of_others(why))) {
    first = why;
  }
}

/// What other ranks are told of `rank`'s failure: its words, with its number unless they name a
/// rank already. All then end with one sentence.
inline std::string verdict_of(int rank, const std::exception_ptr& failure) {
  const std::string words = what(failure);
  const bool names_a_rank = words.find("rank ") != std::string::npos;
  return names_a_rank ? words : sentence({"rank ", rank, " failed: ", words});
}

}  // namespace tutti
