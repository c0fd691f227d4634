#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "data/dataset.hpp"

namespace models {

using data::shape;

/// A fully connected layer with bias. It reads its input as one flat vector.
struct linear {
  std::string name{};
  std::size_t outputs{};
};

enum class bias { one_a_filter, none };

/// A square kernel of odd side, moved by `stride`. The input is padded by half the kernel on every
/// edge, so that stride 1 keeps height and width.
struct convolution {
  std::string name{};
  std::size_t filters{};
  std::size_t kernel{};
  std::size_t stride{1};
  models::bias bias{models::bias::one_a_filter};
};

/// Normalises each channel to zero mean and unit variance over the batch, height and width, then
/// applies a scale and an offset of the channel's own. In inference it normalises by the running
/// statistics of the batches trained on. After: Ioffe and Szegedy, "Batch normalization", 2015;
/// epsilon and momentum as PyTorch's defaults.
struct batch_norm {
  static constexpr double epsilon = 1e-5;
  static constexpr double momentum = 0.1;  // weight of a batch's statistics in the running ones

  std::string name{};
};

// A layer that works in place (relu, sum) overwrites the activation that it reads. Such a layer may
// not follow a layer whose backward pass needs that activation (a linear, convolution or
// batch_norm that reads it, or a relu that wrote it), and no other layer may refer to the
// overwritten one.

/// max(x, 0), in place.
struct relu {};

/// The largest value of each square window. Pixels that no whole window of the padded image covers
/// are ignored.
struct max_pool {
  std::size_t kernel{2};
  std::size_t stride{2};
  std::size_t padding{0};
};

/// The mean over height and width of each channel.
struct average_pool {};

/// Keeps every `stride`-th pixel of every `stride`-th row, and fills additional channels with
/// zeros: the parameterless shortcut (option A) of He et al., "Deep residual learning", 2016.
struct subsample {
  std::size_t channels{};
  std::size_t stride{};
};

/// Makes the next layer read the output of layer `of` of the declaration.
struct branch {
  std::size_t of{};
};

/// Adds the output of layer `with` of the declaration to its input, in place.
struct sum {
  std::size_t with{};
};

/// The channels of layer `with` of the declaration, followed by those of the layer before. Both
/// have equal height and width.
struct concatenate {
  std::size_t with{};
};

using any_layer = std::variant<linear, convolution, batch_norm, relu, max_pool, average_pool,
                               subsample, branch, sum, concatenate>;

/// The type in which layers compute. Parameters and their gradients are fp32 in any case.
enum class precision { fp32, bf16 };

/// A network, as layers that each read the output of the layer before, and how it is trained unless
/// the user says otherwise. The last layer's outputs are the logits of a softmax cross-entropy.
struct declaration {
  std::string name{};
  shape input{};
  std::vector<any_layer> layers{};
  float learning_rate{};
  float momentum{};
  std::size_t global_batch{};
  models::precision precision{models::precision::fp32};
};

/// Whether a pass overwrites gradients or adds to them.
enum class gradients { overwrite, accumulate };

/// The effect of a layer on its input's shape, and its parameters, whose initial values are
/// normally distributed.
struct layer_facts {
  std::string name{};
  shape in{};
  shape out{};
  std::size_t weights{};
  std::size_t biases{};
  std::size_t filters{};  ///< rows of the weights as a matrix; 0: not a matrix
  double mean{};
  double deviation{};
  std::size_t normalised{};  ///< channels that have running statistics

  std::size_t parameters() const { return std::size_t{weights > 0} + std::size_t{biases > 0}; }
};

/// The place of a layer in its declaration: the activations that it reads and writes, and whether
/// it overwrites or adds to their gradients. Activation 0 is the network's input, which needs no
/// gradient. A layer that works in place writes the activation that it reads. The first layer of a
/// backward pass that writes a gradient overwrites it, later ones add.
struct placed_facts : layer_facts {
  std::size_t reads{};
  std::size_t writes{};
  std::size_t adds{};  // the other input of sum and concatenate
  gradients of_read{gradients::overwrite};
  gradients of_added{gradients::overwrite};
};

/// Returns the deviation of initial weights before a rectifier. After: He et al., "Delving deep
/// into rectifiers", 2015.
inline double before_a_rectifier(std::size_t inputs) {
  return std::sqrt(2.0 / static_cast<double>(inputs));
}

constexpr std::size_t windows(std::size_t side, std::size_t kernel, std::size_t stride,
                              std::size_t padding) {
  return (side + 2 * padding - kernel) / stride + 1;
}

inline layer_facts facts(const linear& layer, shape in) {
  return {.name = layer.name,
          .in = in,
          .out = {layer.outputs, 1, 1},
          .weights = layer.outputs * in.size(),
          .biases = layer.outputs,
          .filters = layer.outputs,
          .deviation = before_a_rectifier(in.size())};
}
inline layer_facts facts(const convolution& layer, shape in) {
  const std::size_t inputs = in.channels * layer.kernel * layer.kernel;
  const auto across = [&](std::size_t side) {
    return windows(side, layer.kernel, layer.stride, layer.kernel / 2);
  };
  return {.name = layer.name,
          .in = in,
          .out = {layer.filters, across(in.height), across(in.width)},
          .weights = layer.filters * inputs,
          .biases = layer.bias == bias::none ? 0 : layer.filters,
          .filters = layer.filters,
          .deviation = before_a_rectifier(inputs)};
}
inline layer_facts facts(const batch_norm& layer, shape in) {
  return {.name = layer.name,
          .in = in,
          .out = in,
          .weights = in.channels,
          .biases = in.channels,
          .mean = 1,
          .normalised = in.channels};
}
inline layer_facts facts(const max_pool& layer, shape in) {
  const auto across = [&](std::size_t side) {
    return windows(side, layer.kernel, layer.stride, layer.padding);
  };
  return {.in = in, .out = {in.channels, across(in.height), across(in.width)}};
}
inline layer_facts facts(const average_pool&, shape in) {
  return {.in = in, .out = {in.channels, 1, 1}};
}
inline layer_facts facts(const subsample& layer, shape in) {
  return {.in = in,
          .out = {layer.channels, windows(in.height, 1, layer.stride, 0),
                  windows(in.width, 1, layer.stride, 0)}};
}
/// Without the channels of the other layer, which facts(declaration) adds.
inline layer_facts facts(const concatenate&, shape in) { return {.in = in, .out = in}; }
template <class InPlace>
layer_facts facts(const InPlace&, shape in) {
  return {.in = in, .out = in};
}

template <class Layer>
inline constexpr bool in_place =
    std::is_same_v<Layer, relu> || std::is_same_v<Layer, branch> || std::is_same_v<Layer, sum>;

/// Returns the facts of every layer. Throws tutti::usage_error for a layer that refers to a later
/// one, to one whose output another layer has changed in place or, for a sum, to one of another
/// shape, and for a layer that changes in place what another needs.
std::vector<placed_facts> facts(const declaration& of);

/// Throws tutti::usage_error unless the network is declared in fp32. For backends that have no
/// other precision; `backend` is named in the message.
void expect_fp32(const declaration& of, std::string_view backend);

}  // namespace models
