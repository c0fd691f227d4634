#pragma once

#include "models/declaration.hpp"

namespace models {

/// Two convolutions and two fully connected layers, 207,178 parameters.
/// After: LeCun et al., "Gradient-based learning applied to document recognition", 1998.
inline declaration cnn() {
  return {.name = "cnn",
          .input = {1, 28, 28},
          .layers = {convolution{"conv1", 16, 5}, relu{}, max_pool{},  //
                     convolution{"conv2", 32, 3}, relu{}, max_pool{},  //
                     linear{"fc1", 128}, relu{}, linear{"fc2", 10}},
          .learning_rate = 0.05F,
          .momentum = 0.9F,
          .global_batch = 128};
}

}  // namespace models
