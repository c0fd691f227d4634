#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "data/dataset.hpp"
#include "models/backend.hpp"
#include "models/declaration.hpp"

namespace reference {

using models::pass;
using values = std::vector<double>;

/// A network in double precision by definition. It shares nothing with the backends but the
/// declaration and the layout of parameters and statistics. Every layer has output values of its
/// own and nothing is done in place. The gradient by a layer's values is the sum over all layers
/// that read them.
class network {
 public:
  network(models::declaration of, std::vector<values> parameters)
      : of_(std::move(of)), parameters_(std::move(parameters)) {
    std::vector<models::shape> shapes{of_.input};
    std::size_t parameter = 0;
    std::size_t channels = 0;
    for (const auto& each : of_.layers) {
      const auto* elsewhere = std::get_if<models::branch>(&each);
      const std::size_t reads = elsewhere == nullptr ? places_.size() : elsewhere->of + 1;
      auto facts =
          std::visit([&](const auto& layer) { return models::facts(layer, shapes[reads]); }, each);
      if (const auto* both = std::get_if<models::concatenate>(&each)) {
        facts.out.channels += shapes[both->with + 1].channels;
      }
      places_.push_back({reads, facts.in, facts.out, parameter, channels});
      shapes.push_back(facts.out);
      parameter += facts.parameters();
      channels += facts.normalised;
    }
    statistics_.resize(channels, 0);
    statistics_.resize(2 * channels, 1);
  }

  /// Returns the mean loss of the batch.
  double loss(const data::batch& batch, pass mode = pass::training) {
    const values logits = forward(batch, mode).back();
    double total = 0;
    for (std::size_t i = 0; i < batch.labels.size(); ++i) {
      const auto row = std::span(logits).subspan(i * classes(), classes());
      total += std::log(sum_of_exponentials(row)) - row[batch.labels[i]];
    }
    return total / static_cast<double>(batch.labels.size());
  }

  /// Returns the gradient of the mean loss by each tensor.
  std::vector<values> gradients(const data::batch& batch) {
    const auto yielded = forward(batch, pass::training);
    std::vector<values> slopes = zeros_like(yielded);
    std::vector<values> gradients = zeros_like(parameters_);
    for (std::size_t i = 0; i < batch.labels.size(); ++i) {
      const auto row = std::span(yielded.back()).subspan(i * classes(), classes());
      for (std::size_t c = 0; c < classes(); ++c) {
        slopes.back()[i * classes() + c] =
            (std::exp(row[c]) / sum_of_exponentials(row) - (c == batch.labels[i] ? 1 : 0)) /
            static_cast<double>(batch.labels.size());
      }
    }
    for (std::size_t l = of_.layers.size(); l-- > 0;) {
      std::visit(
          [&](const auto& layer) {
            backward(layer, places_[l], yielded, slopes[l + 1], slopes, gradients);
          },
          of_.layers[l]);
    }
    return gradients;
  }

  std::vector<values>& parameters() { return parameters_; }

  /// Running means, then running variances.
  values& statistics() { return statistics_; }

  /// Updates the statistics as a training pass does.
  void move_statistics(const data::batch& batch) {
    const auto yielded = forward(batch, pass::training);
    for (std::size_t l = 0; l < of_.layers.size(); ++l) {
      if (std::holds_alternative<models::batch_norm>(of_.layers[l])) {
        const auto& at = places_[l];
        for (std::size_t c = 0; c < at.in.channels; ++c) {
          const auto [mean, variance] = moments(at, yielded[at.reads], c);
          const auto n = static_cast<double>(count(at, yielded[at.reads]));
          double& running_mean = statistics_[at.channels_before + c];
          double& running_variance = statistics_[statistics_.size() / 2 + at.channels_before + c];
          running_mean = 0.9 * running_mean + 0.1 * mean;
          running_variance = 0.9 * running_variance + 0.1 * variance * n / (n - 1);
        }
      }
    }
  }

 private:
  /// Where a layer reads and what it makes. `reads` is 0 for the network's input, and l + 1 for the
  /// output of layer l.
  struct place {
    std::size_t reads{};
    models::shape in{};
    models::shape out{};
    std::size_t parameter{};  // the layer's first
    std::size_t channels_before{};
  };

  std::size_t classes() const { return places_.back().out.size(); }

