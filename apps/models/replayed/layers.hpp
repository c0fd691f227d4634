#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.hpp"
#include "tutti/base/tensor.hpp"

namespace models {

/// A tensor and the floating-point operations that one sample's forward pass spends on it.
struct counted_tensor {
  std::string name{};
  std::size_t elements{};
  double operations{};
  tutti::tensor_shape shape{};
};

/// What happens at an image's edge: with `none` a window stays within the image, with `same` the
/// image is padded so that it keeps its size at stride 1.
enum class padding { none, same };

/// The filters of a convolution. Each has `rows` x `columns` weights for every channel of its
/// group.
struct filters {
  std::size_t count{};
  std::size_t rows{};
  std::size_t columns{};
  std::size_t stride{1};
  padding edge{padding::same};
  std::size_t groups{1};
};

constexpr filters square(std::size_t count, std::size_t side, std::size_t stride = 1,
                         padding edge = padding::same) {
  return {.count = count, .rows = side, .columns = side, .stride = stride, .edge = edge};
}

/// Returns the shape of an image after pooling. `same` is for odd sides.
data::shape pooled(data::shape in, std::size_t side, std::size_t stride, padding edge);

/// Lists a network's tensors, layer by layer in forward order, with the operations that each is
/// used for. The caller gives the names, because every framework has its own.
class layer_list {
 public:
  /// Adds the weights of a convolution and returns the shape of its output.
  data::shape convolve(const std::string& name, data::shape in, const filters& with);

  /// Adds a tensor with one number for each channel that is applied to every element: a bias, a
  /// scale or an offset.
  void per_channel(const std::string& name, data::shape of);

  /// Adds a matrix that multiplies `positions` vectors of each sample.
  void multiply(const std::string& name, std::size_t inputs, std::size_t outputs,
                std::size_t positions = 1);

  /// Adds a table in which each sample looks up `positions` rows.
  void look_up(const std::string& name, std::size_t rows, std::size_t columns,
               std::size_t positions);

  void add(counted_tensor each) { tensors_.push_back(std::move(each)); }
  std::vector<counted_tensor> take() && { return std::move(tensors_); }

 private:
  std::vector<counted_tensor> tensors_{};
};

}  // namespace models
