#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "tutti/base/units.hpp"

namespace tutti::transport::detail {

/// The pieces in which a long message travels, so that the receiver can work on the first ones
/// while the rest is on its way. Both ends compute them from the message's size alone. Short
/// messages travel whole. The first piece of a long message is longer than any of these, and its
/// length says how many pieces follow. So two different sizes always differ in the length of some
/// piece, and a disagreement about the size shows without a header.
///
/// Between hosts, MPI asks the receiver before it sends a long piece, and the receiver's answer
/// queues behind everything that the receiver is sending itself. MPI sends short pieces without
/// asking (its eager protocol). A message of up to 4 MiB travels in short pieces only. In a longer
/// one they follow the first long pieces that ask, and keep the wire busy until the answers come.
class segments {
 public:
  /// The most bytes of a piece behind the first. Measured with two ranks over shared memory:
  /// cutting shorter messages costs more than it hides; in longer ones pieces keep the staging of a
  /// fold in cache and halve its time at 32 MiB.
  static constexpr std::size_t piece_limit = 4_MiB;
  static constexpr std::size_t granule = 64;
  /// The smallest size that is cut inside a host. It is no power of two, as sizes of messages often
  /// are, because a message of exactly this size is cut into one piece and an empty one.
  static constexpr std::size_t whole_limit = piece_limit + granule;
  /// The smallest size that is cut between hosts.
  static constexpr std::size_t whole_limit_far = 48_KiB + granule;
  /// The length of a short piece: with its header it stays below 64 KiB, up to which Open MPI sends
  /// over TCP without asking.
  static constexpr std::size_t early_limit = 60_KiB;
  /// The most short pieces besides the first piece, except in a message to a listener, which has no
  /// long ones. A receiver that comes late may find all of them in MPI's memory.
  static constexpr std::size_t most_early = 70;
  static constexpr std::size_t all_early = most_early * early_limit;
  /// How many long pieces ask before the short ones are sent.
  static constexpr std::size_t first_questions = 4;

  struct piece {
    std::size_t offset;
    std::size_t size;
  };

  segments() = default;
  /// Cuts a message inside a host.
  explicit segments(std::size_t bytes) : first_(bytes) {
    if (bytes >= whole_limit) {
      const std::size_t following =
          std::max<std::size_t>(1, pieces(bytes - whole_limit, piece_limit));
      first_ = whole_limit + granule * (following - 1);
      late_ = evenly(bytes - first_, following);
    }
  }
  /// Cuts a message between hosts.
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
  /// Cuts a message between hosts for a rank that receives from any rank. Such a rank looks for no
  /// message while it works on another: a question would wait until then, and the answer to it
  /// behind everything that the sender has sent meanwhile. So no piece asks. The length of the
  /// first piece gives the number of pieces that follow in five bits and an exponent, rounded up,
  /// so that up to a sixteenth of many pieces may be empty.
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
  /// Returns the cut of the longest message with a first piece of `first` bytes, for a rank that
  /// receives from any rank.
  static segments begun_by(std::size_t first) {
    segments made = whole(first);
    if (first >= whole_limit_far) {
      const std::size_t code = (first - whole_limit_far) / granule;
      made.early_ = {((16 + code % 16) << (code / 16)) - 15, early_limit};
      made.end_at(first + made.early_.count * early_limit);
    }
    return made;
  }
  /// Shortens the message to `bytes`, no more than it has now: its last pieces become shorter or
  /// empty.
  void end_at(std::size_t bytes) {
    const std::size_t rest = bytes - first_;
    early_.bytes = std::min(rest, early_.count * early_.each);
    late_.bytes = rest - early_.bytes;
  }
  /// Leaves a message in one piece, whatever its size.
  static segments whole(std::size_t bytes) {
    segments made;
    made.first_ = bytes;
    return made;
  }

  std::size_t bytes() const { return first_ + early_.bytes + late_.bytes; }
  std::size_t count() const { return 1 + early_.count + late_.count; }
  /// How many pieces are sent without asking; 0 for a message that is whole or stays inside a host.
  std::size_t early() const { return early_.count > 0 ? 1 + early_.count : 0; }
  bool is_early(std::size_t index) const {
    return early_.count > 0 && (index == 0 || is_short(index));
  }
  /// The most bytes that this piece, or any other of its kind (short or long), may have.
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
  /// How many long pieces travel between the first piece and the short ones.
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
