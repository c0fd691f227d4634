#include "models/inception_bn_28_small.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace models {
namespace {

/// Builds a declaration, module by module.
class modules {
 public:
  explicit modules(declaration begin) : all_(std::move(begin)) {}

  modules& add(any_layer layer) {
    all_.layers.push_back(std::move(layer));
    return *this;
  }
  modules& convolve(const std::string& name, std::size_t filters, std::size_t kernel,
                    std::size_t stride = 1) {
    return add(convolution{name, filters, kernel, stride})
        .add(batch_norm{name + "_bn"})
        .add(relu{});
  }

  /// A 1 x 1 convolution beside a 3 x 3 convolution.
  modules& simple(const std::string& name, std::size_t narrow, std::size_t wide) {
    const std::size_t entry = last();
    convolve(name + "_1x1", narrow, 1);
    const std::size_t first = last();
    return add(branch{entry}).convolve(name + "_3x3", wide, 3).add(concatenate{first});
  }
  /// A 3 x 3 convolution beside a 3 x 3 maximum pooling, both with stride 2.
  modules& halve(const std::string& name, std::size_t filters) {
    const std::size_t entry = last();
    convolve(name + "_3x3", filters, 3, 2);
    const std::size_t first = last();
    return add(branch{entry}).add(max_pool{3, 2, 1}).add(concatenate{first});
  }

  declaration take() && { return std::move(all_); }

 private:
  std::size_t last() const { return all_.layers.size() - 1; }

  declaration all_;
};

}  // namespace

declaration inception_bn_28_small() {
  modules to({.name = "inception-bn-28-small",
              .input = {3, 28, 28},
              .learning_rate = 0.1F,
              .momentum = 0.9F,
              .global_batch = 128});
  to.convolve("conv1", 96, 3);
  to.simple("in3a", 32, 32).simple("in3b", 32, 48).halve("in3c", 80);
  to.simple("in4a", 112, 48).simple("in4b", 96, 64).simple("in4c", 80, 80).simple("in4d", 48, 96);
  to.halve("in4e", 96).simple("in5a", 176, 160).simple("in5b", 176, 160);
  to.add(average_pool{}).add(linear{"fc1", 10});
  return std::move(to).take();
}

}  // namespace models
