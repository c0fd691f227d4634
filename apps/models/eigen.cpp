#include "models/eigen.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "models/running_statistics.hpp"
#include "models/softmax_cross_entropy.hpp"

namespace models {
namespace {

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using view = Eigen::Map<matrix>;
using row = Eigen::Map<Eigen::RowVectorXf>;
using column = Eigen::Map<Eigen::VectorXf>;

auto extent(std::size_t n) { return static_cast<Eigen::Index>(n); }
view as_matrix(std::span<float> data, std::size_t rows) {
  return {data.data(), extent(rows), extent(data.size() / rows)};
}

/// An activation's values and the gradient of the loss by them. The gradient stays empty for the
/// network's input.
struct activation {
  std::vector<float> value{};
  std::vector<float> gradient{};
};

/// What a layer works on: its facts, the activations that it reads and writes, its parameters and
/// its scratch memory.
struct place {
  placed_facts facts{};
  activation* in{};
  activation* out{};
  activation* added{};  // the other input of sum and concatenate
  tutti::tensor weights{};
  tutti::tensor bias{};
  // Of max_pool: the index of the input that each output copies.
  std::vector<std::size_t> winners{};
  // Of convolution: one image unrolled, with a row for each kernel cell. Entries that lie in the
  // padding are never written and so stay zero.
  std::vector<float> patches{};
  std::vector<float> patches_gradient{};
  // Of batch_norm.
  moments running{};
  std::vector<float> mean{};
  std::vector<float> variance{};

  std::span<float> sample(std::vector<float>& of, std::size_t which, const shape& each) const {
    return std::span(of).subspan(which * each.size(), each.size());
  }
};

/// The outputs along one side for which cell `cell` of the kernel reads a pixel and not padding.
struct readers {
  std::size_t first{};
  std::size_t last{};  // one past the last output

  readers(const convolution& layer, std::size_t cell, std::size_t side, std::size_t outputs) {
    const std::size_t pad = layer.kernel / 2;
    const auto rounded_up = [&](std::size_t n) { return (n + layer.stride - 1) / layer.stride; };
    first = cell < pad ? rounded_up(pad - cell) : 0;
    last = side + pad > cell ? std::min(outputs, rounded_up(side + pad - cell)) : 0;
  }
};

/// Calls `visit(position in patches, pixel in the image, count)` for each run of neighbouring
/// pixels that one kernel cell reads. Unrolling an image and adding patches back to it share this
/// loop.
template <class Visit>
void for_each_run(const convolution& layer, const layer_facts& facts, Visit visit) {
  const shape& in = facts.in;
  const shape& out = facts.out;
  const std::size_t pad = layer.kernel / 2;
  std::size_t cell = 0;
  for (std::size_t c = 0; c < in.channels; ++c) {
    for (std::size_t ky = 0; ky < layer.kernel; ++ky) {
      const readers rows(layer, ky, in.height, out.height);
      for (std::size_t kx = 0; kx < layer.kernel; ++kx, ++cell) {
        const readers columns(layer, kx, in.width, out.width);
        const std::size_t count = layer.stride == 1 ? columns.last - columns.first : 1;
        for (std::size_t y = rows.first; y < rows.last; ++y) {
          for (std::size_t x = columns.first; x < columns.last; x += count) {
            visit((cell * out.height + y) * out.width + x,
                  (c * in.height + y * layer.stride + ky - pad) * in.width + x * layer.stride + kx -
                      pad,
                  count);
          }
        }
      }
    }
  }
}

void unroll(const convolution& layer, place& at, std::span<const float> image) {
  for_each_run(layer, at.facts, [&](std::size_t cell, std::size_t pixel, std::size_t count) {
    std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(pixel), count,
                at.patches.begin() + static_cast<std::ptrdiff_t>(cell));
  });
}

void roll_up(const convolution& layer, const place& at, std::span<float> image) {
  for_each_run(layer, at.facts, [&](std::size_t cell, std::size_t pixel, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      image[pixel + i] += at.patches_gradient[cell + i];
    }
  });
}

// A layer's `forward` overwrites its output. Its `backward` adds to the gradient of its input,
// which the caller clears where it is to be overwritten. That gradient is empty where nobody needs
// it; a layer without parameters is then not called.

