#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "models/replayed/networks.hpp"
#include "models/replayed/torch_layers.hpp"

namespace models::counted {
namespace {

// Inception-v4, as Cadene's pretrained-models for PyTorch defines it and names its tensors.

data::shape basic(layer_list& to, const std::string& at, data::shape in, const filters& with) {
  return torch::convolve(to, at + ".conv", at + ".bn", in, with);
}

/// Adds convolutions one after the other, numbered from 0.
data::shape chain(layer_list& to, const std::string& at, data::shape in,
                  std::initializer_list<filters> all) {
  std::size_t index = 0;
  for (const auto& each : all) {
    in = basic(to, at + "." + std::to_string(index++), in, each);
  }
  return in;
}

constexpr filters row(std::size_t count, std::size_t length) {
  return {.count = count, .rows = 1, .columns = length};
}
constexpr filters column(std::size_t count, std::size_t length) {
  return {.count = count, .rows = length, .columns = 1};
}
constexpr filters halving(std::size_t count) { return square(count, 3, 2, padding::none); }

constexpr data::shape with_channels(data::shape of, std::size_t channels) {
  return {channels, of.height, of.width};
}

/// Reduces an image of 299 x 299 pixels to 35 x 35 with 384 channels.
data::shape stem(layer_list& to) {
  auto now = basic(to, "features.0", {3, 299, 299}, halving(32));
  now = basic(to, "features.1", now, square(32, 3, 1, padding::none));
  now = basic(to, "features.2", now, square(64, 3));
  now = with_channels(basic(to, "features.3.conv", now, halving(96)), 96 + now.channels);
  const auto narrow = square(96, 3, 1, padding::none);
  chain(to, "features.4.branch0", now, {square(64, 1), narrow});
  now = chain(to, "features.4.branch1", now, {square(64, 1), row(64, 7), column(64, 7), narrow});
  now = with_channels(now, 96 + 96);
  return with_channels(basic(to, "features.5.conv", now, halving(192)), 192 + now.channels);
}

data::shape inception_a(layer_list& to, const std::string& at, data::shape in) {
  basic(to, at + ".branch0", in, square(96, 1));
  chain(to, at + ".branch1", in, {square(64, 1), square(96, 3)});
  chain(to, at + ".branch2", in, {square(64, 1), square(96, 3), square(96, 3)});
  return with_channels(basic(to, at + ".branch3.1", in, square(96, 1)), 4 * 96);
}

data::shape reduction_a(layer_list& to, const std::string& at, data::shape in) {
  const auto out = basic(to, at + ".branch0", in, halving(384));
  chain(to, at + ".branch1", in, {square(192, 1), square(224, 3), halving(256)});
  return with_channels(out, 384 + 256 + in.channels);
}

data::shape inception_b(layer_list& to, const std::string& at, data::shape in) {
  basic(to, at + ".branch0", in, square(384, 1));
  chain(to, at + ".branch1", in, {square(192, 1), row(224, 7), column(256, 7)});
  chain(to, at + ".branch2", in,
        {square(192, 1), column(192, 7), row(224, 7), column(224, 7), row(256, 7)});
  return with_channels(basic(to, at + ".branch3.1", in, square(128, 1)), 384 + 256 + 256 + 128);
}

data::shape reduction_b(layer_list& to, const std::string& at, data::shape in) {
  const auto out = chain(to, at + ".branch0", in, {square(192, 1), halving(192)});
  chain(to, at + ".branch1", in, {square(256, 1), row(256, 7), column(320, 7), halving(320)});
  return with_channels(out, 192 + 320 + in.channels);
}

data::shape inception_c(layer_list& to, const std::string& at, data::shape in) {
  basic(to, at + ".branch0", in, square(256, 1));
  auto now = basic(to, at + ".branch1_0", in, square(384, 1));
  basic(to, at + ".branch1_1a", now, row(256, 3));
  basic(to, at + ".branch1_1b", now, column(256, 3));
  now = basic(to, at + ".branch2_0", in, square(384, 1));
  now = basic(to, at + ".branch2_1", now, column(448, 3));
  now = basic(to, at + ".branch2_2", now, row(512, 3));
  basic(to, at + ".branch2_3a", now, row(256, 3));
  basic(to, at + ".branch2_3b", now, column(256, 3));
  return with_channels(basic(to, at + ".branch3.1", in, square(256, 1)), 6 * 256);
}

// Inception-BN, as MXNet's example for ImageNet of 2015 defines it and names its tensors.

/// Adds a convolution that keeps its bias although a normalisation follows, as MXNet's does.
data::shape factory(layer_list& to, const std::string& at, data::shape in, const filters& with) {
  const auto out = to.convolve(at + "_weight", in, with);
  for (const auto* tensor : {"_bias", "_bn_gamma", "_bn_beta"}) {
    to.per_channel(at + tensor, out);
  }
  return out;
}

/// The filters of a module's branches. A module that halves the image has neither `one` nor
/// `projection`.
struct branches {
  const char* name;
  std::size_t one, three_reduced, three, double_reduced, double_three, projection;
};

data::shape module(layer_list& to, const branches& of, data::shape in) {
  const std::string at = std::string(of.name) + "_";
  const std::size_t stride = of.one == 0 ? 2 : 1;
  if (of.one > 0) {
    factory(to, at + "1x1", in, square(of.one, 1));
  }
  auto now = factory(to, at + "3x3_reduce", in, square(of.three_reduced, 1));
  factory(to, at + "3x3", now, square(of.three, 3, stride));
  now = factory(to, at + "double_3x3_reduce", in, square(of.double_reduced, 1));
  now = factory(to, at + "double_3x3_0", now, square(of.double_three, 3));
  now = factory(to, at + "double_3x3_1", now, square(of.double_three, 3, stride));
  if (of.projection > 0) {
    factory(to, at + "proj", in, square(of.projection, 1));
  }
  const std::size_t pooled_through = stride == 2 ? in.channels : of.projection;
  return with_channels(now, of.one + of.three + of.double_three + pooled_through);
}

}  // namespace

/// After: Szegedy et al., "Inception-v4, Inception-ResNet", 2017.
std::vector<counted_tensor> inception_v4() {
  layer_list to;
  auto now = stem(to);
  std::size_t index = 6;
  const auto next = [&index] { return "features." + std::to_string(index++); };
  for (int i = 0; i < 4; ++i) {
    now = inception_a(to, next(), now);
  }
  now = reduction_a(to, next(), now);
  for (int i = 0; i < 7; ++i) {
    now = inception_b(to, next(), now);
  }
  now = reduction_b(to, next(), now);
  for (int i = 0; i < 3; ++i) {
    now = inception_c(to, next(), now);
  }
  torch::linear(to, "last_linear", now.channels, 1000);
  return std::move(to).take();
}

/// After: Ioffe and Szegedy, "Batch normalization", 2015.
std::vector<counted_tensor> inception_bn() {
  const std::array<branches, 10> modules{{{"3a", 64, 64, 64, 64, 96, 32},
                                          {"3b", 64, 64, 96, 64, 96, 64},
                                          {"3c", 0, 128, 160, 64, 96, 0},
                                          {"4a", 224, 64, 96, 96, 128, 128},
                                          {"4b", 192, 96, 128, 96, 128, 128},
                                          {"4c", 160, 128, 160, 128, 160, 128},
                                          {"4d", 96, 128, 192, 160, 192, 128},
                                          {"4e", 0, 128, 192, 192, 256, 0},
                                          {"5a", 352, 192, 320, 160, 224, 128},
                                          {"5b", 352, 192, 320, 192, 224, 128}}};
  layer_list to;
  // MXNet's pooling rounds sizes up, which gives the same sizes as padding.
  auto now = pooled(factory(to, "conv1", {3, 224, 224}, square(64, 7, 2)), 3, 2, padding::same);
  now = factory(to, "conv2red", now, square(64, 1));
  now = pooled(factory(to, "conv2", now, square(192, 3)), 3, 2, padding::same);
  for (const auto& each : modules) {
    now = module(to, each, now);
  }
  to.multiply("fc1_weight", now.channels, 1000);
  to.per_channel("fc1_bias", {1000, 1, 1});
  return std::move(to).take();
}

}  // namespace models::counted
