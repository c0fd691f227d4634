#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "tutti/base/assert.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/kernels/copies.hpp"
#include "tutti/role/compression.hpp"

namespace tutti {

/// What a compressor remembers of the elements that travel: `rows` rows, each a float for every
/// element of the plan.
struct remembered_rows {
  std::span<float> floats{};
  std::size_t rows{};
};

/// Who writes a launch's data into its buffer and takes the result from there: the model's buckets,
/// from which the optimizer is given its mean, or an architecture that updates parameters itself.
enum class written { by_the_model, by_the_architecture };

/// The buffers of launches that a fusion gathers at run time. There are a few of them, given out in
/// the order of launches. Chunks that are neighbours already, in memory and in the plan, stay where
/// they are. Others are gathered, together with what is remembered of their elements, so that every
/// compressor sees one run, and are scattered afterwards.
/// Where owners of elements remember something of them, every rank owns a share of each chunk,
/// whichever chunks it travels with. The shares of one rank lie side by side in the buffer, so that
/// chunks which travel together are always gathered.
/// A launch takes the smallest free buffer that is large enough. If none is, the largest free one
/// is allocated anew, as large as the launch. Cost: the memory of the buffers' elements and rows,
/// and a copy in and out of what is gathered.
template <class Queue>
class fusion_buffers {
  using queue_event = typename Queue::event;
  /// Whether the queue works later, so that whatever it reads, lists of copies included, must stay.
  static constexpr bool works_later = requires(queue_event until) { Queue::passed(until); }
  &&!std::is_same_v<Queue, inline_queue>;

 public:
  static constexpr std::size_t count = 4;

  struct buffer {
    std::vector<std::uint32_t> chunks{};
    std::span<float> data{};            ///< of all chunks, side by side
    std::vector<std::size_t> shares{};  ///< begin of each rank's share, and the end; or none
    chunk_context worker{};
    chunk_context owner{};
    memory_of<std::byte, Queue> workspace{};

   private:
    friend fusion_buffers;
    memory_of<float, Queue> floats_{};
    memory_of<std::byte, Queue> scratch_{};
    std::vector<kernels::copy_run> in_{};
    std::vector<kernels::copy_run> out_{};
    std::size_t works_for_ = 0;  ///< elements that workspace and scratch suffice for
    std::size_t holds_ = 0;      ///< elements that `floats_` has room for, with their rows
    std::size_t copied_ = 0;
    queue_event until_{};
    bool is_taken_ = false;
  };

  /// Bytes that architectures and compressors work in, beside the elements of a launch.
  struct room {
    std::size_t workspace_bytes{};
    std::size_t scratch_bytes{};
  };

  /// Makes buffers of `most` elements, divided into `shares` shares. `room_of(elements)` is the
  /// room that a launch needs beside its elements.
  template <class RoomOf>
  fusion_buffers(Queue& queue, const plan& made, const model_memory<Queue>& model, std::size_t most,
                 RoomOf room_of, remembered_rows worker, remembered_rows owner, std::size_t shares)
      : plan_(&made), model_(&model), rows_{worker, owner}, shares_(shares) {
    for (buffer& each : buffers_) {
      each.chunks.reserve(made.chunks.size());
      each.shares.resize(shares > 1 ? shares + 1 : 0);
      if (!model.phantom()) {
        make_room(queue, each, most, room_of(most));
        make_floats(queue, each, most);
        each.in_.reserve(rows() * shares * made.chunks.size());
        each.out_.reserve(rows() * shares * made.chunks.size());
      }
    }
  }
  fusion_buffers(const fusion_buffers&) = delete;
  fusion_buffers& operator=(const fusion_buffers&) = delete;

  bool any_free() const {
    return loops::any_of(buffers_, [](const buffer& each) { return is_free(each); });
  }
  /// Takes a free buffer with room for so many elements, and empties its list of chunks. Call it
  /// only if `any_free()`.
  template <class RoomOf>
  buffer& take(Queue& queue, std::size_t elements, RoomOf room_of) {
    buffer* best = nullptr;
    for (buffer& each : buffers_) {
      if (is_free(each) && (best == nullptr || fits_better(each, *best, elements))) {
        best = &each;
      }
    }
    if (best->works_for_ < elements && !model_->phantom()) {
      make_room(queue, *best, elements, room_of(elements));
    }
    best->is_taken_ = true;
    best->chunks.clear();
    return *best;
  }
  void give_back(Queue& queue, buffer& used) {
    if constexpr (works_later) {
      used.until_ = queue.record();
    }
    used.is_taken_ = false;
  }

