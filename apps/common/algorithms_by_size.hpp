#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/core/engine_options.hpp"

namespace common {

/// Returns a line for each all-reduce algorithm that the plan's chunks use, from the smallest chunk
/// sizes to the largest. Returns nothing for a strategy that treats chunks of all sizes alike.
template <class Strategy>
std::string algorithms_by_size(const tutti::plan& made,
                               const tutti::engine_options<Strategy>& set) {
  using architecture = typename tutti::strategy_of<Strategy>::architecture;
  std::string lines;
  if constexpr (requires { architecture::way_of(set.architecture, std::size_t{}); }) {
    std::vector<std::size_t> sizes;
    for (const tutti::chunk& each : made.chunks) {
      sizes.push_back(each.elements);
    }
    std::ranges::sort(sizes);
    const auto way = [&](std::size_t elements) {
      return architecture::way_of(set.architecture, elements);
    };
    for (auto first = sizes.begin(); first != sizes.end();) {
      const std::string its = way(*first);
      const auto next =
          std::find_if(first, sizes.end(), [&](auto each) { return way(each) != its; });
      lines += tutti::sentence({"  ", its, ": ", static_cast<std::size_t>(next - first),
                                " chunks of ", *first, " to ", next[-1], " elements\n"});
      first = next;
    }
  }
  return lines;
}

}  // namespace common
