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

/// Who computes the layers, in the order of a queue. Built for one declaration, one batch size, the
/// tensors that the declaration asks for (weight then bias, layer by layer, in forward order, in
/// memory of that queue), the running statistics there (`network::statistics`) and the queue, which
/// must live as long. Everything is allocated then; a step allocates no memory for data. Gives the
/// same bits on every rank. Throws tutti::usage_error for a precision that it does not have.
///
/// Layouts: a batch sample by sample, each as `shape` says; weights output by output, each laid
/// out like the input it reads. So two backends can be exchanged under one set of parameters.
///
/// `alignment`: elements at whose multiples a tensor must begin.
template <class Backend>
concept backend = std::movable<Backend> && tutti::device_queue<typename Backend::queue_type> &&
    requires(Backend computer, typename Backend::queue_type& queue, const declaration& of,
             std::size_t batch_size, std::span<const tutti::tensor> tensors,
             std::span<float> statistics, std::size_t layer, std::span<const std::uint8_t> labels) {
  Backend(of, batch_size, tensors, statistics, queue);
  { Backend::alignment } -> std::convertible_to<std::size_t>;
  // Of the host: a batch, which `load` takes over, and what the last layer yields. Neither is to be
  // touched before the queue has come so far.
  { computer.input() } -> std::same_as<std::span<float>>;
  { computer.logits() } -> std::same_as<std::span<const float>>;
  computer.load();
  computer.forward(layer, pass::training);  // a training pass moves the running statistics
  computer.compare(labels);  // makes the gradient of the labels' mean loss by the logits
  computer.backward(layer);  // overwrites the gradients of the layer's parameters
};

/// Which backend works in a queue's order: `on_queue<Queue>::backend`, said where one is chosen.
template <class Queue>
struct on_queue;

}  // namespace models
