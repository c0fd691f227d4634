#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace tutti::compression {

/// The share of elements that is selected in each of the first epochs, before the final share. The
/// plan fixes a payload's length, so a trainer re-plans between epochs:
///
///     options.compression.density = warm_up(epoch, 0.001);
///     engine.replan(options);
///
/// A re-plan keeps what ranks remember.
/// After: Lin et al., "Deep Gradient Compression", ICLR 2018: 0.25, 0.0625, 0.015625, 0.004; the
/// code of Shi et al., "gTopK", ICDCS 2019: 0.004.
template <std::size_t Epochs>
struct density_warm_up {
  std::array<double, Epochs> densities;

  /// The share in epoch `epoch`, counted from 0; it is never below `last`.
  constexpr double operator()(std::size_t epoch, double last) const {
    return epoch < Epochs ? std::max(densities[epoch], last) : last;
  }
};
template <class... Densities>
density_warm_up(Densities...) -> density_warm_up<sizeof...(Densities)>;

}  // namespace tutti::compression
