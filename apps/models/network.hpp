#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.hpp"
#include "models/backend.hpp"
#include "models/declaration.hpp"
#include "models/softmax_cross_entropy.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/kernels/arithmetic.hpp"

namespace models {

/// What backward does with the gradients that are there already.
enum class gradients { overwrite, accumulate };

/// A network that trains. Parameters and gradients lie in a flat arena of the backend's memory; the
/// same seed gives the same parameters on every rank. A batch may be smaller than `batch_size` (the
/// last one of an evaluation): it costs as much as a full one, and loss and gradient are means over
/// its images.
///
/// Where the backend's queue is a device's, layers are enqueued: what a callback is told holds in
/// the order of `queue()`. The host waits where the score is read, once a batch, and nowhere else.
template <backend Backend>
class network {
 public:
  using queue_type = typename Backend::queue_type;

  network(const declaration& of, std::size_t batch_size, std::uint64_t seed)
      : layers_(facts(of)),
        arena_(declare(layers_), Backend::alignment,
               [this](std::size_t n) { return tutti::allocate_zeros<float>(queue_, n); }),
        ids_(number(layers_)),
        batch_size_(batch_size),
        computer_(of, batch_size, arena_.tensors(), queue_) {
    labels_.reserve(batch_size);
    initialise(seed);
  }

  const std::vector<tutti::tensor>& tensors() const { return arena_.tensors(); }
  queue_type& queue() { return queue_; }
  std::size_t batch_size() const { return batch_size_; }
  std::size_t layers() const { return layers_.size(); }
  shape input() const { return layers_.front().in; }

  /// In forward order; empty for a layer without parameters.
  std::span<const tutti::tensor_id> parameters_of(std::size_t layer) const { return ids_[layer]; }

  /// Step by step, for a caller that must wait between layers: a batch, then every layer forward
  /// from 0, then every layer backward to 0.
  void set_batch(const data::batch& batch) {
    const auto images = computer_.input();
    if (batch.labels.empty() || batch.labels.size() > batch_size_ ||
        batch.images.size() != batch.labels.size() * input().size() ||
        std::ranges::max(batch.labels) >= layers_.back().out.size()) {
      throw tutti::usage_error(
          "model: a batch of " + std::to_string(batch.labels.size()) + " labels and " +
          std::to_string(batch.images.size()) + " pixels does not fit. Fix: at most " +
          std::to_string(batch_size_) + " images of " + std::to_string(input().size()) +
          " pixels, labels below " + std::to_string(layers_.back().out.size()) + ".");
    }
    scored();  // the batch before may still be on its way to the device
    std::ranges::copy(batch.images, images.begin());
    std::ranges::fill(images.subspan(batch.images.size()), 0.0F);
    labels_.assign(batch.labels.begin(), batch.labels.end());
  }

  void forward_layer(std::size_t layer) {
    computer_.forward(layer);
    score_.reset();
  }

  /// The layer's parameters may be changed once this returns: it has read them for the last time.
  void backward_layer(std::size_t layer, gradients mode = gradients::overwrite) {
    if (layer + 1 == layers_.size()) {
      computer_.compare(labels_);
    }
    if (mode == gradients::accumulate) {
      accumulate_layer(layer);
    } else {
      computer_.backward(layer);
    }
  }

  /// Calls `use(id)` just before the layer that reads parameter `id`.
  template <std::invocable<tutti::tensor_id> Use>
  void forward(const data::batch& batch, Use&& use) {
    set_batch(batch);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      for (const auto id : parameters_of(layer)) {
        use(id);
      }
      forward_layer(layer);
    }
  }
  void forward(const data::batch& batch) {
    forward(batch, [](tutti::tensor_id) {});
  }

