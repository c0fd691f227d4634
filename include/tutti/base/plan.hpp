#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"

namespace tutti {

/// Tensors that are sent together: consecutive positions of the plan.
struct bucket {
  std::size_t first_tensor{};  ///< its position
  std::size_t tensors{};
  std::size_t first_element{};
  std::size_t elements{};
  std::uint32_t first_chunk{};
  std::uint32_t chunks{};
};

/// The smallest unit that is sent, and the unit that schedules order.
struct chunk {
  std::uint32_t bucket{};
  std::size_t first_element{};
  std::size_t elements{};
  /// The forward index of the chunk's earliest tensor. The smaller it is, the sooner the next
  /// forward pass needs the chunk.
  std::uint32_t priority{};
  /// The rank that owns the chunk, where the architecture places chunks, otherwise 0.
  int placed_on{};
  /// Chunks of different kinds never share a launch. Kinds differ by `chosen`, by element type
  /// where a fusion keeps types apart, and by tensor where a compressor needs each tensor alone.
  std::uint32_t kind{};
  /// Whether the rule of compression::select has chosen the chunk's tensors, which says by which of
  /// two compressors they are encoded.
  bool chosen{};

  /// Returns what rank `index` owns of the chunk where each of `parts` ranks owns a part of every
  /// chunk. Over all chunks together the ranks' parts differ by at most one element.
  chunk part(std::size_t parts, std::size_t index) const {
    chunk some = *this;
    some.first_element += part_begin(elements, parts, index, first_element);
    some.elements =
        first_element + part_begin(elements, parts, index + 1, first_element) - some.first_element;
    return some;
  }
};

/// What may be sent and how it is grouped: a pure function of tensor sizes and options, equal on
/// every rank. All positions are in one flat index space, so that state which outlives a plan
/// (residuals, momenta) does not depend on buckets. Its order is the backward order of the tensors.
/// Where a compressor selects tensors, or a fusion keeps element types apart or names groups, it is
/// the backward order of one class of tensors after the other. Buckets and chunks are numbered in
/// the order in which a backward pass completes them.
struct plan {
  std::vector<tensor_facts> backward{};      ///< by position
  std::vector<std::size_t> position_of{};    ///< of each tensor, by its id
  std::vector<std::size_t> first_element{};  ///< of each position, and the end of the last
  std::vector<std::uint32_t> bucket_of{};    ///< of each position
  std::vector<tutti::bucket> buckets{};
  std::vector<tutti::chunk> chunks{};
  std::uint64_t hash{};

  class tensors_of_a_chunk;

  std::size_t elements() const { return first_element.empty() ? 0 : first_element.back(); }
  /// Returns the positions of the tensors that arrive with a chunk: those of which it holds an
  /// element and, of its bucket's first chunk, those without elements. `piece` must be the plan's
  /// own chunk and not a copy of it.
  tensors_of_a_chunk tensors_of(const chunk& piece) const;
  /// Returns whether the chunk holds an element of the tensor at `position`.
  bool holds_some(const chunk& piece, std::size_t position) const {
    return backward[position].elements != 0 &&
           first_element[position] < piece.first_element + piece.elements &&
           piece.first_element < first_element[position + 1];
  }
  /// Returns the numbers of all chunks in the order of their places. In that order the elements of
  /// two plans are the same, whereas chunks are numbered as their buckets are completed, which
  /// depends on the fusion where tensors are of several classes.
  [[gnu::cold]] std::vector<std::uint32_t> chunks_by_place() const {
    std::vector<std::uint32_t> numbers(chunks.size());
    std::iota(numbers.begin(), numbers.end(), 0u);
    std::sort(numbers.begin(), numbers.end(), [this](std::uint32_t a, std::uint32_t b) {
      return chunks[a].first_element < chunks[b].first_element;
    });
    return numbers;
  }
  std::size_t position(tensor_id id) const { return position_of[index(id)]; }
  tensor_id at(std::size_t position) const { return backward[position].id; }
};

/// What `plan::tensors_of` returns: positions in ascending order.
class plan::tensors_of_a_chunk {
 public:
  class iterator {
   public:
    iterator(const tensors_of_a_chunk& of, std::size_t from) : of_(&of), at_(of.next(from)) {}
    std::size_t operator*() const { return at_; }
    iterator& operator++() {
      at_ = of_->next(at_ + 1);
      return *this;
    }
    bool operator==(const iterator& other) const { return at_ == other.at_; }

   private:
    const tensors_of_a_chunk* of_;
    std::size_t at_;
  };

  tensors_of_a_chunk(const plan& made, const chunk& piece)
      : plan_(&made),
        chunk_(&piece),
        begin_(made.buckets[piece.bucket].first_tensor),
        end_(begin_ + made.buckets[piece.bucket].tensors),
        is_first_(&piece == &made.chunks[made.buckets[piece.bucket].first_chunk]) {}
  iterator begin() const { return {*this, begin_}; }
  iterator end() const { return {*this, end_}; }

 private:
  /// Returns the first of them from `position` on.
  std::size_t next(std::size_t position) const {
    while (position < end_ && !holds(position)) {
      ++position;
    }
    return position;
  }
  bool holds(std::size_t position) const {
    return plan_->backward[position].elements == 0 ? is_first_
                                                   : plan_->holds_some(*chunk_, position);
  }

  const plan* plan_;
  const chunk* chunk_;
  std::size_t begin_;
  std::size_t end_;
  bool is_first_;  ///< of its bucket
};
inline plan::tensors_of_a_chunk plan::tensors_of(const chunk& piece) const {
  return {*this, piece};
}

/// An FNV-1a hash over all that is fed to it, for plans, agendas and parameters.
class running_hash {
 public:
  void feed(std::span<const std::byte> bytes) {
    for (const std::byte each : bytes) {
      state_ = (state_ ^ std::to_integer<std::uint64_t>(each)) * 0x100000001b3;
    }
  }
  void feed(std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      state_ = (state_ ^ ((value >> (8 * byte)) & 0xff)) * 0x100000001b3;
    }
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

/// Returns a hash of which tensor is at which position, and which a compressor has chosen. What is
/// remembered by position under one plan fits another plan only if their hashes are equal.
inline std::uint64_t hash_of_order(const plan& made) {
  running_hash hash;
  for (std::size_t position = 0; position < made.backward.size(); ++position) {
    const bucket& group = made.buckets[made.bucket_of[position]];
    const std::uint64_t chosen = made.chunks[group.first_chunk].chosen ? 1 : 0;
    hash.feed(std::uint64_t{index(made.at(position))} | chosen << 32);
  }
  return hash.value();
}

}  // namespace tutti