void forward(const linear& layer, place& at, std::size_t batch) {
  auto y = as_matrix(at.out->value, batch);
  const auto w = as_matrix(at.weights.parameter, layer.outputs);
  y.noalias() = as_matrix(at.in->value, batch) * w.transpose();
  y.rowwise() += row(at.bias.parameter.data(), extent(layer.outputs));
}
void backward(const linear& layer, place& at, std::size_t batch) {
  const auto dy = as_matrix(at.out->gradient, batch);
  if (!at.in->gradient.empty()) {
    as_matrix(at.in->gradient, batch).noalias() +=
        dy * as_matrix(at.weights.parameter, layer.outputs);
  }
  as_matrix(at.weights.gradient, layer.outputs).noalias() =
      dy.transpose() * as_matrix(at.in->value, batch);
  row(at.bias.gradient.data(), extent(layer.outputs)) = dy.colwise().sum();
}

void forward(const convolution& layer, place& at, std::size_t batch) {
  const auto w = as_matrix(at.weights.parameter, layer.filters);
  const auto patches = as_matrix(at.patches, at.facts.weights / layer.filters);
  for (std::size_t i = 0; i < batch; ++i) {
    unroll(layer, at, at.sample(at.in->value, i, at.facts.in));
    auto y = as_matrix(at.sample(at.out->value, i, at.facts.out), layer.filters);
    y.noalias() = w * patches;
    if (layer.bias != bias::none) {
      y.colwise() += column(at.bias.parameter.data(), extent(layer.filters));
    }
  }
}
void backward(const convolution& layer, place& at, std::size_t batch) {
  const auto w = as_matrix(at.weights.parameter, layer.filters);
  auto dw = as_matrix(at.weights.gradient, layer.filters);
  auto db = column(at.bias.gradient.data(), extent(at.facts.biases));
  const auto patches = as_matrix(at.patches, at.facts.weights / layer.filters);
  auto patches_gradient = as_matrix(at.patches_gradient, at.facts.weights / layer.filters);
  dw.setZero();
  db.setZero();
  for (std::size_t i = 0; i < batch; ++i) {
    const auto dy = as_matrix(at.sample(at.out->gradient, i, at.facts.out), layer.filters);
    // The forward pass unrolled this image, too, but keeping the patches of every image would cost
    // more in memory than unrolling once more costs in time.
    unroll(layer, at, at.sample(at.in->value, i, at.facts.in));
    dw.noalias() += dy * patches.transpose();
    if (layer.bias != bias::none) {
      db += dy.rowwise().sum();
    }
    if (!at.in->gradient.empty()) {
      patches_gradient.noalias() = w.transpose() * dy;
      roll_up(layer, at, at.sample(at.in->gradient, i, at.facts.in));
    }
  }
}

/// Returns one channel of all samples, with a row for each sample.
auto channel(std::vector<float>& batch, const shape& each, std::size_t which) {
  using values = Eigen::Array<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::size_t pixels = each.height * each.width;
  return Eigen::Map<values, Eigen::Unaligned, Eigen::OuterStride<>>(
      batch.data() + which * pixels, extent(batch.size() / each.size()), extent(pixels),
      Eigen::OuterStride<>(extent(each.size())));
}
float inverse_deviation(float variance) {
  return 1.0F / std::sqrt(variance + static_cast<float>(batch_norm::epsilon));
}
void normalise(place& at, const moments& by) {
  for (std::size_t c = 0; c < at.facts.in.channels; ++c) {
    const float scale = at.weights.parameter[c] * inverse_deviation(by.variance[c]);
    channel(at.out->value, at.facts.out, c) =
        scale * (channel(at.in->value, at.facts.in, c) - by.mean[c]) + at.bias.parameter[c];
  }
}
void forward(const batch_norm&, place& at, std::size_t batch) {
  for (std::size_t c = 0; c < at.facts.in.channels; ++c) {
    const auto x = channel(at.in->value, at.facts.in, c);
    at.mean[c] = x.mean();
    at.variance[c] = (x - at.mean[c]).square().mean();
  }
  normalise(at, {at.mean, at.variance});
  move_by(at.running, {at.mean, at.variance}, batch * at.facts.in.height * at.facts.in.width);
}
void infer(const batch_norm&, place& at, std::size_t) { normalise(at, at.running); }
void backward(const batch_norm&, place& at, std::size_t) {
  for (std::size_t c = 0; c < at.facts.in.channels; ++c) {
    const auto x = channel(at.in->value, at.facts.in, c);
    const auto dy = channel(at.out->gradient, at.facts.out, c);
    const float inverse = inverse_deviation(at.variance[c]);
    const float dw = inverse * (dy * (x - at.mean[c])).sum();
    const float db = dy.sum();
    at.weights.gradient[c] = dw;
    at.bias.gradient[c] = db;
    if (!at.in->gradient.empty()) {
      const auto count = static_cast<float>(x.size());
      const float scale = at.weights.parameter[c] * inverse;
      channel(at.in->gradient, at.facts.in, c) +=
          scale * (dy - db / count - (inverse * dw / count) * (x - at.mean[c]));
    }
  }
}

