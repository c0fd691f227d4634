#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/coordination/words.hpp"

namespace tutti::coordination {

inline constexpr std::uint32_t no_chunk = 0xffffffff;

/// A digest of launches in their order.
class launch_digest {
 public:
  /// Adds a launch, and returns the digest.
  std::uint32_t add(std::span<const std::uint32_t> chunks) {
    for (const std::uint32_t each : chunks) {
      feed(each);
    }
    feed(no_chunk);
    return state_ >> 16;
  }

 private:
  void feed(std::uint32_t word) { state_ = (state_ ^ word) * 0x01000193; }
  std::uint32_t state_ = 0x811c9dc5;
};

/// The launches that rank 0 has decided, in its order, until this rank carries them out. There is
/// room for `room(plan)` words that are not carried out yet; rank 0 sees to it that there are no
/// more.
template <bool Gathers>
class decided {
 public:
  [[gnu::cold]] explicit decided(const plan& made)
      : words_(room(made)), after_(Gathers ? made.chunks.size() : 0, no_chunk) {}

  /// Returns how many words rank 0 may be ahead of what a rank has carried out.
  static std::size_t room(const plan& made) { return std::bit_ceil(8 * made.chunks.size() + 64); }

  /// Takes what rank 0 has said; throws communication_error if words are missing or out of order.
  void hear(std::span<const std::uint32_t> said) {
    for (std::size_t i = 0; i < said.size();) {
      const std::uint32_t low = said[i] & words::low;
      std::size_t length = 1;
      if (!words::is_notice(low)) {
        const std::size_t several = low & words::several ? low - words::several : 0;
        length += several;
        if (i + length > said.size() ||
            digest_.add(several ? said.subspan(i + 1, several) : std::span(&low, 1)) !=
                said[i] >> 16) {
          throw communication_error("rank 0's decisions have reached this rank in another order");
        }
      }
      push(said.subspan(i, length));
      i += length;
    }
  }

  /// Takes words unchecked, as rank 0 does those that it has decided itself.
  void push(std::span<const std::uint32_t> record) {
    for (const std::uint32_t word : record) {
      at(heard_++) = word;
    }
  }

  /// Returns the oldest launch, by its first chunk, once all its chunks are ready and its words are
  /// among the first `left` that were ever decided.
  template <class IsReady>
  std::optional<std::uint32_t> next(IsReady is_ready, std::size_t left) {
    while (carried_out_ != heard_) {
      const std::uint32_t low = at(carried_out_) & words::low;
      if (words::is_notice(low)) {
        ++carried_out_;
        (low == words::acknowledge ? asked_ : all_have_joined_) = true;
        continue;
      }
      const std::size_t several = low & words::several ? low - words::several : 0;
      const std::size_t end = carried_out_ + 1 + several;
      if (end > left || !is_whole(low, several, is_ready)) {
        return std::nullopt;
      }
      found_ready_ = 0;
      const std::uint32_t first = several ? at(carried_out_ + 1) : low;
      std::uint32_t last = first;
      for (std::size_t i = 1; i < several; ++i) {
        link(last, at(carried_out_ + 1 + i));
        last = at(carried_out_ + 1 + i);
      }
      link(last, no_chunk);
      carried_out_ = end;
      return first;
    }
    return std::nullopt;
  }

  /// Visits the chunks of all launches decided since the last call.
  template <class Visit>
  void look(Visit visit) {
    while (looked_at_ != heard_) {
      const std::uint32_t low = at(looked_at_++) & words::low;
      if (words::is_notice(low)) {
        continue;
      }
      if (low < words::several) {
        visit(low);
      } else {
        for (const std::size_t end = looked_at_ + (low - words::several); looked_at_ != end;) {
          visit(at(looked_at_++));
        }
      }
    }
  }

  /// Returns the chunk after this one in its launch, or no_chunk.
  std::uint32_t after(std::uint32_t chunk) const {
    if constexpr (Gathers) {
      return after_[chunk];
    } else {
      return no_chunk;
    }
  }

  void link(std::uint32_t chunk, std::uint32_t next) {
    if constexpr (Gathers) {
      after_[chunk] = next;
    }
  }

  /// Returns the chunk that the oldest launch waits for here, if it waits.
  template <class IsReady>
  std::optional<std::uint32_t> stuck(IsReady is_ready) const {
    if (carried_out_ == heard_) {
      return std::nullopt;
    }
    const std::uint32_t low = at(carried_out_) & words::low;
    if (words::is_notice(low)) {
      return std::nullopt;
    }
    const std::uint32_t chunk = low & words::several ? at(carried_out_ + 1 + found_ready_) : low;
    return is_ready(chunk) ? std::nullopt : std::optional(chunk);
  }

  std::size_t carried_out() const { return carried_out_; }
  /// Returns whether rank 0 has asked since the last call how far this rank is.
  bool asked() { return std::exchange(asked_, false); }
  bool is_asked() const { return asked_; }
  /// Returns whether rank 0 has said since the last call that every rank has joined.
  bool all_have_joined() { return std::exchange(all_have_joined_, false); }

 private:
  /// Whether all chunks of the oldest launch are ready. A chunk that has been found ready stays so,
  /// and is not looked at again.
  template <class IsReady>
  bool is_whole(std::uint32_t low, std::size_t several, IsReady is_ready) {
    if (several == 0) {
      return is_ready(low);
    }
    while (found_ready_ < several && is_ready(at(carried_out_ + 1 + found_ready_))) {
      ++found_ready_;
    }
    return found_ready_ == several;
  }
  std::uint32_t& at(std::size_t place) { return words_[place & (words_.size() - 1)]; }
  std::uint32_t at(std::size_t place) const { return words_[place & (words_.size() - 1)]; }

  std::vector<std::uint32_t> words_;
  std::vector<std::uint32_t> after_;
  launch_digest digest_{};
  std::size_t heard_ = 0;
  std::size_t carried_out_ = 0;
  std::size_t looked_at_ = 0;
  std::size_t found_ready_ = 0;
  bool asked_ = false;
  bool all_have_joined_ = false;
};

}  // namespace tutti::coordination
