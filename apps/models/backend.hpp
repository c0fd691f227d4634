#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "models/declaration.hpp"
#include "tutti/base/tensor.hpp"

namespace models {

/// Who computes the layers. Built for one declaration, one batch size and the tensors that the
/// declaration asks for (weight then bias, layer by layer, in forward order). Everything is
/// allocated then; a step allocates no memory for data. Runs on the caller's thread and no other,
/// and gives the same bits on each.
///
/// Layouts: a batch sample by sample, each as `shape` says; weights output by output, each laid
/// out like the input it reads. So two backends can be exchanged under one set of parameters.
template <class Backend>
concept backend = std::movable<Backend> &&
    std::constructible_from<Backend, const declaration&, std::size_t,
                            std::span<const tutti::tensor>> &&
    requires(Backend computer, std::size_t layer) {
  { computer.input() } -> std::same_as<std::span<float>>;
  { computer.logits() } -> std::same_as<std::span<const float>>;
  { computer.logits_gradient() } -> std::same_as<std::span<float>>;
  computer.forward(layer);
  computer.backward(layer);  // overwrites the gradients of the layer's parameters
};

}  // namespace models
