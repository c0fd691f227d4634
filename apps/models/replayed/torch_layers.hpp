#pragma once

#include <cstddef>
#include <string>

#include "models/replayed/layers.hpp"

/// PyTorch's layers, whose tensors are named `weight` and `bias`.
namespace models::torch {

inline void normalise(layer_list& to, const std::string& at, data::shape of) {
  to.per_channel(at + ".weight", of);
  to.per_channel(at + ".bias", of);
}

/// Adds a convolution without bias, which the batch normalisation after it would cancel.
inline data::shape convolve(layer_list& to, const std::string& convolution, const std::string& norm,
                            data::shape in, const filters& with) {
  const data::shape out = to.convolve(convolution + ".weight", in, with);
  normalise(to, norm, out);
  return out;
}

inline void linear(layer_list& to, const std::string& at, std::size_t inputs, std::size_t outputs,
                   std::size_t positions = 1) {
  to.multiply(at + ".weight", inputs, outputs, positions);
  to.per_channel(at + ".bias", {outputs, positions, 1});
}

}  // namespace models::torch
