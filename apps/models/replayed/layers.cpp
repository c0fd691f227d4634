#include "models/replayed/layers.hpp"

namespace models {
namespace {

constexpr double count(std::size_t elements) { return static_cast<double>(elements); }

/// Returns how many positions a window takes along one side. `same` is for windows of odd length.
constexpr std::size_t steps(std::size_t length, std::size_t window, std::size_t stride,
                            padding edge) {
  return (edge == padding::same ? length - 1 : length - window) / stride + 1;
}

}  // namespace

data::shape pooled(data::shape in, std::size_t side, std::size_t stride, padding edge) {
  return {in.channels, steps(in.height, side, stride, edge), steps(in.width, side, stride, edge)};
}

data::shape layer_list::convolve(const std::string& name, data::shape in, const filters& with) {
  const data::shape out{with.count, steps(in.height, with.rows, with.stride, with.edge),
                        steps(in.width, with.columns, with.stride, with.edge)};
  const std::size_t inputs = in.channels / with.groups * with.rows * with.columns;
  const std::size_t weights = with.count * inputs;
  add({name, weights, 2 * count(weights * out.height * out.width), {with.count, inputs}});
  return out;
}

void layer_list::per_channel(const std::string& name, data::shape of) {
  add({name, of.channels, count(of.size())});
}

void layer_list::multiply(const std::string& name, std::size_t inputs, std::size_t outputs,
                          std::size_t positions) {
  add({name, inputs * outputs, 2 * count(inputs * outputs * positions), {outputs, inputs}});
}

void layer_list::look_up(const std::string& name, std::size_t rows, std::size_t columns,
                         std::size_t positions) {
  add({name, rows * columns, count(columns * positions), {rows, columns}});
}

}  // namespace models
