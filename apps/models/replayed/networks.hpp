#pragma once

#include <vector>

#include "models/replayed/layers.hpp"

namespace models::counted {

/// Networks that classify images of 224 x 224 pixels (Inception-v4: 299 x 299) into a thousand
/// classes.
std::vector<counted_tensor> resnet50();
std::vector<counted_tensor> resnet152();
std::vector<counted_tensor> vgg16();
std::vector<counted_tensor> densenet201();
std::vector<counted_tensor> mobilenet_v2();
std::vector<counted_tensor> inception_v4();
std::vector<counted_tensor> inception_bn();

/// BERT in pre-training, on sequences of `bert_positions` tokens.
std::vector<counted_tensor> bert_base();
std::vector<counted_tensor> bert_large();

/// The tensor lists of KungFu's fake models, which have sizes only. Tensors are named by their
/// index in KungFu's list.
std::vector<counted_tensor> kungfu_resnet50();
std::vector<counted_tensor> kungfu_vgg16();
std::vector<counted_tensor> kungfu_bert();

}  // namespace models::counted
