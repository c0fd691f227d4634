#pragma once

#include <algorithm>
#include <cstddef>

#include "tutti/base/units.hpp"

namespace tutti::transport::detail {

/// How a long message is cut so that its first pieces can be worked on while the rest is on its
/// way. Both ends compute it from the size alone, and the pieces of two different sizes always
/// differ somewhere in length: short messages travel whole, and the length of a first piece, longer
/// than any of these, says how many follow. So a disagreement shows without a header.
class segments {
 public:
  /// Measured with two ranks over shared memory: below, cutting costs more than it hides; above,
  /// pieces keep the staging of a fold in cache and halve its time at 32 MiB.
  static constexpr std::size_t piece_limit = 4_MiB;
  static constexpr std::size_t granule = 64;
  /// The first size that is cut. Not a power of two, for those are common and would leave a rest.
  static constexpr std::size_t whole_limit = piece_limit + granule;

  struct piece {
    std::size_t offset;
    std::size_t size;
  };

  segments() = default;
  explicit segments(std::size_t bytes) : first_(bytes) {
    if (bytes >= whole_limit) {
      following_ = std::max<std::size_t>(1, (bytes - whole_limit + piece_limit - 1) / piece_limit);
      first_ = whole_limit + granule * (following_ - 1);
      rest_ = bytes - first_;
      each_ = round_up((rest_ + following_ - 1) / following_, granule);
    }
  }
  /// One piece, whatever its size.
  static segments whole(std::size_t bytes) {
    segments made;
    made.first_ = bytes;
    return made;
  }

  std::size_t bytes() const { return first_ + rest_; }
  std::size_t count() const { return 1 + following_; }
  std::size_t longest() const { return std::max(first_, each_); }

  piece operator[](std::size_t index) const {
    if (index == 0) {
      return {0, first_};
    }
    const std::size_t begin = std::min(rest_, (index - 1) * each_);
    return {first_ + begin, std::min(each_, rest_ - begin)};
  }

 private:
  std::size_t first_ = 0;
  std::size_t rest_ = 0;
  std::size_t each_ = 0;
  std::size_t following_ = 0;
};

}  // namespace tutti::transport::detail
