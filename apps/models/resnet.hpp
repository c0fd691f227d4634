#pragma once

#include "models/declaration.hpp"

namespace models {

/// Twenty layers for small images, of 32 x 32 pixels unless its `input` is set to another size. It
/// has 269,722 parameters with three channels and ten classes. After: He et al., "Deep residual
/// learning", 2016, section 4.2, with parameterless shortcuts (option A).
declaration resnet20();

/// ResNet-50 for ImageNet. It has 25,557,032 parameters in 161 tensors, named and ordered as
/// torchvision's, with the stride in the middle convolution of a block. After: He et al., and Goyal
/// et al., "Accurate, large minibatch SGD", 2017.
declaration resnet50();

}  // namespace models
