#include "models/cudnn.hpp"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <variant>

#include "models/cudnn/layers.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/kernels/arithmetic.hpp"

namespace models {

using namespace with_cudnn;

/// The part of the backend that does not depend on the type in which layers compute.
struct cudnn::program {
  program(const declaration& of, std::size_t batch_size, std::size_t its_classes,
          tutti::cuda::stream& queue)
      : at(queue),
        classes(its_classes),
        input(batch_size * of.input.size()),
        planes(input.size()),
        logits(batch_size * classes),
        scores(logits.size()),
        slopes(logits.size()),
        labels_sent(logits.size()),
        labels(logits.size()) {}
  virtual ~program() = default;

  virtual void load() = 0;
  virtual void forward(std::size_t layer, pass mode) = 0;
  virtual void backward(std::size_t layer) = 0;
  virtual void send_slopes() = 0;  // to the activation that the last layer's backward pass reads

  /// Writes the gradient of the mean loss: softmax minus one at each label, divided by the number
  /// of labels.
  void compare(std::span<const std::uint8_t> wanted) {
    const float share = 1.0F / static_cast<float>(wanted.size());
    const std::size_t rows = wanted.size() * classes;
    // The copy of the labels of the step before is rarely still under way.
    while (!tutti::cuda::stream::passed(labels_read)) {
      std::this_thread::yield();
    }
    std::ranges::fill(labels_sent.span(), 0.0F);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      labels_sent.data()[i * classes + wanted[i]] = -share;
    }
    at.stream.copy(labels.data(), labels_sent.data(), rows * sizeof(float));
    labels_read = {};  // because the next record uses the same event
    labels_read = at.stream.record();
    describe<float>(compared, wanted.size(), {classes, 1, 1});
    check(cudnnSoftmaxForward(at.dnn, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &share,
                              compared, scores.data(), &zero, compared, slopes.data()));
    tutti::kernels::add(at.stream, slopes.span().first(rows), labels.span().first(rows));
    at.stream.clear(slopes.data() + rows, (slopes.size() - rows) * sizeof(float));
    send_slopes();
  }

  place at;
  std::size_t classes;
  pinned_buffer<float> input;
  buffer<float> planes;  // the device's copy of `input`
  pinned_buffer<float> logits;
  buffer<float> scores;  // the device's logits, before they are copied to `logits`
  buffer<float> slopes;  // the gradient of the loss by `scores`
  pinned_buffer<float> labels_sent;
  tutti::cuda::stream::event labels_read{};  // passed once the device has copied `labels_sent`
  buffer<float> labels;
  tensor_layout compared{};  // has as many rows of logits as there are labels
};

namespace {

template <class T>
struct program_in final : cudnn::program {
  program_in(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
             std::span<float> statistics, tutti::cuda::stream& queue)
      : program_in(of, models::facts(of), batch_size, tensors, statistics, queue) {}

  program_in(const declaration& of, const std::vector<placed_facts>& all, std::size_t batch_size,
             std::span<const tutti::tensor> tensors, std::span<float> statistics,
             tutti::cuda::stream& queue)
      : program(of, batch_size, all.back().out.size(), queue) {
    activations.emplace_back(batch_size, of.input);
    auto means = statistics.first(statistics.size() / 2);
    auto variances = statistics.last(statistics.size() / 2);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& facts = all[i];
      at.wanted = std::max(at.wanted, channels_last<T>::room(facts.out.channels) * sizeof(double));
      if (facts.writes == activations.size()) {
        auto& out = activations.emplace_back(batch_size, facts.out);
        out.gradient = buffer<T>(out.size());
      }
      const wiring<T> wired{.facts = facts,
                            .in = &activations[facts.reads],
                            .out = &activations[facts.writes],
                            .added = &activations[facts.adds],
                            .tensors = tensors.first(facts.parameters()),
                            .running_means = means.data(),
                            .running_variances = variances.data()};
      std::visit(
          [&]<class Layer>(const Layer& layer) {
            layers.emplace_back(std::in_place_type<placed<T, Layer>>, layer, at, wired);
          },
          of.layers[i]);
      tensors = tensors.subspan(facts.parameters());
      means = means.subspan(facts.normalised);
      variances = variances.subspan(facts.normalised);
    }
    at.make_room();
  }

  void load() override {
    auto& first = activations.front();
    at.stream.copy(planes.data(), input.data(), input.size() * sizeof(float));
    channels_last<T>::from_planes(at.stream, planes.data(), first.value.data(), first.count,
                                  first.each.channels, first.each.height * first.each.width);
  }

  void forward(std::size_t layer, pass mode) override {
    std::visit([&](const auto& each) { each.forward(at, mode); }, layers[layer]);
    if (layer + 1 == layers.size()) {
      const auto& last = activations.back();
      channels_last<T>::to_planes(at.stream, last.value.data(), scores.data(), last.count, classes,
                                  1);
      at.stream.copy(logits.data(), scores.data(), logits.size() * sizeof(float));
    }
  }

  void backward(std::size_t layer) override {
    std::visit([&](const auto& each) { each.backward(at); }, layers[layer]);
  }

  void send_slopes() override {
    const auto& last = activations.back();
    channels_last<T>::from_planes(at.stream, slopes.data(), last.gradient.data(), last.count,
                                  classes, 1);
  }

  // Layers point into it; a deque keeps its descriptors in place.
  std::deque<activation<T>> activations{};
  std::deque<typename any_placed<T, any_layer>::type> layers{};
};

}  // namespace

cudnn::cudnn(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
             std::span<float> statistics, queue_type& queue) {
  const tutti::cuda::on_device here(queue.device());
  if (of.precision == precision::bf16) {
    program_ = std::make_unique<program_in<brain>>(of, batch_size, tensors, statistics, queue);
  } else {
    program_ = std::make_unique<program_in<float>>(of, batch_size, tensors, statistics, queue);
  }
}
cudnn::cudnn(cudnn&&) noexcept = default;
cudnn& cudnn::operator=(cudnn&&) noexcept = default;
cudnn::~cudnn() = default;

std::span<float> cudnn::input() { return program_->input.span(); }
std::span<const float> cudnn::logits() { return program_->logits.span(); }
void cudnn::load() {
  const tutti::cuda::on_device here(program_->at.stream.device());
  program_->load();
}
void cudnn::forward(std::size_t layer, pass mode) {
  const tutti::cuda::on_device here(program_->at.stream.device());
  program_->forward(layer, mode);
}
void cudnn::compare(std::span<const std::uint8_t> labels) {
  const tutti::cuda::on_device here(program_->at.stream.device());
  program_->compare(labels);
}
void cudnn::backward(std::size_t layer) {
  const tutti::cuda::on_device here(program_->at.stream.device());
  program_->backward(layer);
}

}  // namespace models
