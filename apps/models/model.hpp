#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chosen_backend.hpp"
#include "models/cnn.hpp"
#include "models/declaration.hpp"
#include "models/inception_bn_28_small.hpp"
#include "models/mlp.hpp"
#include "models/network.hpp"
#include "models/resnet.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"

namespace models {

/// Ranks on the host train on oneDNN where it is installed, otherwise on Eigen.
template <>
struct on_queue<tutti::inline_queue> {
  using backend = chosen_backend;
};
using model = network<chosen_backend>;

/// The network that a rank of `World` trains. It computes on the device whose memory that world's
/// ranks exchange.
template <class World>
using model_in = network<typename on_queue<typename World::queue_type>::backend>;

/// Makes a network whose tensors have no memory for gradients, for an engine that provides it. The
/// network itself has room for the gradients of one layer.
template <class World>
model_in<World> make_model_without_gradients(World&, const declaration& of, std::size_t batch_size,
                                             std::uint64_t seed) {
  return {of, batch_size, seed, gradients_of_a_layer()};
}

/// Makes a network. If the ranks of a host share memory between processes, its gradients lie in
/// that memory.
template <class World>
model_in<World> make_model(World& world, const declaration& of, std::size_t batch_size,
                           std::uint64_t seed) {
  if constexpr (requires { world.allocate_shared(batch_size); }) {
    return {of, batch_size, seed, [&](std::size_t n) { return world.allocate_shared(n); }};
  } else {
    return {of, batch_size, seed};
  }
}

/// Returns the declarations of all networks that can be trained here.
inline std::vector<declaration> all() {
  return {mlp(), cnn(), resnet20(), inception_bn_28_small(), resnet50()};
}

inline std::vector<std::string> names() {
  std::vector<std::string> made;
  for (auto& each : all()) {
    made.push_back(std::move(each.name));
  }
  return made;
}

inline declaration find(std::string_view name) {
  std::string known;
  for (auto& each : all()) {
    if (each.name == name) {
      return each;
    }
    tutti::add_to_list(known, each.name);
  }
  throw tutti::usage_error("no model is named '" + std::string(name) + "'. Fix: one of " + known);
}

}  // namespace models
