#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "models/declaration.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tensor.hpp"

namespace models {

enum class pass { training, inference };

/// Computes the layers of a network, in the order of a queue. A backend is built for one
/// declaration, one batch size, the tensors that the declaration asks for (weight then bias, layer
/// by layer, in forward order, in memory of that queue), the running statistics in the same memory
/// (`network::statistics`) and the queue. All of these must outlive it. Its constructor allocates
/// everything; a step allocates no memory for data. Results have the same bits on every rank.
/// Throws tutti::usage_error for a precision that it does not have.
///
/// Layouts: a batch is stored sample by sample, each sample as `shape` says. Weights are stored
/// output by output, each in the layout of the input that it reads. Two backends can therefore use
/// the same parameters.
///
/// `alignment`: a tensor must begin at a multiple of so many elements.
template <class Backend>
concept backend = std::movable<Backend> && tutti::device_queue<typename Backend::queue_type> &&
    requires(Backend computer, typename Backend::queue_type& queue, const declaration& of,
             std::size_t batch_size, std::span<const tutti::tensor> tensors,
             std::span<float> statistics, std::size_t layer, std::span<const std::uint8_t> labels) {
  Backend(of, batch_size, tensors, statistics, queue);
  { Backend::alignment } -> std::convertible_to<std::size_t>;
  // Both are in host memory: `input` for a batch, which `load` takes over, and `logits` for the
  // output of the last layer. The host may access neither before the queue has finished the work
  // that uses it.
  { computer.input() } -> std::same_as<std::span<float>>;
  { computer.logits() } -> std::same_as<std::span<const float>>;
  computer.load();
  computer.forward(layer, pass::training);  // a training pass updates the running statistics
  computer.compare(labels);  // writes the gradient of the mean loss over the labels by the logits
  computer.backward(layer);  // overwrites the gradients of the layer's parameters
};

/// Selects the backend for a kind of queue: `on_queue<Queue>::backend`. Each backend's choice is a
/// specialisation.
template <class Queue>
struct on_queue;

}  // namespace models
