#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/base/plan.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::architecture {

/// Runs the optimizer on this rank's share of every chunk, and keeps the optimizer's state for
/// those shares only.
template <class World>
class optimizer_shares {
 public:
  explicit optimizer_shares(World& world) : world_(&world) {
    for (const chunk& each : world.planned().chunks) {
      first_.push_back(elements_);
      elements_ += share_of(each).elements;
    }
    momenta_ = world.template allocate<float>(world.momenta_per_element() * elements_);
  }

  chunk share_of(const chunk& piece) const {
    return piece.part(at(world_->size()), at(world_->rank()));
  }

  /// Updates this rank's share of a chunk from its mean gradient.
  void update(std::uint32_t number, std::uint64_t step, std::span<const float> mean) {
    const chunk mine = share_of(world_->planned().chunks[number]);
    const std::span<float> momenta = momenta_of(number);
    const chunk_context where{
        momenta.empty() ? nullptr : momenta.data(), mine.elements, {}, step, mine.first_element};
    world_->update_piece(mine, mean, where);
  }

  /// Returns the optimizer's state chunk by chunk: for each, this rank's share, row by row.
  std::vector<std::span<float>> memories() {
    std::vector<std::span<float>> all;
    for (std::uint32_t number = 0; number < first_.size(); ++number) {
      all.push_back(momenta_of(number));
    }
    return all;
  }
  std::size_t floats() const { return momenta_.size(); }

 private:
  std::span<float> momenta_of(std::uint32_t number) {
    const std::size_t rows = world_->momenta_per_element();
    const std::size_t elements = share_of(world_->planned().chunks[number]).elements;
    return momenta_.size() == 0 ? std::span<float>()
                                : span_of(momenta_).subspan(rows * first_[number], rows * elements);
  }

  World* world_;
  std::vector<std::size_t> first_{};  ///< where each chunk's share begins among the elements owned
  std::size_t elements_ = 0;
  typename World::template memory<float> momenta_{};
};

}  // namespace tutti::architecture
