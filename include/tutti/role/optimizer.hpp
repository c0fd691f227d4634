#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/queue.hpp"
#include "tutti/role/compression.hpp"

namespace tutti {

namespace role {
struct optimizer {};
}  // namespace role

/// An optimizer turns an averaged gradient into new parameters, a run of elements at a time, on
/// whichever rank owns them.
///
/// * `memory_per_element`: floats of memory it keeps for each element (site lanes).
/// * `apply(queue, parameters, gradient, site)`: `site.step` counts the steps before this one.
/// * `describe`: its values, as base/options.hpp says; they may be changed between steps.
template <class O>
concept optimizer_policy = std::same_as<typename O::role, role::optimizer> &&
    requires(const O optimizer, inline_queue& queue, std::span<float> parameters,
             std::span<const float> gradient, const site& where) {
  { O::memory_per_element } -> std::convertible_to<std::size_t>;
  optimizer.apply(queue, parameters, gradient, where);
};

}  // namespace tutti
