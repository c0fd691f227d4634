#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "tutti/base/units.hpp"

namespace tutti::transport::detail {

/// How a long message is cut so that its first pieces can be worked on while the rest is on its
/// way. Both ends compute it from the size alone, and the pieces of two different sizes always
/// differ somewhere in length: short messages travel whole, and the length of a first piece, longer
/// than any of these, says how many follow. So a disagreement shows without a header.
///
/// Between hosts long pieces ask their receiver before they travel, and its answer stands behind
/// all that it is sending itself. Short pieces ask nobody: messages of up to 4 MiB travel in these,
/// and of longer ones they follow the first questions and keep the wire busy until the answers
/// come.
class segments {
 public:
  /// Measured with two ranks over shared memory: below, cutting costs more than it hides; above,
  /// pieces keep the staging of a fold in cache and halve its time at 32 MiB.
  static constexpr std::size_t piece_limit = 4_MiB;
  static constexpr std::size_t granule = 64;
  /// The first size that is cut. Not a power of two, for those are common and would leave a rest.
  static constexpr std::size_t whole_limit = piece_limit + granule;
  /// The first size that is cut between hosts.
  static constexpr std::size_t whole_limit_far = 48_KiB + granule;
  /// So long are pieces that ask nobody: with its header less than 64 KiB, Open MPI's limit over
  /// TCP.
  static constexpr std::size_t early_limit = 60_KiB;
  /// So many beside the first. Whoever comes late may find them all in MPI's memory.
  static constexpr std::size_t most_early = 70;
  static constexpr std::size_t all_early = most_early * early_limit;
  /// So many long pieces ask before the early ones are sent.
  static constexpr std::size_t first_questions = 4;

  struct piece {
    std::size_t offset;
    std::size_t size;
  };

  segments() = default;
  /// Inside a host.
  explicit segments(std::size_t bytes) : first_(bytes) {
    if (bytes >= whole_limit) {
      const std::size_t following =
          std::max<std::size_t>(1, pieces(bytes - whole_limit, piece_limit));
      first_ = whole_limit + granule * (following - 1);
      late_ = evenly(bytes - first_, following);
    }
  }
  static segments between_hosts(std::size_t bytes) {
    if (bytes < whole_limit_far) {
      return whole(bytes);
    }
    const std::size_t beyond = bytes - whole_limit_far;
    const std::size_t shorts = std::max<std::size_t>(1, pieces(beyond, early_limit));
    const std::size_t following =
        shorts <= most_early
            ? shorts
            : most_early + std::max<std::size_t>(1, pieces(beyond - all_early, piece_limit));
    segments made = whole(whole_limit_far + granule * (following - 1));
    made.early_ = {std::min(following, most_early), early_limit};
    made.late_ = {following - made.early_.count, piece_limit};
    made.end_at(bytes);
    return made;
  }
  /// For a rank that receives from anybody, and looks for no message while it works on another: a
  /// question would wait until then, and the answer to it behind all that the sender has sent
  /// meanwhile. So no piece asks, and as many follow as the first says in five bits and an
  /// exponent: of many up to a sixteenth may be empty.
  static segments to_a_listener(std::size_t bytes) {
    if (bytes < whole_limit_far) {
      return whole(bytes);
    }
    const std::size_t shorts =
        std::max<std::size_t>(1, pieces(bytes - whole_limit_far, early_limit)) + 15;
    const auto exponent = static_cast<std::size_t>(std::bit_width(shorts)) - 5;
    const std::size_t mantissa = pieces(shorts, std::size_t{1} << exponent);
    const std::size_t code = 16 * exponent + mantissa - 16;
    segments made = begun_by(whole_limit_far + granule * code);
    made.end_at(bytes);
    return made;
  }
  /// What comes to a listener with a first piece of so many bytes: the longest message that begins
  /// so.
  static segments begun_by(std::size_t first) {
    segments made = whole(first);
    if (first >= whole_limit_far) {
      const std::size_t code = (first - whole_limit_far) / granule;
      made.early_ = {((16 + code % 16) << (code / 16)) - 15, early_limit};
      made.end_at(first + made.early_.count * early_limit);
    }
    return made;
  }
  /// The message has `bytes`, no more than it might have had: its last pieces are shorter, or
  /// empty.
  void end_at(std::size_t bytes) {
    const std::size_t rest = bytes - first_;
    early_.bytes = std::min(rest, early_.count * early_.each);
    late_.bytes = rest - early_.bytes;
  }
  /// One piece, whatever its size.
  static segments whole(std::size_t bytes) {
    segments made;
    made.first_ = bytes;
    return made;
  }

  std::size_t bytes() const { return first_ + early_.bytes + late_.bytes; }
  std::size_t count() const { return 1 + early_.count + late_.count; }
  /// So many pieces ask nobody; none inside a host.
  std::size_t early() const { return early_.count > 0 ? 1 + early_.count : 0; }
  bool is_early(std::size_t index) const {
    return early_.count > 0 && (index == 0 || is_short(index));
  }
  /// The most bytes that this piece, or one of its kind, may have.
  std::size_t longest(std::size_t index) const {
    if (early_.count > 0) {
      return is_early(index) ? std::max(first_, early_.each) : late_.each;
    }
    return std::max(first_, late_.each);
  }

  piece operator[](std::size_t index) const {
    if (index == 0) {
      return {0, first_};
    }
    if (is_short(index)) {
      return early_.at(first_, index - 1 - asking());
    }
    const std::size_t before = index > asking() ? early_.count : 0;
    return late_.at(first_ + early_.bytes, index - 1 - before);
  }

 private:
  /// Pieces of one length, the last of which may be shorter.
  struct run {
    std::size_t count{};
    std::size_t each{};
    std::size_t bytes{};

    piece at(std::size_t offset, std::size_t index) const {
      const std::size_t begin = std::min(bytes, index * each);
      return {offset + begin, std::min(each, bytes - begin)};
    }
  };
  /// Long pieces behind the first and before the short ones.
  std::size_t asking() const { return std::min(first_questions, late_.count); }
  bool is_short(std::size_t index) const {
    return index > asking() && index <= asking() + early_.count;
  }
  static run evenly(std::size_t bytes, std::size_t count) {
    return {count, round_up(pieces(bytes, count), granule), bytes};
  }
  static std::size_t pieces(std::size_t bytes, std::size_t each) {
    return (bytes + each - 1) / each;
  }

  std::size_t first_ = 0;
  run early_{};
  run late_{};
};

}  // namespace tutti::transport::detail
