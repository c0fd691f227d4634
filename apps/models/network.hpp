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

#include "data/augmentation.hpp"
#include "data/dataset.hpp"
#include "models/backend.hpp"
#include "models/declaration.hpp"
#include "models/softmax_cross_entropy.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/kernels/arithmetic.hpp"

namespace models {

/// Makes a network with room for the gradients of only one layer at a time, the largest.
struct gradients_of_a_layer {};

/// A network that trains. Parameters and gradients lie in a flat arena of the backend's memory. The
/// same seed gives the same parameters on every rank. A batch may be smaller than `batch_size`, as
/// the last one of an evaluation: it costs as much as a full one, and loss and gradient are means
/// over its images. A network with batch_norm layers can train only on full batches.
///
/// If the backend's queue is a device's, layers are only enqueued, and what a callback is told
/// holds in the order of `queue()`. The host waits only where it reads the score, and where it sets
/// a batch while the device still computes with the one before.
template <backend Backend>
class network {
 public:
  using queue_type = typename Backend::queue_type;

  /// Gradients lie in the span of zeros that `lend(elements)` returns, or without `lend` in memory
  /// of the network's own. With `gradients_of_a_layer` the tensors have no memory for gradients;
  /// `gradient(id)` then returns where the gradient of the layer just computed lies until the next
  /// layer's overwrites it.
  template <class Lend = std::nullptr_t>
  network(const declaration& of, std::size_t batch_size, std::uint64_t seed, Lend lend = {})
      : layers_(facts(of)),
        arena_(lay_out(lend)),
        ids_(number(layers_)),
        room_(tutti::allocate_zeros<float>(queue_, room_of_a_layer())),
        computed_(tensors_with_gradients()),
        statistics_(tutti::allocate<float>(queue_, 2 * normalised(layers_))),
        batch_size_(batch_size),
        computer_(of, batch_size, computed_, tutti::span_of(statistics_), queue_) {
    labels_.reserve(batch_size);
    initialise(seed);
  }

  const std::vector<tutti::tensor>& tensors() const { return arena_.tensors(); }
  /// Returns where the backward pass leaves the gradient of tensor `id`.
  std::span<const float> gradient(tutti::tensor_id id) const {
    return computed_[tutti::index(id)].gradient;
  }
  /// Returns the bytes of the room for one layer's gradients, or 0 if `tensors` have memory for
  /// theirs.
  std::size_t room_for_gradients() const { return room_.size() * sizeof(float); }
  queue_type& queue() { return queue_; }
  std::size_t batch_size() const { return batch_size_; }
  std::size_t layers() const { return layers_.size(); }
  shape input() const { return layers_.front().in; }

  /// Returns the parameters of a layer in forward order; none for a layer without parameters.
  std::span<const tutti::tensor_id> parameters_of(std::size_t layer) const { return ids_[layer]; }

  /// Returns the statistics that inference normalises by: the running means of all channels of all
  /// batch_norm layers, layer by layer, then their running variances. Each rank has its own, of the
  /// images that it has seen.
  std::span<float> statistics() { return tutti::span_of(statistics_); }

  /// The passes step by step, for a caller that must wait between layers: set a batch, then call
  /// forward_layer for every layer from 0, then backward_layer for every layer down to 0.
  void set_batch(const data::batch& batch, pass mode = pass::training) {
    const auto images = computer_.input();
    if (batch.labels.empty() || batch.labels.size() > batch_size_ ||
        batch.images.size() != batch.labels.size() * input().size() ||
        std::ranges::max(batch.labels) >= layers_.back().out.size()) {
      throw tutti::usage_error(tutti::sentence(
          {"model: a batch of ", batch.labels.size(), " labels and ", batch.images.size(),
           " pixels does not fit. Fix: at most ", batch_size_, " images of ", input().size(),
           " pixels, labels below ", layers_.back().out.size()}));
    }
    if (mode == pass::training && batch.labels.size() < batch_size_ && statistics_.size() > 0) {
      throw tutti::usage_error(tutti::sentence(
          {"model: a batch of ", batch.labels.size(),
           " images is too small to normalise. Fix: train on batches of ", batch_size_}));
    }
    settle();  // the batch before may still be being copied to the device
    std::ranges::copy(batch.images, images.begin());
    std::ranges::fill(images.subspan(batch.images.size()), 0.0F);
    labels_.assign(batch.labels.begin(), batch.labels.end());
    mode_ = mode;
    enqueued_ = true;
    computer_.load();
  }

