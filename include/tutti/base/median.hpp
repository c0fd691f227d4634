#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti {

/// Returns the median: of an even number of values the greater of the two in the middle, of none 0.
inline double median(std::vector<double> of) {
  if (of.empty()) {
    return 0;
  }
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

}  // namespace tutti
