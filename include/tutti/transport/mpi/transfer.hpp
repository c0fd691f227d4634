#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/operation.hpp"
#include "tutti/transport/segments.hpp"

namespace tutti::transport::detail {

/// One direction of one message: its pieces, which of them are posted, and which are in flight.
/// `Transfers` (mpi_transfers) moves it.
template <class Transfers>
struct transfer {
  transfer* next{};
  operation* owner{};
  tag where{};
  int peer{};
  int mpi_tag{};
  bool outgoing{};
  bool listed{};   // among transfers with pieces yet to post
  bool blocked{};  // behind another transfer of its peer and tag
  bool failed{};
  bool often_done_at_once{};
  bool lends{};              // a loan: on the coded channel, a message may be shorter than `cut`
  bool may_end_before{};     // `cut` is the longest message with this first piece
  bool in_order{};           // its memory is the queue's: MPI uses it in the queue's order
  std::size_t before_end{};  // by how many bytes the message was shorter than `cut`
  std::size_t room{};        // bytes at `data` that were taken for a loan
  std::byte* data{};         // null: each piece is received in staging and folded from there
  segments cut{};
  std::size_t posted{};
  std::size_t in_flight{};         // pieces that are posted and not over
  std::size_t late_in_flight{};    // of those in flight, the ones that are not early
  std::size_t unwritten{};         // of those in flight, the ones that wait for the queue
  std::size_t window{};            // how many late pieces may be in flight
  std::size_t granted{unlimited};  // how many of all pieces may be posted by now
  transfer* other_half{};          // of an exchange that goes in turns; null in other transfers
  seconds began{};                 // when the send of such an exchange began
  seconds waits_until{};           // when its send stops waiting for a turn, if nothing comes
  void (*fold_piece)(Transfers&, transfer&, segments::piece, const std::byte*){};
  void (*complete)(Transfers&, transfer&){};  // called when all pieces are over

  static constexpr std::size_t unlimited = SIZE_MAX;

  void enters(std::size_t piece) {
    ++in_flight;
    late_in_flight += cut.is_early(piece) ? 0U : 1U;
  }
  void leaves(std::size_t piece) {
    --in_flight;
    late_in_flight -= cut.is_early(piece) ? 0U : 1U;
  }
  bool has_more() const { return posted < cut.count(); }
  bool over() const { return in_flight == 0 && !has_more(); }
  /// Whether the next piece may be posted. If the window is unlimited, all pieces that are granted
  /// are posted at once, so that no later message overtakes them.
  bool may_post() const {
    const std::size_t early = in_flight - late_in_flight;
    const bool fits = window == unlimited || (cut.is_early(posted) ? early <= segments::most_early
                                                                   : late_in_flight < window);
    return fits && posted < std::min(granted, cut.count()) && !failed;
  }
  /// Whether its pieces are staged instead of received or sent where they belong.
  bool folds_pieces() const { return data == nullptr && fold_piece != nullptr; }
  /// Whether this is a send with nothing in flight that waits for its next turn.
  bool waits_for_a_turn() const {
    return outgoing && other_half != nullptr && in_flight == 0 && posted == granted && !blocked;
  }
  /// Whether some of it has come.
  bool begun() const { return posted > in_flight; }
  bool may_be_shorter() const { return lends && where.channel == channel::coded; }
  bool precedes(const transfer& other) const {
    return peer == other.peer && where == other.where && outgoing == other.outgoing;
  }
};

/// A receive that combines what comes with what is there. Copies are received where they belong.
/// Folds that work piecewise fold each piece as it comes; other folds take the whole message from
/// staging.
template <class Transfers, class Fold>
class folding_transfer : public transfer<Transfers> {
  using base = transfer<Transfers>;

 public:
  folding_transfer(Transfers& self, std::span<std::byte> into, Fold fold)
      : into_(into), fold_(fold) {
    this->failed = !self.queue_accepts([&] { find_place(self); });
  }

 private:
  void find_place(Transfers& self) {
    if (std::same_as<Fold, copy_bytes> && !self.stages(into_)) {
      this->in_order = self.is_the_queues(into_);
      this->data = into_.data();
    } else if constexpr (piecewise_fold<Fold>) {
      this->fold_piece = [](Transfers& by, base& which, segments::piece piece,
                            const std::byte* from) {
        auto& mine = static_cast<folding_transfer&>(which);
        mine.fold(by.queue(), mine.into_.data() + piece.offset, from, piece.size);
      };
    } else {
      this->data = self.pieces().take(into_.size());
      this->complete = [](Transfers& by, base& which) {
        auto& mine = static_cast<folding_transfer&>(which);
        if (!mine.failed) {
          mine.failed = !by.queue_accepts(
              [&] { mine.fold(by.queue(), mine.into_.data(), mine.data, mine.into_.size()); });
        }
        by.pieces().give(mine.data, mine.into_.size(), by.so_far());
      };
    }
  }

  template <class Queue>
  void fold(Queue& queue, std::byte* into, const std::byte* from, std::size_t bytes) const {
    if constexpr (!std::same_as<Fold, copy_bytes>) {  // copies are the transport's own work
      charge(queue, 3 * bytes);
    }
    fold_(queue, into, from, bytes);
  }

  std::span<std::byte> into_;
  Fold fold_;
};

}  // namespace tutti::transport::detail
