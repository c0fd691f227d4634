#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "models/replayed/networks.hpp"
#include "models/replayed/torch_layers.hpp"
#include "models/replayed/transformer.hpp"

// KungFu's fake models are bare lists of sizes, which its benchmarks send (KungFu's
// tests/go/fakemodel). The networks from which the lists were taken are rebuilt here, so that every
// size has its operations. Tensors are named by their index in KungFu's list.
namespace models::counted {
namespace {

/// Names the tensors by their index in KungFu's list.
void name_by_place(std::vector<counted_tensor>& list) {
  std::size_t place = 0;
  for (auto& each : list) {
    each.name = std::to_string(place++).insert(0, 1, 't');
  }
}

/// Adds a convolution's bias, which Keras keeps, and the scale and offset of the normalisation
/// after it.
void bias_and_norm(layer_list& to, data::shape of) {
  for (int i = 0; i < 3; ++i) {
    to.per_channel("", of);
  }
}

/// Adds a block whose shortcut is a convolution. KungFu's list has that convolution's weights after
/// the bias and normalisation of the middle convolution, but before them in the last stage.
data::shape projected(layer_list& to, data::shape in, std::size_t stage) {
  const std::size_t width = std::size_t{64} << stage;
  const std::size_t stride = stage > 0 ? 2 : 1;
  auto now = to.convolve("", in, square(width, 1, stride));
  bias_and_norm(to, now);
  now = to.convolve("", now, square(width, 3));
  if (stage == 3) {
    to.convolve("", in, square(4 * width, 1, stride));
    bias_and_norm(to, now);
  } else {
    bias_and_norm(to, now);
    to.convolve("", in, square(4 * width, 1, stride));
  }
  now = to.convolve("", now, square(4 * width, 1));
  bias_and_norm(to, now);
  bias_and_norm(to, now);
  return now;
}

data::shape bottleneck(layer_list& to, data::shape in) {
  auto now = in;
  for (const auto& each :
       {square(in.channels / 4, 1), square(in.channels / 4, 3), square(in.channels, 1)}) {
    now = to.convolve("", now, each);
    bias_and_norm(to, now);
  }
  return now;
}

}  // namespace

/// Keras's ResNet-50, with the stride in a block's first convolution. KungFu lists the tensors in
/// the order of their gradients, last layer first, so that the first tensor in forward order has
/// the highest index.
std::vector<counted_tensor> kungfu_resnet50() {
  layer_list to;
  auto now = to.convolve("", {3, 224, 224}, square(64, 7, 2));
  bias_and_norm(to, now);
  now = pooled(now, 3, 2, padding::same);
  const std::array<std::size_t, 4> blocks{3, 4, 6, 3};
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    now = projected(to, now, stage);
    for (std::size_t block = 1; block < blocks[stage]; ++block) {
      now = bottleneck(to, now);
    }
  }
  torch::linear(to, "", now.channels, 1000);
  auto all = std::move(to).take();
  std::ranges::reverse(all);
  name_by_place(all);
  std::ranges::reverse(all);
  return all;
}

std::vector<counted_tensor> kungfu_vgg16() {
  auto all = vgg16();
  name_by_place(all);
  return all;
}

/// BERT-Base with a head that marks an answer's first and last token: 201 variables. They are
/// followed by Adam's momenta, which TensorFlow counts as variables and which are therefore in
/// KungFu's list: two of the size of each variable that is trained. With this head the pooler is
/// not trained. Momenta compute nothing; one operation for each element represents their update.
std::vector<counted_tensor> kungfu_bert() {
  layer_list to = bert({.layers = 12, .hidden = 768, .vocabulary = 30522});
  torch::linear(to, "", 768, 2, bert_positions);
  auto all = std::move(to).take();
  std::swap(all[1], all[2]);  // Google's own BERT lists the positions after the token types
  const std::size_t variables = all.size();
  for (std::size_t i = 0; i < variables; ++i) {
    if (!all[i].name.starts_with("bert.pooler")) {
      const counted_tensor momentum{"", all[i].elements, static_cast<double>(all[i].elements)};
      all.insert(all.end(), 2, momentum);
    }
  }
  name_by_place(all);
  return all;
}

}  // namespace models::counted
