#pragma once

#include "models/declaration.hpp"

namespace models {

/// Three fully connected layers, 535,818 parameters.
inline declaration mlp() {
  return {.name = "mlp",
          .input = {1, 28, 28},
          .layers = {linear{"fc1", 512}, relu{}, linear{"fc2", 256}, relu{}, linear{"fc3", 10}},
          .learning_rate = 0.05F,
          .momentum = 0.9F,
          .global_batch = 128};
}

}  // namespace models
