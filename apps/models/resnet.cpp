#include "models/resnet.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace models {
namespace {

/// Builds a declaration, layer by layer.
class residual {
 public:
  explicit residual(declaration begin) : all_(std::move(begin)) {}

  std::size_t last() const { return all_.layers.size() - 1; }
  residual& add(any_layer layer) {
    all_.layers.push_back(std::move(layer));
    return *this;
  }

  /// Adds a convolution without bias, which the batch normalisation after it would cancel.
  residual& convolve(const std::string& convolution_name, const std::string& norm_name,
                     std::size_t filters, std::size_t kernel, std::size_t stride) {
    return add(convolution{convolution_name, filters, kernel, stride, bias::none})
        .add(batch_norm{norm_name});
  }

  declaration take() && { return std::move(all_); }

 private:
  declaration all_;
};

std::string numbered(const std::string& name, std::size_t number) {
  return name + std::to_string(number);
}

void basic_block(residual& to, const std::string& at, std::size_t filters, std::size_t stride) {
  const std::size_t entry = to.last();
  to.convolve(at + ".conv1", at + ".bn1", filters, 3, stride).add(relu{});
  to.convolve(at + ".conv2", at + ".bn2", filters, 3, 1);
  if (stride == 1) {
    to.add(sum{entry});
  } else {
    const std::size_t main = to.last();
    to.add(branch{entry}).add(subsample{filters, stride}).add(sum{main});
  }
  to.add(relu{});
}

enum class shortcut { identity, projection };

/// Adds a block of three convolutions: a 1 x 1 that narrows to `width` channels, a 3 x 3, and a
/// 1 x 1 that widens to four times as many.
void bottleneck(residual& to, const std::string& at, std::size_t width, std::size_t stride,
                shortcut by) {
  const std::size_t entry = to.last();
  to.convolve(at + ".conv1", at + ".bn1", width, 1, 1).add(relu{});
  to.convolve(at + ".conv2", at + ".bn2", width, 3, stride).add(relu{});
  to.convolve(at + ".conv3", at + ".bn3", 4 * width, 1, 1);
  if (by == shortcut::identity) {
    to.add(sum{entry});
  } else {
    const std::size_t main = to.last();
    to.add(branch{entry})
        .convolve(at + ".downsample.0", at + ".downsample.1", 4 * width, 1, stride)
        .add(sum{main});
  }
  to.add(relu{});
}

}  // namespace

declaration resnet20() {
  residual to({.name = "resnet20",
               .input = {3, 32, 32},
               .learning_rate = 0.1F,
               .momentum = 0.9F,
               .global_batch = 128});
  to.convolve("conv1", "bn1", 16, 3, 1).add(relu{});
  for (std::size_t stage = 0; stage < 3; ++stage) {
    for (std::size_t block = 0; block < 3; ++block) {
      basic_block(to, numbered(numbered("layer", stage + 1) + ".", block), std::size_t{16} << stage,
                  stage > 0 && block == 0 ? 2 : 1);
    }
  }
  to.add(average_pool{}).add(linear{"fc", 10});
  return std::move(to).take();
}

declaration resnet50() {
  residual to({.name = "resnet50",
               .input = {3, 224, 224},
               .learning_rate = 0.1F,
               .momentum = 0.9F,
               .global_batch = 256});
  to.convolve("conv1", "bn1", 64, 7, 2).add(relu{}).add(max_pool{3, 2, 1});
  constexpr std::array<std::size_t, 4> blocks{3, 4, 6, 3};
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      bottleneck(to, numbered(numbered("layer", stage + 1) + ".", block), std::size_t{64} << stage,
                 stage > 0 && block == 0 ? 2 : 1,
                 block == 0 ? shortcut::projection : shortcut::identity);
    }
  }
  to.add(average_pool{}).add(linear{"fc", 1000});
  return std::move(to).take();
}

}  // namespace models