  /// Decides where the launch's chunks lie in step `step`, and lists the copies that gather and
  /// scatter them. The data is copied from the model's buckets unless the architecture writes it.
  [[gnu::noinline]] void lay_out(Queue& queue, buffer& mine, std::uint64_t step, written by) const {
    std::size_t elements = 0;
    bool neighbours = true;
    const chunk* last = nullptr;
    for (const std::uint32_t number : mine.chunks) {
      const chunk& piece = plan_->chunks[number];
      elements += piece.elements;
      if (piece.elements != 0) {
        neighbours = neighbours && (last == nullptr || (shares_ == 1 && follows(*last, piece)));
        last = &piece;
      }
    }
    mine.in_.clear();
    mine.out_.clear();
    mine.copied_ = 0;
    const chunk& first = first_of(mine);
    const auto scratch = span_of(mine.scratch_);
    for (std::size_t share = 0; share < mine.shares.size(); ++share) {
      mine.shares[share] = 0;
      for (const std::uint32_t number : mine.chunks) {
        const chunk& whole = plan_->chunks[number];
        mine.shares[share] += part_begin(whole.elements, shares_, share, whole.first_element);
      }
    }
    mine.worker = chunk_context{nullptr, 0, scratch, step, first.first_element};
    mine.owner = mine.worker;
    if (model_->phantom() || neighbours) {
      mine.data = {model_->data(first).data(), elements};
      const std::size_t stride = plan_->elements();
      mine.worker.memory = at(rows_[0], first.first_element);
      mine.owner.memory = at(rows_[1], first.first_element);
      mine.worker.stride = mine.owner.stride = stride;
      return;
    }
    if (mine.holds_ < elements) {
      make_floats(queue, mine, elements);
    }
    mine.data = span_of(mine.floats_).first(elements);
    mine.worker.memory = mine.floats_.data() + mine.holds_;
    mine.owner.memory = mine.floats_.data() + mine.holds_ * (1 + rows_[0].rows);
    mine.worker.stride = mine.owner.stride = mine.holds_;
    mine.worker.random_offset = mine.owner.random_offset =
        plan_->elements() * (1 + std::uint64_t{mine.chunks.front()}) - first.first_element;
    std::size_t place = 0;
    for (std::size_t share = 0; share < shares_; ++share) {
      for (const std::uint32_t number : mine.chunks) {
        const chunk piece = plan_->chunks[number].part(shares_, share);
        if (by == written::by_the_model) {
          list(mine, model_->data(piece).data(), mine.data.data() + place, piece.elements);
        }
        list_rows(mine, rows_[0], piece, mine.worker.memory + place);
        list_rows(mine, rows_[1], piece, mine.owner.memory + place);
        place += piece.elements;
      }
    }
  }

  /// Calls `visit(chunk, place)` for each chunk of the launch with its place in the buffer, which
  /// is empty where nothing is computed.
  template <class Visit>
  void for_each_part(const buffer& mine, Visit visit) const {
    TUTTI_ASSERT(shares_ == 1, "what an architecture writes is not laid out in shares");
    std::size_t place = 0;
    for (const std::uint32_t number : mine.chunks) {
      const chunk& piece = plan_->chunks[number];
      visit(piece,
            model_->phantom() ? std::span<float>() : mine.data.subspan(place, piece.elements));
      place += piece.elements;
    }
  }

  void gather(Queue& queue, const buffer& mine) const { copy(queue, mine, mine.in_); }
  void scatter(Queue& queue, const buffer& mine) const { copy(queue, mine, mine.out_); }

 private:
  static bool is_free(const buffer& each) {
    if constexpr (works_later) {
      return !each.is_taken_ && Queue::passed(each.until_);
    } else {
      return !each.is_taken_;
    }
  }

  /// Prefers the smaller of two buffers that are large enough, otherwise the larger.
  static bool fits_better(const buffer& one, const buffer& other, std::size_t elements) {
    return other.works_for_ < elements
               ? one.works_for_ > other.works_for_
               : elements <= one.works_for_ && one.works_for_ < other.works_for_;
  }
  std::size_t rows() const { return 1 + rows_[0].rows + rows_[1].rows; }
  [[gnu::cold]] static void make_room(Queue& queue, buffer& mine, std::size_t elements, room its) {
    mine.workspace = allocate<std::byte>(queue, its.workspace_bytes);
    mine.scratch_ = allocate<std::byte>(queue, its.scratch_bytes);
    mine.works_for_ = elements;
  }
  [[gnu::cold]] void make_floats(Queue& queue, buffer& mine, std::size_t elements) const {
    mine.floats_ = memory_of<float, Queue>();  // frees the old memory before the new is allocated
    mine.floats_ = allocate_zeros<float>(queue, rows() * elements);
    mine.holds_ = elements;
  }

  bool follows(const chunk& one, const chunk& next) const {
    return one.first_element + one.elements == next.first_element &&
           (model_->phantom() ||
            model_->data(one).data() + one.elements == model_->data(next).data());
  }
  const chunk& first_of(const buffer& mine) const {
    for (const std::uint32_t number : mine.chunks) {
      if (plan_->chunks[number].elements != 0) {
        return plan_->chunks[number];
      }
    }
    return plan_->chunks[mine.chunks.front()];
  }
  static float* at(const remembered_rows& all, std::size_t element) {
    return all.floats.empty() ? nullptr : all.floats.data() + element;
  }

  [[gnu::noinline]] static void list(buffer& mine, float* outside, float* inside,
                                     std::size_t elements) {
    if (elements != 0) {
      mine.in_.push_back({outside, inside, elements});
      mine.out_.push_back({inside, outside, elements});
      mine.copied_ += elements;
    }
  }
  void list_rows(buffer& mine, const remembered_rows& from, const chunk& piece,
                 float* inside) const {
    for (std::size_t row = 0; row < from.rows; ++row) {
      list(mine, from.floats.data() + row * plan_->elements() + piece.first_element,
           inside + row * mine.holds_, piece.elements);
    }
  }

  [[gnu::noinline]] void copy(Queue& queue, const buffer& mine,
                              std::span<const kernels::copy_run> runs) const {
    if (!runs.empty()) {
      charge(queue, 2 * sizeof(float) * mine.copied_);
      kernels::copy_runs(queue, runs);
    }
  }

  const plan* plan_;
  const model_memory<Queue>* model_;
  std::array<remembered_rows, 2> rows_;
  std::size_t shares_;
  std::array<buffer, count> buffers_{};
};

}  // namespace tutti
