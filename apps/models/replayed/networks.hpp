#pragma once

#include <vector>

#include "models/replayed/layers.hpp"

namespace models::counted {

/// Networks for images of 224 x 224 pixels (Inception-v4: 299 x 299) in a thousand classes.
std::vector<counted_tensor> resnet50();
std::vector<counted_tensor> resnet152();
std::vector<counted_tensor> vgg16();
std::vector<counted_tensor> densenet201();
std::vector<counted_tensor> mobilenet_v2();
std::vector<counted_tensor> inception_v4();
std::vector<counted_tensor> inception_bn();

/// Pre-training on sequences of `bert_positions` tokens.
std::vector<counted_tensor> bert_base();
std::vector<counted_tensor> bert_large();

/// The tensor lists of KungFu's fake models, sizes alone, named by their place in its lists.
std::vector<counted_tensor> kungfu_resnet50();
std::vector<counted_tensor> kungfu_vgg16();
std::vector<counted_tensor> kungfu_bert();

}  // namespace models::counted
