#include "models/eigen.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

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

/// Values and the loss's gradient by them; the gradient stays empty for the network's input.
struct activation {
  std::vector<float> value{};
  std::vector<float> gradient{};
};

/// Where a layer works: what it is, what it reads and writes, its parameters.
struct place {
  layer_facts facts{};
  activation* in{};
  activation* out{};
  tutti::tensor weights{};
  tutti::tensor bias{};
  std::vector<std::uint8_t> winners{};  // of max_pool: which of the four pixels
  // Of convolution: one image unrolled, a row per kernel cell. Cells that lie in the padding are
  // never written and so stay zero.
  std::vector<float> patches{};
  std::vector<float> patches_gradient{};

  std::span<float> sample(std::vector<float>& of, std::size_t which, const shape& each) const {
    return std::span(of).subspan(which * each.size(), each.size());
  }
};

/// Calls `visit(cell in patches, pixels in the image, count)` for each run of neighbouring pixels
/// that one kernel cell reads, so that unrolling and rolling up are one loop.
template <class Visit>
void for_each_run(const shape& image, std::size_t kernel, Visit visit) {
  const std::size_t pad = kernel / 2;
  std::size_t cell = 0;
  for (std::size_t c = 0; c < image.channels; ++c) {
    for (std::size_t ky = 0; ky < kernel; ++ky) {
      for (std::size_t kx = 0; kx < kernel; ++kx, ++cell) {
        const std::size_t left = kx < pad ? pad - kx : 0;  // output columns that read the padding
        const std::size_t right = kx > pad ? kx - pad : 0;
        for (std::size_t y = 0; y < image.height; ++y) {
          if (y + ky < pad || y + ky >= image.height + pad || left + right >= image.width) {
            continue;
          }
          visit((cell * image.height + y) * image.width + left,
                (c * image.height + y + ky - pad) * image.width + left + kx - pad,
                image.width - left - right);
        }
      }
    }
  }
}

void unroll(std::span<const float> image, const shape& form, std::size_t kernel,
            std::vector<float>& patches) {
  for_each_run(form, kernel, [&](std::size_t cell, std::size_t pixel, std::size_t count) {
    std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(pixel), count,
                patches.begin() + static_cast<std::ptrdiff_t>(cell));
  });
}

void roll_up(std::span<const float> patches, const shape& form, std::size_t kernel,
             std::span<float> image) {
  for_each_run(form, kernel, [&](std::size_t cell, std::size_t pixel, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      image[pixel + i] += patches[cell + i];
    }
  });
}

void forward(const linear&, place& at, std::size_t batch) {
  auto y = as_matrix(at.out->value, batch);
  const auto w = as_matrix(at.weights.parameter, at.facts.biases);
  y.noalias() = as_matrix(at.in->value, batch) * w.transpose();
  y.rowwise() += row(at.bias.parameter.data(), extent(at.facts.biases));
}
void backward(const linear&, place& at, std::size_t batch) {
  const auto dy = as_matrix(at.out->gradient, batch);
  if (!at.in->gradient.empty()) {
    as_matrix(at.in->gradient, batch).noalias() =
        dy * as_matrix(at.weights.parameter, at.facts.biases);
  }
  as_matrix(at.weights.gradient, at.facts.biases).noalias() =
      dy.transpose() * as_matrix(at.in->value, batch);
  row(at.bias.gradient.data(), extent(at.facts.biases)) = dy.colwise().sum();
}

