#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::test {

/// Returns a plan of tensors in forward order, each a bucket, cut into pieces of `piece` elements.
inline plan cut(const std::vector<std::size_t>& elements, std::size_t piece = 1000) {
  std::vector<tensor> forward;
  for (const std::size_t each : elements) {
    forward.push_back(tensor::phantom("t" + std::to_string(forward.size()), each));
  }
  return make_plan(forward, fusion::none(), partition::into({.bytes = piece * sizeof(float)}), {},
                   [](plan&) {});
}

/// Returns the options with which a schedule's laws are checked: its defaults, and the smallest
/// windows through which every chunk of the plan fits.
template <class Schedule>
std::vector<options_of<Schedule>> settings_of(const plan& made) {
  using options = options_of<Schedule>;
  std::vector<options> all(1);
  if constexpr (requires(options set) { set.credit = 1; }) {
    std::size_t largest = 1;
    for (const chunk& each : made.chunks) {
      largest = std::max(largest, each.elements * sizeof(float));
    }
    all.insert(all.end(), {{0, schedule::credit_rule::positive},
                           {1, schedule::credit_rule::positive},
                           {largest, schedule::credit_rule::fits}});
  }
  if constexpr (requires(options set) { set.exchanges = 2; }) {
    all.push_back({.exchanges = 2});
  }
  return all;
}

/// Whether ranks that decide alone, each in an order of its own, wait for each other forever.
template <class Schedule>
constexpr bool needs_one_order = Schedule::limits_in_flight && !Schedule::static_order;

}  // namespace tutti::test
