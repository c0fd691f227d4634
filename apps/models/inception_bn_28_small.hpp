#pragma once

#include "models/declaration.hpp"

namespace models {

/// MXNet's network for CIFAR-10's images cropped to 28 x 28, with batch normalisation after every
/// convolution, and modules of two branches whose channels are concatenated. It has 1,652,826
/// parameters in 78 tensors.
/// After: Ioffe and Szegedy, "Batch normalization", 2015; MXNet's
/// example/image-classification/symbol_inception-bn-28-small.py, which trains it with a rate of 0.1
/// to 0.4, momentum 0.9 and a weight decay of 1e-5.
declaration inception_bn_28_small();

}  // namespace models