void forward(const relu&, place& at, std::size_t) {
  for (float& x : at.out->value) {
    x = std::max(x, 0.0F);
  }
}
void backward(const relu&, place& at, std::size_t) {
  for (std::size_t i = 0; i < at.out->value.size(); ++i) {
    at.out->gradient[i] = at.out->value[i] > 0.0F ? at.out->gradient[i] : 0.0F;
  }
}

void forward(const max_pool& layer, place& at, std::size_t) {
  const shape& in = at.facts.in;
  const shape& out = at.facts.out;
  const auto& x = at.in->value;
  const auto from = [&](std::size_t output) {
    return std::max(output * layer.stride, layer.padding) - layer.padding;
  };
  const auto to = [&](std::size_t output, std::size_t side) {
    return std::min(output * layer.stride + layer.kernel - layer.padding, side);
  };
  std::size_t output = 0;
  for (std::size_t first = 0; first < x.size(); first += in.height * in.width) {
    for (std::size_t oy = 0; oy < out.height; ++oy) {
      for (std::size_t ox = 0; ox < out.width; ++ox, ++output) {
        std::size_t best = first + from(oy) * in.width + from(ox);
        for (std::size_t y = from(oy); y < to(oy, in.height); ++y) {
          for (std::size_t i = from(ox); i < to(ox, in.width); ++i) {
            const std::size_t here = first + y * in.width + i;
            best = x[here] > x[best] ? here : best;
          }
        }
        at.winners[output] = best;
        at.out->value[output] = x[best];
      }
    }
  }
}
void backward(const max_pool&, place& at, std::size_t) {
  for (std::size_t output = 0; output < at.winners.size(); ++output) {
    at.in->gradient[at.winners[output]] += at.out->gradient[output];
  }
}

void forward(const average_pool&, place& at, std::size_t) {
  auto& y = at.out->value;
  column(y.data(), extent(y.size())) = as_matrix(at.in->value, y.size()).rowwise().mean();
}
void backward(const average_pool&, place& at, std::size_t) {
  auto& dy = at.out->gradient;
  const auto pixels = static_cast<float>(at.facts.in.height * at.facts.in.width);
  as_matrix(at.in->gradient, dy.size()).colwise() += column(dy.data(), extent(dy.size())) / pixels;
}

/// Calls `visit(input, output)` with the positions of each pixel that is kept.
template <class Visit>
void for_each_kept(const subsample& layer, const layer_facts& facts, std::size_t batch,
                   Visit visit) {
  const shape& in = facts.in;
  const shape& out = facts.out;
  for (std::size_t i = 0; i < batch; ++i) {
    for (std::size_t c = 0; c < std::min(in.channels, out.channels); ++c) {
      for (std::size_t y = 0; y < out.height; ++y) {
        for (std::size_t x = 0; x < out.width; ++x) {
          visit(
              ((i * in.channels + c) * in.height + y * layer.stride) * in.width + x * layer.stride,
              ((i * out.channels + c) * out.height + y) * out.width + x);
        }
      }
    }
  }
}
void forward(const subsample& layer, place& at, std::size_t batch) {
  std::ranges::fill(at.out->value, 0.0F);
  for_each_kept(layer, at.facts, batch, [&](std::size_t input, std::size_t output) {
    at.out->value[output] = at.in->value[input];
  });
}
void backward(const subsample& layer, place& at, std::size_t batch) {
  for_each_kept(layer, at.facts, batch, [&](std::size_t input, std::size_t output) {
    at.in->gradient[input] += at.out->gradient[output];
  });
}

void forward(const branch&, place&, std::size_t) {}
void backward(const branch&, place&, std::size_t) {}

void forward(const sum&, place& at, std::size_t batch) {
  as_matrix(at.out->value, batch) += as_matrix(at.added->value, batch);
}
void backward(const sum&, place& at, std::size_t batch) {
  if (at.facts.of_added == gradients::overwrite) {
    at.added->gradient = at.out->gradient;
  } else {
    as_matrix(at.added->gradient, batch) += as_matrix(at.out->gradient, batch);
  }
}

