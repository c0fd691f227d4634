#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include "data/dataset.hpp"
#include "models/declaration.hpp"

namespace reference {

using values = std::vector<double>;

/// A network in double precision by definition, one image at a time, nothing shared with the
/// backends but the declaration and the layout of the parameters.
class network {
 public:
  network(models::declaration of, std::vector<values> parameters)
      : of_(std::move(of)), parameters_(std::move(parameters)) {}

  /// Mean loss of the batch.
  double loss(const data::batch& batch) { return run(batch, nullptr); }

  /// Gradient of the mean loss by each tensor.
  std::vector<values> gradients(const data::batch& batch) {
    std::vector<values> all;
    for (const auto& each : parameters_) {
      all.emplace_back(each.size());
    }
    run(batch, &all);
    return all;
  }

  std::vector<values>& parameters() { return parameters_; }

 private:
  double run(const data::batch& batch, std::vector<values>* gradients) {
    double total = 0;
    for (std::size_t i = 0; i < batch.labels.size(); ++i) {
      const auto image = batch.images.subspan(i * of_.input.size(), of_.input.size());
      std::vector<values> activations{values(image.begin(), image.end())};
      std::vector<models::shape> shapes{of_.input};
      std::size_t next = 0;
      for (const auto& each : of_.layers) {
        shapes.push_back(std::visit(
            [&](const auto& layer) { return models::facts(layer, shapes.back()).out; }, each));
        activations.push_back(std::visit(
            [&](const auto& layer) {
              return forward(layer, activations.back(), shapes[shapes.size() - 2], shapes.back(),
                             next);
            },
            each));
        next += has_parameters(each) ? 2 : 0;
      }
      values& logits = activations.back();
      double sum = 0;
      for (const double x : logits) {
        sum += std::exp(x);
      }
      total += std::log(sum) - logits[batch.labels[i]];
      if (gradients == nullptr) {
        continue;
      }
      values slope;
      for (std::size_t c = 0; c < logits.size(); ++c) {
        slope.push_back((std::exp(logits[c]) / sum - (c == batch.labels[i] ? 1 : 0)) /
                        static_cast<double>(batch.labels.size()));
      }
      for (std::size_t l = of_.layers.size(); l-- > 0;) {
        next -= has_parameters(of_.layers[l]) ? 2 : 0;
        slope = std::visit(
            [&](const auto& layer) {
              return backward(layer, activations[l], slope, shapes[l], shapes[l + 1], next,
                              *gradients);
            },
            of_.layers[l]);
      }
    }
    return total / static_cast<double>(batch.labels.size());
  }

  static bool has_parameters(const models::any_layer& layer) {
    return std::holds_alternative<models::linear>(layer) ||
           std::holds_alternative<models::convolution>(layer);
  }

  values forward(const models::linear&, const values& x, models::shape, models::shape out,
                 std::size_t id) const {
    values y(parameters_[id + 1]);
    for (std::size_t o = 0; o < out.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        y[o] += parameters_[id][o * x.size() + i] * x[i];
      }
    }
    return y;
  }
  values backward(const models::linear&, const values& x, const values& dy, models::shape,
                  models::shape, std::size_t id, std::vector<values>& gradients) const {
    values dx(x.size());
    for (std::size_t o = 0; o < dy.size(); ++o) {
      gradients[id + 1][o] += dy[o];
      for (std::size_t i = 0; i < x.size(); ++i) {
        gradients[id][o * x.size() + i] += dy[o] * x[i];
        dx[i] += dy[o] * parameters_[id][o * x.size() + i];
      }
    }
    return dx;
  }

  /// Calls `visit(output, input, weight, filter)` for each product of a convolution.
  template <class Visit>
  static void for_each_product(const models::convolution& layer, models::shape in, Visit visit) {
    const auto at = [](const models::shape& s, std::size_t c, std::size_t y, std::size_t x) {
      return (c * s.height + y) * s.width + x;
    };
    const std::size_t pad = layer.kernel / 2;
    const models::shape kernel{in.channels, layer.kernel, layer.kernel};
    for (std::size_t f = 0; f < layer.filters; ++f) {
      for (std::size_t y = 0; y < in.height; ++y) {
        for (std::size_t x = 0; x < in.width; ++x) {
          for (std::size_t c = 0; c < in.channels; ++c) {
            for (std::size_t ky = 0; ky < layer.kernel; ++ky) {
              for (std::size_t kx = 0; kx < layer.kernel; ++kx) {
                if (y + ky >= pad && y + ky < in.height + pad && x + kx >= pad &&
                    x + kx < in.width + pad) {
                  visit(at(in, f, y, x), at(in, c, y + ky - pad, x + kx - pad),
                        f * kernel.size() + at(kernel, c, ky, kx));
                }
              }
            }
          }
        }
      }
    }
  }
  values forward(const models::convolution& layer, const values& x, models::shape in,
                 models::shape out, std::size_t id) const {
    values y(out.size());
    for (std::size_t o = 0; o < y.size(); ++o) {
      y[o] = parameters_[id + 1][o / (out.height * out.width)];
    }
    for_each_product(layer, in, [&](std::size_t o, std::size_t i, std::size_t w) {
      y[o] += parameters_[id][w] * x[i];
    });
    return y;
  }
  values backward(const models::convolution& layer, const values& x, const values& dy,
                  models::shape in, models::shape out, std::size_t id,
                  std::vector<values>& gradients) const {
    values dx(x.size());
    for (std::size_t o = 0; o < dy.size(); ++o) {
      gradients[id + 1][o / (out.height * out.width)] += dy[o];
    }
    for_each_product(layer, in, [&](std::size_t o, std::size_t i, std::size_t w) {
      gradients[id][w] += dy[o] * x[i];
      dx[i] += dy[o] * parameters_[id][w];
    });
    return dx;
  }

  values forward(const models::relu&, const values& x, models::shape, models::shape,
                 std::size_t) const {
    values y(x);
    for (double& each : y) {
      each = std::max(each, 0.0);
    }
    return y;
  }
  values backward(const models::relu&, const values& x, const values& dy, models::shape,
                  models::shape, std::size_t, std::vector<values>&) const {
    values dx(dy);
    for (std::size_t i = 0; i < x.size(); ++i) {
      dx[i] *= x[i] > 0 ? 1 : 0;
    }
    return dx;
  }

  static std::size_t winner(const values& x, models::shape in, models::shape out,
                            std::size_t output) {
    const std::size_t plane = output / (out.height * out.width);
    const std::size_t top = output / out.width % out.height * 2;
    const std::size_t left = output % out.width * 2;
    std::size_t best = (plane * in.height + top) * in.width + left;
    for (std::size_t y = top; y < top + 2; ++y) {
      for (std::size_t c = left; c < left + 2; ++c) {
        const std::size_t here = (plane * in.height + y) * in.width + c;
        best = x[here] > x[best] ? here : best;
      }
    }
    return best;
  }
  values forward(const models::max_pool&, const values& x, models::shape in, models::shape out,
                 std::size_t) const {
    values y(out.size());
    for (std::size_t o = 0; o < y.size(); ++o) {
      y[o] = x[winner(x, in, out, o)];
    }
    return y;
  }
  values backward(const models::max_pool&, const values& x, const values& dy, models::shape in,
                  models::shape out, std::size_t, std::vector<values>&) const {
    values dx(x.size());
    for (std::size_t o = 0; o < dy.size(); ++o) {
      dx[winner(x, in, out, o)] += dy[o];
    }
    return dx;
  }

  models::declaration of_;
  std::vector<values> parameters_;
};

}  // namespace reference
