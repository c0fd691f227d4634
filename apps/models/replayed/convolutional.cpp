#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "models/replayed/networks.hpp"
#include "models/replayed/torch_layers.hpp"

// The networks as torchvision defines them and names their tensors.
namespace models::counted {
namespace {

constexpr data::shape image{3, 224, 224};
constexpr std::size_t classes = 1000;

std::string numbered(const std::string& name, std::size_t number) {
  return name + std::to_string(number);
}

data::shape halved(data::shape in) { return pooled(in, 3, 2, padding::same); }

/// A block of three convolutions: a 1 x 1 that narrows, a 3 x 3, and a 1 x 1 that widens four
/// times. The shortcut is a convolution if input and output differ in shape.
data::shape bottleneck(layer_list& to, const std::string& at, data::shape in, std::size_t width,
                       std::size_t stride) {
  auto now = torch::convolve(to, at + ".conv1", at + ".bn1", in, square(width, 1));
  now = torch::convolve(to, at + ".conv2", at + ".bn2", now, square(width, 3, stride));
  now = torch::convolve(to, at + ".conv3", at + ".bn3", now, square(4 * width, 1));
  if (now != in) {
    torch::convolve(to, at + ".downsample.0", at + ".downsample.1", in,
                    square(4 * width, 1, stride));
  }
  return now;
}

/// After: He et al., "Deep residual learning", 2016, with the stride in the middle convolution.
std::vector<counted_tensor> resnet(const std::array<std::size_t, 4>& blocks) {
  layer_list to;
  auto now = halved(torch::convolve(to, "conv1", "bn1", image, square(64, 7, 2)));
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::string at = numbered("layer", stage + 1) + ".";
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      const std::size_t stride = stage > 0 && block == 0 ? 2 : 1;
      now = bottleneck(to, numbered(at, block), now, std::size_t{64} << stage, stride);
    }
  }
  torch::linear(to, "fc", now.channels, classes);
  return std::move(to).take();
}

/// Adds `growth` channels to the image, computed from all that it has.
data::shape dense_layer(layer_list& to, const std::string& at, data::shape in) {
  constexpr std::size_t growth = 32;
  torch::normalise(to, at + ".norm1", in);
  const auto narrow = torch::convolve(to, at + ".conv1", at + ".norm2", in, square(4 * growth, 1));
  to.convolve(at + ".conv2.weight", narrow, square(growth, 3));
  return {in.channels + growth, in.height, in.width};
}

data::shape transition(layer_list& to, const std::string& at, data::shape in) {
  torch::normalise(to, at + ".norm", in);
  return pooled(to.convolve(at + ".conv.weight", in, square(in.channels / 2, 1)), 2, 2,
                padding::none);
}

/// A block that widens the image `expansion` times, convolves each channel separately, and narrows
/// it again.
data::shape inverted_residual(layer_list& to, const std::string& at, data::shape in,
                              std::size_t expansion, std::size_t count, std::size_t stride) {
  std::size_t index = 0;
  const auto activated = [&](data::shape from, const filters& with) {
    const std::string inner = numbered(at + ".conv.", index++);
    return torch::convolve(to, inner + ".0", inner + ".1", from, with);
  };
  auto now = in;
  if (expansion > 1) {
    now = activated(now, square(in.channels * expansion, 1));
  }
  auto depthwise = square(now.channels, 3, stride);
  depthwise.groups = now.channels;
  now = activated(now, depthwise);
  return torch::convolve(to, numbered(at + ".conv.", index), numbered(at + ".conv.", index + 1),
                         now, square(count, 1));
}

}  // namespace

std::vector<counted_tensor> resnet50() { return resnet({3, 4, 6, 3}); }
std::vector<counted_tensor> resnet152() { return resnet({3, 8, 36, 3}); }

/// After: Simonyan and Zisserman, "Very deep convolutional networks", 2015, configuration D.
std::vector<counted_tensor> vgg16() {
  layer_list to;
  auto now = image;
  std::size_t index = 0;
  const std::array<std::pair<std::size_t, std::size_t>, 5> stages{
      {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};
  for (const auto& [convolutions, count] : stages) {
    for (std::size_t i = 0; i < convolutions; ++i, index += 2) {
      const std::string at = numbered("features.", index);
      now = to.convolve(at + ".weight", now, square(count, 3));
      to.per_channel(at + ".bias", now);
    }
    now = pooled(now, 2, 2, padding::none);
    ++index;
  }
  torch::linear(to, "classifier.0", now.size(), 4096);
  torch::linear(to, "classifier.3", 4096, 4096);
  torch::linear(to, "classifier.6", 4096, classes);
  return std::move(to).take();
}

/// After: Huang et al., "Densely connected convolutional networks", 2017.
std::vector<counted_tensor> densenet201() {
  layer_list to;
  auto now =
      halved(torch::convolve(to, "features.conv0", "features.norm0", image, square(64, 7, 2)));
  const std::array<std::size_t, 4> blocks{6, 12, 48, 32};
  for (std::size_t block = 1; block <= blocks.size(); ++block) {
    if (block > 1) {
      now = transition(to, numbered("features.transition", block - 1), now);
    }
    const std::string at = numbered("features.denseblock", block) + ".denselayer";
    for (std::size_t layer = 1; layer <= blocks[block - 1]; ++layer) {
      now = dense_layer(to, numbered(at, layer), now);
    }
  }
  torch::normalise(to, "features.norm5", now);
  torch::linear(to, "classifier", now.channels, classes);
  return std::move(to).take();
}

/// After: Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018, table 2.
std::vector<counted_tensor> mobilenet_v2() {
  struct stage {
    std::size_t expansion, count, blocks, stride;
  };
  const std::array<stage, 7> stages{{{1, 16, 1, 1},
                                     {6, 24, 2, 2},
                                     {6, 32, 3, 2},
                                     {6, 64, 4, 2},
                                     {6, 96, 3, 1},
                                     {6, 160, 3, 2},
                                     {6, 320, 1, 1}}};
  layer_list to;
  auto now = torch::convolve(to, "features.0.0", "features.0.1", image, square(32, 3, 2));
  std::size_t index = 1;
  for (const auto& each : stages) {
    for (std::size_t block = 0; block < each.blocks; ++block) {
      now = inverted_residual(to, numbered("features.", index++), now, each.expansion, each.count,
                              block == 0 ? each.stride : 1);
    }
  }
  now = torch::convolve(to, "features.18.0", "features.18.1", now, square(1280, 1));
  torch::linear(to, "classifier.1", now.channels, classes);
  return std::move(to).take();
}

}  // namespace models::counted