void forward(const convolution& layer, place& at, std::size_t batch) {
  const auto w = as_matrix(at.weights.parameter, layer.filters);
  const auto patches = as_matrix(at.patches, at.facts.weights / layer.filters);
  for (std::size_t i = 0; i < batch; ++i) {
    unroll(at.sample(at.in->value, i, at.facts.in), at.facts.in, layer.kernel, at.patches);
    auto y = as_matrix(at.sample(at.out->value, i, at.facts.out), layer.filters);
    y.noalias() = w * patches;
    y.colwise() += column(at.bias.parameter.data(), extent(layer.filters));
  }
}
void backward(const convolution& layer, place& at, std::size_t batch) {
  const auto w = as_matrix(at.weights.parameter, layer.filters);
  auto dw = as_matrix(at.weights.gradient, layer.filters);
  auto db = column(at.bias.gradient.data(), extent(layer.filters));
  const auto patches = as_matrix(at.patches, at.facts.weights / layer.filters);
  auto patches_gradient = as_matrix(at.patches_gradient, at.facts.weights / layer.filters);
  dw.setZero();
  db.setZero();
  std::ranges::fill(at.in->gradient, 0.0F);
  for (std::size_t i = 0; i < batch; ++i) {
    const auto dy = as_matrix(at.sample(at.out->gradient, i, at.facts.out), layer.filters);
    // The forward pass unrolled this image too, but keeping every image's patches would cost more
    // memory than unrolling once more costs time.
    unroll(at.sample(at.in->value, i, at.facts.in), at.facts.in, layer.kernel, at.patches);
    dw.noalias() += dy * patches.transpose();
    db += dy.rowwise().sum();
    if (!at.in->gradient.empty()) {
      patches_gradient.noalias() = w.transpose() * dy;
      roll_up(at.patches_gradient, at.facts.in, layer.kernel,
              at.sample(at.in->gradient, i, at.facts.in));
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

/// Calls `visit(output, corner)` for each output pixel, with the first pixel of its square.
template <class Visit>
void for_each_square(const layer_facts& facts, std::size_t batch, Visit visit) {
  std::size_t output = 0;
  for (std::size_t plane = 0; plane < batch * facts.out.channels; ++plane) {
    for (std::size_t y = 0; y < facts.out.height; ++y) {
      for (std::size_t x = 0; x < facts.out.width; ++x, ++output) {
        visit(output, (plane * facts.in.height + 2 * y) * facts.in.width + 2 * x);
      }
    }
  }
}

std::size_t pixel(const layer_facts& facts, std::size_t corner, std::size_t which) {
  return corner + which / 2 * facts.in.width + which % 2;
}

void forward(const max_pool&, place& at, std::size_t batch) {
  const auto& x = at.in->value;
  for_each_square(at.facts, batch, [&](std::size_t output, std::size_t corner) {
    std::size_t best = 0;
    for (std::size_t which = 1; which < 4; ++which) {
      if (x[pixel(at.facts, corner, which)] > x[pixel(at.facts, corner, best)]) {
        best = which;
      }
    }
    at.winners[output] = static_cast<std::uint8_t>(best);
    at.out->value[output] = x[pixel(at.facts, corner, best)];
  });
}
void backward(const max_pool&, place& at, std::size_t batch) {
  std::ranges::fill(at.in->gradient, 0.0F);
  for_each_square(at.facts, batch, [&](std::size_t output, std::size_t corner) {
    at.in->gradient[pixel(at.facts, corner, at.winners[output])] = at.out->gradient[output];
  });
}

}  // namespace

struct eigen::program {
  std::vector<any_layer> layers;
  std::size_t batch;
  std::vector<activation> activations{};
  std::vector<place> places{};

  program(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors)
      : layers(of.layers), batch(batch_size) {
    activations.reserve(layers.size() + 1);  // places point into it
    activations.push_back({.value = std::vector<float>(batch * of.input.size())});
    const auto all = models::facts(of);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      place& at = places.emplace_back();
      at.facts = all[i];
      at.in = &activations.back();
      if (!std::holds_alternative<relu>(layers[i])) {
        const std::size_t size = batch * at.facts.out.size();
        activations.push_back(
            {.value = std::vector<float>(size), .gradient = std::vector<float>(size)});
      }
      at.out = &activations.back();
      if (at.facts.weights > 0) {
        at.weights = tensors[0];
        at.bias = tensors[1];
        tensors = tensors.subspan(2);
      }
      if (std::holds_alternative<max_pool>(layers[i])) {
        at.winners.resize(batch * at.facts.out.size());
      }
      if (std::holds_alternative<convolution>(layers[i])) {
        const std::size_t cells = at.facts.weights / at.facts.biases;
        at.patches.resize(cells * at.facts.in.height * at.facts.in.width);
        at.patches_gradient.resize(at.patches.size());
      }
    }
  }
};

eigen::eigen(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
             queue_type&)
    : program_(std::make_unique<program>(of, batch_size, tensors)) {}
eigen::eigen(eigen&&) noexcept = default;
eigen& eigen::operator=(eigen&&) noexcept = default;
eigen::~eigen() = default;

std::span<float> eigen::input() { return program_->activations.front().value; }
std::span<const float> eigen::logits() { return program_->activations.back().value; }
void eigen::compare(std::span<const std::uint8_t> labels) {
  softmax_cross_entropy_gradient(logits(), labels, logits().size() / program_->batch,
                                 program_->activations.back().gradient);
}
void eigen::forward(std::size_t layer) {
  std::visit(
      [&](const auto& kind) { models::forward(kind, program_->places[layer], program_->batch); },
      program_->layers[layer]);
}
void eigen::backward(std::size_t layer) {
  std::visit(
      [&](const auto& kind) { models::backward(kind, program_->places[layer], program_->batch); },
      program_->layers[layer]);
}

}  // namespace models
