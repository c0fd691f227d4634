#pragma once

#include <span>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/tensor.hpp"

namespace tutti::monitor {

/// Returns the memory in which a monitor reads each tensor's gradient. Throws usage_error, naming
/// the tensor, if the model has no memory of floats for it.
inline std::vector<std::span<const float>> gradients_of(std::span<const tensor> all) {
  std::vector<std::span<const float>> gradients;
  for (const tensor& each : all) {
    if (each.gradient.size() != each.elements) {
      throw usage_error("this monitor reads gradients of floats, and that of " + each.name +
                        " has no memory for them. Fix: tensor(name, parameter, gradient), or a "
                        "monitor that reads none");
    }
    gradients.push_back(each.gradient);
  }
  return gradients;
}

}  // namespace tutti::monitor
