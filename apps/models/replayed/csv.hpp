#pragma once

#include <string>
#include <string_view>

#include "models/replayed/replayed.hpp"

namespace models {

/// Reads a user's network from a file in the format that `replay` describes. The file's path
/// becomes the network's name and device. Throws tutti::usage_error that names the file's line and
/// the fix.
replayed read_csv(const std::string& file);

/// Removes from a file's first line the mark (U+FEFF) with which some programs, such as Excel,
/// begin a file in UTF-8.
std::string_view without_mark(std::string_view line);

}  // namespace models
