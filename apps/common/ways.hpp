#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/core/engine_options.hpp"

namespace common {

/// A line for each way that chunks of these options take by their sizes, and for which; none where
/// all chunks go one way.
template <class Strategy>
std::string ways_of(const tutti::plan& made, const tutti::engine_options<Strategy>& set) {
  using architecture = typename tutti::strategy_of<Strategy>::architecture;
  std::string lines;
  if constexpr (requires { architecture::way_of(set.architecture, std::size_t{}); }) {
    std::map<std::string_view, std::vector<std::size_t>> sizes;
    for (const tutti::chunk& each : made.chunks) {
      sizes[architecture::way_of(set.architecture, each.elements)].push_back(each.elements);
    }
    for (const auto& [way, its] : sizes) {
      const auto [least, most] = std::ranges::minmax(its);
      lines += tutti::sentence(
          {"  ", way, ": ", its.size(), " chunks of ", least, " to ", most, " elements\n"});
    }
  }
  return lines;
}

}  // namespace common