/// Calls `visit(first, second, both)` for each image, with the positions at which its channels
/// begin in the other layer's values, in the input's, and in the output.
template <class Visit>
void for_each_pair(const place& at, std::size_t batch, Visit visit) {
  const std::size_t second = at.facts.in.size();
  const std::size_t both = at.facts.out.size();
  for (std::size_t i = 0; i < batch; ++i) {
    visit(i * (both - second), i * second, i * both);
  }
}
void forward(const concatenate&, place& at, std::size_t batch) {
  const std::size_t behind = at.facts.out.size() - at.facts.in.size();
  for_each_pair(at, batch, [&](std::size_t first, std::size_t second, std::size_t both) {
    std::copy_n(&at.added->value[first], behind, &at.out->value[both]);
    std::copy_n(&at.in->value[second], at.facts.in.size(), &at.out->value[both + behind]);
  });
}
void backward(const concatenate&, place& at, std::size_t batch) {
  const std::size_t behind = at.facts.out.size() - at.facts.in.size();
  if (at.facts.of_added == gradients::overwrite) {
    std::ranges::fill(at.added->gradient, 0.0F);
  }
  for_each_pair(at, batch, [&](std::size_t first, std::size_t second, std::size_t both) {
    for (std::size_t i = 0; i < behind; ++i) {
      at.added->gradient[first + i] += at.out->gradient[both + i];
    }
    for (std::size_t i = 0; i < at.facts.in.size(); ++i) {
      at.in->gradient[second + i] += at.out->gradient[both + behind + i];
    }
  });
}

template <class Layer>
void infer(const Layer& layer, place& at, std::size_t batch) {
  forward(layer, at, batch);
}

}  // namespace

struct eigen::program {
  std::vector<any_layer> layers;
  std::size_t batch;
  std::vector<activation> activations{};
  std::vector<place> places{};

  program(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
          std::span<float> statistics)
      : layers(of.layers), batch(batch_size) {
    expect_fp32(of, "Eigen");
    activations.reserve(layers.size() + 1);  // places point into it
    activations.push_back({.value = std::vector<float>(batch * of.input.size())});
    const auto claim = [&] {
      const tutti::tensor first = tensors.front();
      tensors = tensors.subspan(1);
      return first;
    };
    std::size_t normalised = 0;
    for (const auto& facts : models::facts(of)) {
      const std::size_t size = batch * facts.out.size();
      if (facts.writes == activations.size()) {
        activations.push_back(
            {.value = std::vector<float>(size), .gradient = std::vector<float>(size)});
      }
      const any_layer& layer = layers[places.size()];
      place& at = places.emplace_back();
      at.facts = facts;
      at.in = &activations[facts.reads];
      at.out = &activations[facts.writes];
      at.added = &activations[facts.adds];
      at.weights = facts.weights > 0 ? claim() : tutti::tensor{};
      at.bias = facts.biases > 0 ? claim() : tutti::tensor{};
      if (std::holds_alternative<max_pool>(layer)) {
        at.winners.resize(size);
      }
      if (std::holds_alternative<convolution>(layer)) {
        const std::size_t cells = facts.weights / facts.out.channels;
        at.patches.resize(cells * facts.out.height * facts.out.width);
        at.patches_gradient.resize(at.patches.size());
      }
      at.running = running_part(statistics, normalised, facts.normalised);
      at.mean.resize(facts.normalised);
      at.variance.resize(facts.normalised);
      normalised += facts.normalised;
    }
  }

  activation& last() { return *places.back().out; }
};

eigen::eigen(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
             std::span<float> statistics, queue_type&)
    : program_(std::make_unique<program>(of, batch_size, tensors, statistics)) {}
eigen::eigen(eigen&&) noexcept = default;
eigen& eigen::operator=(eigen&&) noexcept = default;
eigen::~eigen() = default;

std::span<float> eigen::input() { return program_->activations.front().value; }
std::span<const float> eigen::logits() { return program_->last().value; }
void eigen::compare(std::span<const std::uint8_t> labels) {
  softmax_cross_entropy_gradient(logits(), labels, logits().size() / program_->batch,
                                 program_->last().gradient);
}
void eigen::forward(std::size_t layer, pass mode) {
  std::visit(
      [&](const auto& kind) {
        if (mode == pass::training) {
          models::forward(kind, program_->places[layer], program_->batch);
        } else {
          models::infer(kind, program_->places[layer], program_->batch);
        }
      },
      program_->layers[layer]);
}
void eigen::backward(std::size_t layer) {
  place& at = program_->places[layer];
  if (at.facts.parameters() == 0 && at.in->gradient.empty()) {
    return;
  }
  if (at.in != at.out && at.facts.of_read == gradients::overwrite) {
    std::ranges::fill(at.in->gradient, 0.0F);
  }
  std::visit([&](const auto& kind) { models::backward(kind, at, program_->batch); },
             program_->layers[layer]);
}

}  // namespace models