  /// Calls `done(id)` as soon as gradient `id` is final, in strictly descending order, while the
  /// layers nearer the input still have to compute.
  template <std::invocable<tutti::tensor_id> Done>
  void backward(Done&& done, gradients mode = gradients::overwrite) {
    for (std::size_t layer = layers_.size(); layer-- > 0;) {
      backward_layer(layer, mode);
      const auto ids = parameters_of(layer);
      for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
        done(*id);
      }
    }
  }

  /// Of the batch last forwarded: the mean loss, and how many images were classified right.
  float loss() { return static_cast<float>(scored().mean_loss()); }
  std::size_t correct() { return scored().correct; }
  const score& scored() {
    if (!score_) {
      queue_.synchronize();
      score_ = softmax_cross_entropy(computer_.logits(), labels_, layers_.back().out.size());
    }
    return *score_;
  }

 private:
  using memory = tutti::memory_of<float, queue_type>;
  using arena = tutti::arena_of<memory>;

  static std::vector<typename arena::declaration> declare(const std::vector<layer_facts>& layers) {
    std::vector<typename arena::declaration> all;
    for (const auto& each : layers) {
      if (each.weights > 0) {
        all.push_back({each.name + ".weight", each.weights});
        all.push_back({each.name + ".bias", each.biases});
      }
    }
    return all;
  }

  static std::vector<std::vector<tutti::tensor_id>> number(const std::vector<layer_facts>& layers) {
    std::vector<std::vector<tutti::tensor_id>> all;
    std::uint32_t next = 0;
    for (const auto& each : layers) {
      all.emplace_back();
      if (each.weights > 0) {
        all.back() = {tutti::tensor_id{next}, tutti::tensor_id{next + 1}};
        next += 2;
      }
    }
    return all;
  }

  /// Weights as He et al., "Delving deep into rectifiers", 2015, but the last layer's, which no
  /// rectifier follows, a tenth of that: a confident wrong guess at the start costs many steps.
  /// Biases stay zero. Box and Muller's transform by hand, because standard libraries differ in
  /// theirs and replicas must not.
  void initialise(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      if (layers_[layer].weights == 0) {
        continue;
      }
      const std::size_t inputs = layers_[layer].weights / layers_[layer].biases;
      const double share = layer + 1 == layers_.size() ? 0.1 : 1.0;
      const double deviation = share * std::sqrt(2.0 / static_cast<double>(inputs));
      const auto parameter = tensors()[tutti::index(ids_[layer].front())].parameter;
      tutti::fill_from_host(queue_, parameter, [&](std::span<float> weights) {
        for (float& weight : weights) {
          const double radius = std::sqrt(-2.0 * std::log(uniform()));
          weight =
              static_cast<float>(deviation * radius * std::cos(2.0 * std::numbers::pi * uniform()));
        }
      });
    }
  }

  void accumulate_layer(std::size_t layer) {
    if (before_.size() == 0) {  // accumulation is rare, and no backend need know of it
      before_ = tutti::allocate<float>(queue_, arena_.gradients().size());
    }
    std::span<float> room = tutti::span_of(before_);
    for (const auto id : parameters_of(layer)) {
      const auto gradient = tensors()[tutti::index(id)].gradient;
      queue_.copy(room.data(), gradient.data(), gradient.size_bytes());
      room = room.subspan(gradient.size());
    }
    computer_.backward(layer);
    room = tutti::span_of(before_);
    for (const auto id : parameters_of(layer)) {
      const auto gradient = tensors()[tutti::index(id)].gradient;
      tutti::kernels::add(queue_, gradient, room.first(gradient.size()));
      room = room.subspan(gradient.size());
    }
  }

  std::vector<layer_facts> layers_;
  queue_type queue_{};
  arena arena_;
  memory before_{};  // gradients that the next are added to
  std::vector<std::vector<tutti::tensor_id>> ids_;
  std::size_t batch_size_;
  Backend computer_;
  std::vector<std::uint8_t> labels_{};
  std::optional<score> score_ = score{};
};

/// Scores every image of `images`, in order, the last batch as short as it comes.
template <backend Backend>
score evaluate(network<Backend>& model, const data::dataset& images) {
  score total{};
  std::vector<float> pixels(model.batch_size() * images.image.size());
  for (std::size_t first = 0; first < images.size(); first += model.batch_size()) {
    const std::size_t count = std::min(model.batch_size(), images.size() - first);
    const auto part = std::span(pixels).first(count * images.image.size());
    for (std::size_t i = 0; i < count; ++i) {
      images.standardise(first + i, part.subspan(i * images.image.size(), images.image.size()));
    }
    model.forward({part, std::span(images.labels).subspan(first, count)});
    total += model.scored();
  }
  return total;
}

}  // namespace models
