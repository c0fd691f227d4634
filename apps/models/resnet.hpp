#pragma once

#include "models/declaration.hpp"

namespace models {

/// Twenty layers for small images, of 32 x 32 pixels unless its `input` is set to others: 269,722
/// parameters with three channels and ten classes. After: He et al., "Deep residual learning",
/// 2016, section 4.2, with shortcuts without parameters (option A).
declaration resnet20();

/// ImageNet's: 25,557,032 parameters in 161 tensors, named and ordered as torchvision's, the stride
/// in a block's middle convolution. After: the same, and Goyal et al., "Accurate, large minibatch
/// SGD", 2017.
declaration resnet50();

}  // namespace models
