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

/// What a window does at the image's edge: stay within it, or reach over it so that an image keeps
/// its size at stride 1.
enum class padding { none, same };

/// The filters of a convolution, each of `rows` x `columns` x its group's channels.
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

/// What a pooling window leaves of an image; `same` is for odd sides.
data::shape pooled(data::shape in, std::size_t side, std::size_t stride, padding edge);

/// Writes a network's tensors down, layer by layer in forward order, with what each has to compute
/// on the way. Names are the caller's: every framework has its own.
class layer_list {
 public:
  /// Answers the shape that comes out.
  data::shape convolve(const std::string& name, data::shape in, const filters& with);

  /// One number a channel that touches every element: a bias, a scale, an offset.
  void per_channel(const std::string& name, data::shape of);

  /// A matrix that multiplies `positions` vectors of a sample.
  void multiply(const std::string& name, std::size_t inputs, std::size_t outputs,
                std::size_t positions = 1);

  /// A table of which a sample looks up `positions` rows.
  void look_up(const std::string& name, std::size_t rows, std::size_t columns,
               std::size_t positions);

  void add(counted_tensor each) { tensors_.push_back(std::move(each)); }
  std::vector<counted_tensor> take() && { return std::move(tensors_); }

 private:
  std::vector<counted_tensor> tensors_{};
};

}  // namespace models
