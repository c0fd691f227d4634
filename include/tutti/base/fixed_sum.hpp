#pragma once

#include <cstddef>

#include "tutti/base/host_device.hpp"

namespace tutti {

/// How a device adds up numbers in double: in an order that follows from how many they are and from
/// nothing else, so that every device and every run gives the same bits.
///
/// The numbers are cut into segments, one for each block of threads. A thread adds every 256th of
/// its segment; the threads' sums are folded in halves; the segments' sums are added the same way.
class fixed_sum {
 public:
  static constexpr std::size_t threads = 256;
  static constexpr std::size_t most_segments = 1024;

  explicit TUTTI_HD fixed_sum(std::size_t n) : n_(n) {
    const std::size_t wanted = (n + least_length - 1) / least_length;
    segments_ = wanted < 1 ? 1 : wanted < most_segments ? wanted : most_segments;
    length_ = (n + segments_ - 1) / segments_;
  }

  TUTTI_HD std::size_t segments() const { return segments_; }

  /// What `thread` adds of a segment; `term(i)` is called once for every i in [0, n).
  template <class Term>
  TUTTI_HD double of_thread(const Term& term, std::size_t segment, std::size_t thread) const {
    const std::size_t begin = segment * length_;
    const std::size_t end = n_ - begin < length_ ? n_ : begin + length_;
    double sum = 0;
    for (std::size_t i = begin + thread; begin < n_ && i < end; i += threads) {
      sum += static_cast<double>(term(i));
    }
    return sum;
  }

  /// One step of folding the threads' sums; half is 128, 64, … 1, and all threads are done with one
  /// before the next begins. The total is then in sums[0].
  static TUTTI_HD void fold(double* sums, std::size_t thread, std::size_t half) {
    if (thread < half) {
      sums[thread] += sums[thread + half];
    }
  }

 private:
  static constexpr std::size_t least_length = 4096;

  std::size_t n_;
  std::size_t segments_;
  std::size_t length_;
};

}  // namespace tutti
