#pragma once

#include "models/declaration.hpp"

namespace models {

/// Four small convolutions and two fully connected layers with 428,442 parameters. It classifies 90
/// % of Fashion-MNIST's test images correctly after three epochs of about 8 s of one core each on
/// oneDNN. After: Simonyan and Zisserman, "Very deep convolutional networks", 2015, at a small
/// scale.
inline declaration cnn() {
  return {.name = "cnn",
          .input = {1, 28, 28},
          .layers = {convolution{"conv1", 16, 3}, relu{},              //
                     convolution{"conv2", 16, 3}, max_pool{}, relu{},  //
                     convolution{"conv3", 32, 3}, max_pool{}, relu{},  //
                     convolution{"conv4", 64, 3}, relu{},              //
                     linear{"fc1", 128}, relu{}, linear{"fc2", 10}},
          .learning_rate = 0.03F,
          .momentum = 0.9F,
          .global_batch = 128};
}

}  // namespace models
