#include "common/lists.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <system_error>

#include "common/job.hpp"

namespace common {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<int> worker_counts(const std::string& list) {
  std::vector<int> counts;
  for (const auto& text : split(list)) {
    int count = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (status != std::errc{} || end != text.data() + text.size() || count < 1 ||
        count > 1'000'000) {
      throw flag_error("--ranks " + text +
                       " is not a number of workers. Fix: from 1 to 1000000, as 4 or 4,8,16");
    }
    counts.push_back(count);
  }
  return counts;
}

}  // namespace common
