#pragma once

#include <algorithm>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"

namespace tutti::transport {

/// Numbers the ranks' hosts from 0, in the order in which the ranks name them, because collectives
/// keep an array entry for each number. `given` holds one number a rank; any numbers will do, equal
/// ones where ranks share a host. Throws usage_error unless it holds one for each rank.
inline std::vector<int> numbered_hosts(int ranks, const std::vector<int>& given) {
  const auto count = static_cast<int>(given.size());
  if (count != ranks) {
    throw usage_error(sentence({"for ", ranks, " ranks there are ", count,
                                " host numbers. Fix: give one per rank, or none"}));
  }
  std::vector<int> named;
  std::vector<int> numbers;
  for (const int host : given) {
    const auto known = std::find(named.begin(), named.end(), host);
    numbers.push_back(static_cast<int>(known - named.begin()));
    if (known == named.end()) {
      named.push_back(host);
    }
  }
  return numbers;
}

}  // namespace tutti::transport