  static double sum_of_exponentials(std::span<const double> row) {
    double sum = 0;
    for (const double x : row) {
      sum += std::exp(x);
    }
    return sum;
  }

  static std::vector<values> zeros_like(const std::vector<values>& all) {
    std::vector<values> made;
    for (const auto& each : all) {
      made.emplace_back(each.size());
    }
    return made;
  }

  /// Returns the batch and then the output of each layer.
  std::vector<values> forward(const data::batch& batch, pass mode) {
    mode_ = mode;
    std::vector<values> yielded{values(batch.images.begin(), batch.images.end())};
    for (std::size_t l = 0; l < of_.layers.size(); ++l) {
      values y(batch.labels.size() * places_[l].out.size());
      std::visit([&](const auto& layer) { forward(layer, places_[l], yielded, y); }, of_.layers[l]);
      yielded.push_back(std::move(y));
    }
    return yielded;
  }

  static std::size_t offset(const models::shape& s, std::size_t c, std::size_t y, std::size_t x) {
    return (c * s.height + y) * s.width + x;
  }

  /// Calls `visit(output, input, weight)` for each product of a matrix.
  template <class Visit>
  static void for_each_product(const models::linear&, const place& at, std::size_t images,
                               Visit visit) {
    for (std::size_t image = 0; image < images; ++image) {
      for (std::size_t o = 0; o < at.out.size(); ++o) {
        for (std::size_t i = 0; i < at.in.size(); ++i) {
          visit(image * at.out.size() + o, image * at.in.size() + i, o * at.in.size() + i);
        }
      }
    }
  }

  /// Calls `visit(output, input, weight)` for each product of a convolution.
  template <class Visit>
  static void for_each_product(const models::convolution& layer, const place& of,
                               std::size_t images, Visit visit) {
    const std::size_t pad = layer.kernel / 2;
    const models::shape kernel{of.in.channels, layer.kernel, layer.kernel};
    for (std::size_t image = 0; image < images; ++image) {
      for (std::size_t f = 0; f < layer.filters; ++f) {
        for (std::size_t oy = 0; oy < of.out.height; ++oy) {
          for (std::size_t ox = 0; ox < of.out.width; ++ox) {
            for (std::size_t w = 0; w < kernel.size(); ++w) {
              const std::size_t c = w / (layer.kernel * layer.kernel);
              const std::size_t y = oy * layer.stride + w / layer.kernel % layer.kernel;
              const std::size_t x = ox * layer.stride + w % layer.kernel;
              if (y >= pad && y < of.in.height + pad && x >= pad && x < of.in.width + pad) {
                visit(image * of.out.size() + offset(of.out, f, oy, ox),
                      image * of.in.size() + offset(of.in, c, y - pad, x - pad),
                      f * kernel.size() + w);
              }
            }
          }
        }
      }
    }
  }

  static bool has_bias(const models::linear&) { return true; }
  static bool has_bias(const models::convolution& layer) {
    return layer.bias == models::bias::one_a_filter;
  }

  template <class Product>
  void forward(const Product& layer, const place& at, const std::vector<values>& all,
               values& y) const {
    const values& x = all[at.reads];
    if (has_bias(layer)) {
      for (std::size_t o = 0; o < y.size(); ++o) {
        y[o] = parameters_[at.parameter + 1][channel(at.out, o)];
      }
    }
    for_each_product(layer, at, images(at, x), [&](std::size_t o, std::size_t i, std::size_t w) {
      y[o] += parameters_[at.parameter][w] * x[i];
    });
  }
  template <class Product>
  void backward(const Product& layer, const place& at, const std::vector<values>& all,
                const values& dy, std::vector<values>& slopes,
                std::vector<values>& gradients) const {
    const values& x = all[at.reads];
    values& dx = slopes[at.reads];
    if (has_bias(layer)) {
      for (std::size_t o = 0; o < dy.size(); ++o) {
        gradients[at.parameter + 1][channel(at.out, o)] += dy[o];
      }
    }
    for_each_product(layer, at, images(at, x), [&](std::size_t o, std::size_t i, std::size_t w) {
      gradients[at.parameter][w] += dy[o] * x[i];
      dx[i] += dy[o] * parameters_[at.parameter][w];
    });
  }

  static std::size_t images(const place& at, const values& x) { return x.size() / at.in.size(); }
  static std::size_t channel(const models::shape& of, std::size_t element) {
    return element / (of.height * of.width) % of.channels;
  }

