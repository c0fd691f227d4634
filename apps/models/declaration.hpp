#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "data/dataset.hpp"

namespace models {

using data::shape;

/// Fully connected, with bias; reads whatever comes in as one flat vector.
struct linear {
  std::string name{};
  std::size_t outputs{};
};

/// Square kernel of odd side, stride 1, with bias; padded so that height and width stay.
struct convolution {
  std::string name{};
  std::size_t filters{};
  std::size_t kernel{};
};

/// max(x, 0), in place.
struct relu {};

/// The largest of each 2 x 2 square; an odd last row or column is left out.
struct max_pool {};

using any_layer = std::variant<linear, convolution, relu, max_pool>;

/// A network as a sequence of layers, and how it is trained unless the user says otherwise. The
/// last layer's outputs are the logits of a softmax cross-entropy.
struct declaration {
  std::string name{};
  shape input{};
  std::vector<any_layer> layers{};
  float learning_rate{};
  float momentum{};
  std::size_t global_batch{};
};

/// What `learning_rate` is in epoch `epoch` of `epochs`: it falls linearly, so that the last steps
/// settle. On Fashion-MNIST that is worth half a per cent of accuracy in three epochs.
constexpr float falling(float learning_rate, std::size_t epoch, std::size_t epochs) {
  return learning_rate * static_cast<float>(epochs - epoch) / static_cast<float>(epochs);
}

/// What a layer does to its input's shape, and the parameters that it needs for that.
struct layer_facts {
  std::string name{};
  shape in{};
  shape out{};
  std::size_t weights{};
  std::size_t biases{};
};

inline layer_facts facts(const linear& layer, shape in) {
  return {layer.name, in, {layer.outputs, 1, 1}, layer.outputs * in.size(), layer.outputs};
}
inline layer_facts facts(const convolution& layer, shape in) {
  return {layer.name,
          in,
          {layer.filters, in.height, in.width},
          layer.filters * in.channels * layer.kernel * layer.kernel,
          layer.filters};
}
inline layer_facts facts(const relu&, shape in) { return {"", in, in}; }
inline layer_facts facts(const max_pool&, shape in) {
  return {"", in, {in.channels, in.height / 2, in.width / 2}};
}

inline std::vector<layer_facts> facts(const declaration& of) {
  std::vector<layer_facts> all;
  shape now = of.input;
  for (const auto& each : of.layers) {
    all.push_back(std::visit([&](const auto& layer) { return facts(layer, now); }, each));
    now = all.back().out;
  }
  return all;
}

}  // namespace models
