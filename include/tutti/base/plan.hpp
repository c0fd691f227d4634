#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"

namespace tutti {

/// Tensors that travel together: a run of the plan's order.
struct bucket {
  std::size_t first_tensor{};  ///< position
  std::size_t tensors{};
  std::size_t first_element{};
  std::size_t elements{};
  std::uint32_t first_chunk{};
  std::uint32_t chunks{};
};

/// The smallest unit that travels, and what a schedule decides on.
struct chunk {
  std::uint32_t bucket{};
  std::size_t first_element{};
  std::size_t elements{};
  /// Forward index of the earliest tensor inside: the smaller, the sooner the next forward needs
  /// it.
  std::uint32_t priority{};
  /// Rank that owns it, where the architecture places chunks; else 0.
  int placed_on{};
  /// Chunks of different kinds never share a launch: element type, class of compression, owner.
  std::uint32_t kind{};
  /// A rule has chosen its tensors for one of two compressors.
  bool chosen{};

  /// What rank `index` owns of it where each of `parts` ranks owns a part of every chunk: in all
  /// chunks together as much as the others, but for one element.
  chunk part(std::size_t parts, std::size_t index) const {
    chunk some = *this;
    some.first_element += part_begin(elements, parts, index, first_element);
    some.elements =
        first_element + part_begin(elements, parts, index + 1, first_element) - some.first_element;
    return some;
  }
};

/// What may travel and how it is grouped: a pure function of tensor sizes and options, equal on
/// every rank. All positions are in one flat index space, so that state which outlives a plan
/// (residuals, momenta) does not know of buckets: the backward order of the tensors, or, where a
/// compressor selects or a fusion keeps element types apart, that of one class of them after the
/// other. Buckets and chunks are numbered in the order in which a backward pass completes them.
struct plan {
  std::vector<tensor_facts> backward{};      ///< by position
  std::vector<std::size_t> position_of{};    ///< of each tensor, by its id
  std::vector<std::size_t> first_element{};  ///< of each position, and the end
  std::vector<std::uint32_t> bucket_of{};    ///< of each position
  std::vector<tutti::bucket> buckets{};
  std::vector<tutti::chunk> chunks{};
  std::uint64_t hash{};

  std::size_t elements() const { return first_element.empty() ? 0 : first_element.back(); }
  /// Calls `visit(position)` for each tensor that a chunk holds an element of.
  template <class Visit>
  void for_each_tensor(const chunk& piece, Visit visit) const {
    const tutti::bucket& group = buckets[piece.bucket];
    for (std::size_t i = group.first_tensor; i < group.first_tensor + group.tensors; ++i) {
      if (holds_some(piece, i)) {
        visit(i);
      }
    }
  }
  /// The chunk holds an element of the tensor at a position.
  bool holds_some(const chunk& piece, std::size_t position) const {
    return first_element[position] < piece.first_element + piece.elements &&
           piece.first_element < first_element[position + 1];
  }
  std::size_t position(tensor_id id) const { return position_of[index(id)]; }
  tensor_id at(std::size_t position) const { return backward[position].id; }
};

/// FNV-1a over whatever is fed to it, for plans, agendas and parameters.
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

/// Of which tensor is where: what is remembered by position under one plan fits another only if
/// both have the same.
inline std::uint64_t hash_of_order(const plan& made) {
  running_hash hash;
  for (const tensor_facts& each : made.backward) {
    hash.feed(std::uint64_t{index(each.id)});
  }
  return hash.value();
}

}  // namespace tutti
