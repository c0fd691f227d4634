#pragma once

#include <string>

#include "models/replayed/replayed.hpp"

namespace models {

/// The user's own network, as `replay` describes it; its path is its name and its device.
replayed read_csv(const std::string& file);

}  // namespace models