  void forward_layer(std::size_t layer) {
    enqueued_ = true;
    computer_.forward(layer, mode_);
    score_.reset();
  }

  /// Computes a layer's gradients. When this returns, the layer's parameters are not read any more
  /// and may be changed.
  void backward_layer(std::size_t layer, gradients mode = gradients::overwrite) {
    if (layer + 1 == layers_.size()) {
      enqueued_ = true;
      computer_.compare(labels_);
    }
    if (mode == gradients::accumulate) {
      accumulate_layer(layer);
    } else {
      computer_.backward(layer);
    }
  }

  /// Runs a forward pass. Calls `use(id)` just before the layer that reads parameter `id`.
  template <std::invocable<tutti::tensor_id> Use>
  void forward(const data::batch& batch, Use&& use) {
    set_batch(batch);
    forward(use);
  }
  void forward(const data::batch& batch, pass mode = pass::training) {
    set_batch(batch, mode);
    forward([](tutti::tensor_id) {});
  }

  /// Runs a forward pass on the batch that was set last, which is still in the backend's memory.
  template <std::invocable<tutti::tensor_id> Use>
  void forward(Use&& use) {
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      for (const auto id : parameters_of(layer)) {
        use(id);
      }
      forward_layer(layer);
    }
  }

  /// Runs a backward pass. Calls `done(id)` as soon as gradient `id` is final, in strictly
  /// descending order, while the layers nearer the input are still to be computed.
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

  /// Returns the mean loss over the batch last forwarded, and how many of its images were
  /// classified correctly.
  float loss() { return static_cast<float>(scored().mean_loss()); }
  std::size_t correct() { return scored().correct; }
  const score& scored() {
    if (!score_) {
      settle();
      score_ = softmax_cross_entropy(computer_.logits(), labels_, layers_.back().out.size());
    }
    return *score_;
  }

 private:
  using memory = tutti::memory_of<float, queue_type>;
  using arena = tutti::arena_of<memory>;

  template <class Lend>
  arena lay_out(Lend lend) {
    const auto zeros = [this](std::size_t n) { return tutti::allocate_zeros<float>(queue_, n); };
    if constexpr (std::same_as<Lend, gradients_of_a_layer>) {
      return arena(declare(layers_), Backend::alignment, zeros,
                   [](std::size_t) { return std::span<float>(); });
    } else if constexpr (std::same_as<Lend, std::nullptr_t>) {
      return arena(declare(layers_), Backend::alignment, zeros);
    } else {
      return arena(declare(layers_), Backend::alignment, zeros, lend);
    }
  }

  /// Returns the elements of the largest layer's gradients, or 0 if the tensors have memory for
  /// theirs.
  std::size_t room_of_a_layer() const {
    std::size_t most = 0;
    for (const auto& layer : layers_) {
      most = std::max(most, in_room(layer.weights) + in_room(layer.biases));
    }
    return arena_has_gradients() ? 0 : most;
  }
  static std::size_t in_room(std::size_t elements) {
    return tutti::round_up(elements, Backend::alignment);
  }
  bool arena_has_gradients() const {
    return std::ranges::any_of(tensors(), [](const auto& each) { return !each.gradient.empty(); });
  }
  /// Returns the tensors with the memory that the backend writes gradients to. If there is room for
  /// only one layer, each layer's gradients begin at its start.
  std::vector<tutti::tensor> tensors_with_gradients() {
    auto all = tensors();
    for (std::size_t layer = 0; room_.size() > 0 && layer < layers_.size(); ++layer) {
      std::span<float> left = tutti::span_of(room_);
      for (const auto id : parameters_of(layer)) {
        tutti::tensor& each = all[tutti::index(id)];
        each.gradient = left.first(each.elements);
        left = left.subspan(in_room(each.elements));
      }
    }
    return all;
  }

