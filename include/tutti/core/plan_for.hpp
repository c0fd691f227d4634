#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/role/partition.hpp"

namespace tutti {

/// The plan of an engine's strategy with these options, among `size` ranks: its policies' groups,
/// pieces, classes and owners. `settings` is what else every rank must set alike. Throws
/// usage_error.
template <class Types>
plan plan_for(std::span<const tensor> forward, const typename Types::options& set,
              const typename Types::compression& compressor, int size, std::string_view settings) {
  using architecture = typename Types::architecture;
  using strategy = typename Types::strategy;
  const auto place = [&](plan& made) {
    if constexpr (facts::places_chunks<architecture>) {
      architecture::place(made, set.architecture, size);
    }
  };
  const int serve = size - workers_among<architecture>(set.architecture, size);
  const auto partition =
      among(make_policy<typename strategy::partition>(set.partition), std::max(1, serve));
  const auto fusion = make_policy<typename strategy::fusion>(set.fusion);
  return make_plan(forward, fusion, partition, set.profile, place, settings,
                   [&](const tensor_facts& each) {
                     tensor_class its = class_of(compressor, each);
                     if (facts::keeps_types_apart(set.fusion)) {
                       its.type = forward[index(each.id)].gradient_type;
                     }
                     if constexpr (requires { fusion.group_of(each); }) {
                       its.group = fusion.group_of(each);
                     }
                     return its;
                   });
}

}  // namespace tutti