  /// Returns the number of values of one channel.
  static std::size_t count(const place& at, const values& x) { return x.size() / at.in.channels; }

  /// Returns a channel's mean and variance over the batch.
  static std::pair<double, double> moments(const place& at, const values& x, std::size_t c) {
    const auto mean_of = [&](auto what) {
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        sum += channel(at.in, i) == c ? what(x[i]) : 0;
      }
      return sum / static_cast<double>(count(at, x));
    };
    const double mean = mean_of([](double each) { return each; });
    return {mean, mean_of([&](double each) { return (each - mean) * (each - mean); })};
  }
  /// Returns the mean and the deviation by which a channel is normalised.
  std::pair<double, double> normal(const place& at, const values& x, std::size_t c) const {
    const std::size_t running = at.channels_before + c;
    const auto [mean, variance] =
        mode_ == pass::training
            ? moments(at, x, c)
            : std::pair(statistics_[running], statistics_[statistics_.size() / 2 + running]);
    return {mean, std::sqrt(variance + 1e-5)};
  }
  void forward(const models::batch_norm&, const place& at, const std::vector<values>& all,
               values& y) const {
    const values& x = all[at.reads];
    for (std::size_t c = 0; c < at.in.channels; ++c) {
      const auto [mean, deviation] = normal(at, x, c);
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (channel(at.in, i) == c) {
          y[i] = (x[i] - mean) / deviation * parameters_[at.parameter][c] +
                 parameters_[at.parameter + 1][c];
        }
      }
    }
  }
  /// The gradient has further terms, because mean and deviation depend on every value of the
  /// channel.
  void backward(const models::batch_norm&, const place& at, const std::vector<values>& all,
                const values& dy, std::vector<values>& slopes,
                std::vector<values>& gradients) const {
    const values& x = all[at.reads];
    const auto n = static_cast<double>(count(at, x));
    for (std::size_t c = 0; c < at.in.channels; ++c) {
      const auto [mean, deviation] = normal(at, x, c);
      double& scale_gradient = gradients[at.parameter][c];
      double& offset_gradient = gradients[at.parameter + 1][c];
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (channel(at.in, i) == c) {
          scale_gradient += dy[i] * (x[i] - mean) / deviation;
          offset_gradient += dy[i];
        }
      }
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (channel(at.in, i) == c) {
          slopes[at.reads][i] +=
              parameters_[at.parameter][c] / deviation *
              (dy[i] - offset_gradient / n - (x[i] - mean) / deviation * scale_gradient / n);
        }
      }
    }
  }

  void forward(const models::relu&, const place& at, const std::vector<values>& all,
               values& y) const {
    std::ranges::transform(all[at.reads], y.begin(), [](double x) { return std::max(x, 0.0); });
  }
  void backward(const models::relu&, const place& at, const std::vector<values>& all,
                const values& dy, std::vector<values>& slopes, std::vector<values>&) const {
    for (std::size_t i = 0; i < dy.size(); ++i) {
      slopes[at.reads][i] += all[at.reads][i] > 0 ? dy[i] : 0;
    }
  }

  /// Returns where the largest value is of those that an output depends on.
  static std::size_t winner(const models::max_pool& layer, const place& of, const values& x,
                            std::size_t output) {
    const std::size_t plane = output / (of.out.height * of.out.width);
    const std::size_t top = output / of.out.width % of.out.height * layer.stride;
    const std::size_t left = output % of.out.width * layer.stride;
    std::size_t best = x.size();
    for (std::size_t y = top; y < top + layer.kernel; ++y) {
      for (std::size_t c = left; c < left + layer.kernel; ++c) {
        if (y >= layer.padding && y < of.in.height + layer.padding && c >= layer.padding &&
            c < of.in.width + layer.padding) {
          const std::size_t here = offset(of.in, plane, y - layer.padding, c - layer.padding);
          best = best == x.size() || x[here] > x[best] ? here : best;
        }
      }
    }
    return best;
  }
  void forward(const models::max_pool& layer, const place& at, const std::vector<values>& all,
               values& y) const {
    for (std::size_t o = 0; o < y.size(); ++o) {
      y[o] = all[at.reads][winner(layer, at, all[at.reads], o)];
    }
  }
  void backward(const models::max_pool& layer, const place& at, const std::vector<values>& all,
                const values& dy, std::vector<values>& slopes, std::vector<values>&) const {
    for (std::size_t o = 0; o < dy.size(); ++o) {
      slopes[at.reads][winner(layer, at, all[at.reads], o)] += dy[o];
    }
  }

  void forward(const models::average_pool&, const place& at, const std::vector<values>& all,
               values& y) const {
    const std::size_t pixels = at.in.height * at.in.width;
    for (std::size_t i = 0; i < all[at.reads].size(); ++i) {
      y[i / pixels] += all[at.reads][i] / static_cast<double>(pixels);
    }
  }
  void backward(const models::average_pool&, const place& at, const std::vector<values>&,
                const values& dy, std::vector<values>& slopes, std::vector<values>&) const {
    const std::size_t pixels = at.in.height * at.in.width;
    for (std::size_t i = 0; i < slopes[at.reads].size(); ++i) {
      slopes[at.reads][i] += dy[i / pixels] / static_cast<double>(pixels);
    }
  }

  /// Calls `visit(output, input)` for each output that has an input.
  template <class Visit>
  static void for_each_kept(const models::subsample& layer, const place& of, std::size_t outputs,
                            Visit visit) {
    for (std::size_t o = 0; o < outputs; ++o) {
      const std::size_t c = channel(of.out, o);
      const std::size_t y = o / of.out.width % of.out.height * layer.stride;
      const std::size_t x = o % of.out.width * layer.stride;
      if (c < of.in.channels) {
        visit(o, o / of.out.size() * of.in.size() + offset(of.in, c, y, x));
      }
    }
  }
  void forward(const models::subsample& layer, const place& at, const std::vector<values>& all,
               values& y) const {
    for_each_kept(layer, at, y.size(),
                  [&](std::size_t o, std::size_t i) { y[o] = all[at.reads][i]; });
  }
  void backward(const models::subsample& layer, const place& at, const std::vector<values>&,
                const values& dy, std::vector<values>& slopes, std::vector<values>&) const {
    for_each_kept(layer, at, dy.size(),
                  [&](std::size_t o, std::size_t i) { slopes[at.reads][i] += dy[o]; });
  }

  void forward(const models::branch&, const place& at, const std::vector<values>& all,
               values& y) const {
    y = all[at.reads];
  }
  void backward(const models::branch&, const place& at, const std::vector<values>&,
                const values& dy, std::vector<values>& slopes, std::vector<values>&) const {
    add(dy, slopes[at.reads]);
  }

  void forward(const models::sum& layer, const place& at, const std::vector<values>& all,
               values& y) const {
    y = all[at.reads];
    add(all[layer.with + 1], y);
  }
  void backward(const models::sum& layer, const place& at, const std::vector<values>&,
                const values& dy, std::vector<values>& slopes, std::vector<values>&) const {
    add(dy, slopes[at.reads]);
    add(dy, slopes[layer.with + 1]);
  }
  /// The origin of value `o` of a concatenation: in the layer before or, if `first`, in the other
  /// one.
  struct origin {
    bool first;
    std::size_t at;
  };
  static origin before_concatenation(const place& of, std::size_t o) {
    const std::size_t behind = of.out.size() - of.in.size();
    const std::size_t image = o / of.out.size();
    const std::size_t within = o % of.out.size();
    return within < behind ? origin{true, image * behind + within}
                           : origin{false, image * of.in.size() + within - behind};
  }
  void forward(const models::concatenate& layer, const place& at, const std::vector<values>& all,
               values& y) const {
    for (std::size_t o = 0; o < y.size(); ++o) {
      const origin from = before_concatenation(at, o);
      y[o] = all[from.first ? layer.with + 1 : at.reads][from.at];
    }
  }
  void backward(const models::concatenate& layer, const place& at, const std::vector<values>&,
                const values& dy, std::vector<values>& slopes, std::vector<values>&) const {
    for (std::size_t o = 0; o < dy.size(); ++o) {
      const origin from = before_concatenation(at, o);
      slopes[from.first ? layer.with + 1 : at.reads][from.at] += dy[o];
    }
  }

  static void add(const values& from, values& to) {
    std::ranges::transform(from, to, to.begin(), [](double a, double b) { return a + b; });
  }

  models::declaration of_;
  std::vector<values> parameters_;
  std::vector<place> places_{};
  values statistics_{};
  pass mode_ = pass::training;
};

}  // namespace reference