  static std::vector<typename arena::declaration> declare(const std::vector<placed_facts>& layers) {
    std::vector<typename arena::declaration> all;
    for (const auto& each : layers) {
      if (each.weights > 0) {
        all.push_back({each.name + ".weight", each.weights,
                       each.filters == 0
                           ? tutti::tensor_shape()
                           : tutti::tensor_shape{each.filters, each.weights / each.filters}});
      }
      if (each.biases > 0) {
        all.push_back({each.name + ".bias", each.biases});
      }
    }
    return all;
  }

  static std::size_t normalised(const std::vector<placed_facts>& layers) {
    std::size_t channels = 0;
    for (const auto& each : layers) {
      channels += each.normalised;
    }
    return channels;
  }

  static std::vector<std::vector<tutti::tensor_id>> number(
      const std::vector<placed_facts>& layers) {
    std::vector<std::vector<tutti::tensor_id>> all;
    std::uint32_t next = 0;
    for (const auto& each : layers) {
      auto& own = all.emplace_back();
      while (own.size() < each.parameters()) {
        own.push_back(tutti::tensor_id{next++});
      }
    }
    return all;
  }

  /// Waits until the enqueued work no longer reads the host's memory.
  void settle() {
    if (enqueued_) {
      queue_.synchronize();
      enqueued_ = false;
    }
  }

  /// Draws initial weights with the deviation that each layer states. The last layer, which no
  /// rectifier follows, gets a tenth of it, because a confident wrong guess at the start costs many
  /// steps. Biases stay zero. Box and Muller's transform is written out, because standard libraries
  /// differ in theirs and replicas must not.
  void initialise(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      if (layers_[layer].weights == 0) {
        continue;
      }
      const double share = layer + 1 == layers_.size() ? 0.1 : 1.0;
      const double deviation = share * layers_[layer].deviation;
      const auto parameter = tensors()[tutti::index(ids_[layer].front())].parameter;
      tutti::fill_from_host(queue_, parameter, [&](std::span<float> weights) {
        for (float& weight : weights) {
          const double radius = std::sqrt(-2.0 * std::log(uniform()));
          weight =
              static_cast<float>(layers_[layer].mean +
                                 deviation * radius * std::cos(2.0 * std::numbers::pi * uniform()));
        }
      });
    }
    tutti::fill_from_host(queue_, statistics(), [](std::span<float> running) {
      std::ranges::fill(running.first(running.size() / 2), 0.0F);
      std::ranges::fill(running.last(running.size() / 2), 1.0F);
    });
  }

  void accumulate_layer(std::size_t layer) {
    if (room_.size() > 0) {
      throw tutti::usage_error(
          "model: gradients cannot be accumulated, because only one layer's are kept at a time. "
          "Fix: a network with memory for all");
    }
    // Allocated here, because accumulation is rare and backends need not know of it.
    if (before_.size() == 0) {
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

  std::vector<placed_facts> layers_;
  queue_type queue_{};
  arena arena_;
  std::vector<std::vector<tutti::tensor_id>> ids_;
  memory room_;                          // for one layer's gradients, if the tensors have no memory
  std::vector<tutti::tensor> computed_;  // with memory for gradients: `room_` or the arena's
  memory statistics_;
  memory before_{};  // old gradients, to which new ones are added
  std::size_t batch_size_;
  Backend computer_;
  std::vector<std::uint8_t> labels_{};
  pass mode_ = pass::training;
  bool enqueued_ = false;
  std::optional<score> score_ = score{};
};

/// Scores every image of `images`, in order, through windows in their middle. The last batch may be
/// shorter.
template <backend Backend>
score evaluate(network<Backend>& model, const data::dataset& images,
               const data::augmentation& shown = {}) {
  score total{};
  const std::size_t size = shown.of(images.image).size();
  std::vector<float> pixels(model.batch_size() * size);
  for (std::size_t first = 0; first < images.size(); first += model.batch_size()) {
    const std::size_t count = std::min(model.batch_size(), images.size() - first);
    const auto part = std::span(pixels).first(count * size);
    for (std::size_t i = 0; i < count; ++i) {
      shown.standardise_centre(images, first + i, part.subspan(i * size, size));
    }
    model.forward({part, std::span(images.labels).subspan(first, count)}, pass::inference);
    total += model.scored();
  }
  return total;
}

}  // namespace models
