#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "tutti/base/error.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/role/partition.hpp"

namespace tutti {

namespace detail {

/// A summable compressor whose bytes an element do not follow from its type, because they are
/// unknown at compile time or an option may change them. A collective cuts its payloads between any
/// two elements.
template <class C>
concept has_element_bytes_at_run_time = facts::summable<C> && encodes_a_fixed_length<C> &&
    !(std::is_empty_v<C> && requires { typename std::bool_constant<(C{}.wire_bytes(1) > 0)>; });

/// Throws usage_error if payloads hold anything beside a fixed number of bytes for each element.
template <has_element_bytes_at_run_time C>
[[gnu::cold]] void expect_elements_alone(const C& compression, const plan& made) {
  const std::size_t beside = compression.wire_bytes(0);
  const std::size_t each = compression.wire_bytes(1);
  for (const chunk& its : made.chunks) {
    const std::size_t all = compression.wire_bytes(its.elements);
    if (beside != 0 || all != each * its.elements) {
      throw usage_error(
          sentence({type_name<C>(), " is declared summable, but its payload is ", all,
                    " bytes for ", its.elements, " elements, ", each, " for one and ", beside,
                    " for none. Fix: use the same number of bytes for every element and none "
                    "besides, or summable = false"}));
    }
  }
}

}  // namespace detail

/// Returns the plan of an engine's strategy with the options `set` among `size` ranks, with the
/// groups, pieces, classes and owners that its policies choose. `settings` lists what else every
/// rank must set alike. Throws usage_error.
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
  plan made = make_plan(forward, fusion, partition, set.profile, place, settings,
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
  if constexpr (facts::carries_of<architecture> == carries::difference ||
                facts::exchanges_momenta<architecture>) {
    expect_magnitudes(compressor);
  }
  if constexpr (facts::owns_parameters<architecture> && facts::encodes_means<architecture>) {
    expect_magnitudes(relay(compressor));
  }
  if constexpr (detail::has_element_bytes_at_run_time<typename Types::compression>) {
    detail::expect_elements_alone(compressor, made);
  }
  return made;
}

}  // namespace tutti
