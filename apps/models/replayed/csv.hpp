#pragma once

#include <string>

#include "models/replayed/replayed.hpp"

namespace models {

/// Reads a user's network from a file in the format that `replay` describes. The file's path
/// becomes the network's name and device. Throws tutti::usage_error that names the file's line and
/// the fix.
replayed read_csv(const std::string& file);

}  // namespace models
