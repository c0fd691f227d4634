#pragma once

#include <string>
#include <vector>

namespace common {

/// Returns the parts of a flag's value that commas separate.
std::vector<std::string> split(const std::string& list);

/// Returns the numbers of workers that `--ranks` of tutti-compare lists. Throws flag_error if a
/// part is no number, or not one from 1 to 1000000.
std::vector<int> worker_counts(const std::string& list);

}  // namespace common
