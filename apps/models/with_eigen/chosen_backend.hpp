#pragma once

#include "models/eigen.hpp"

namespace models {

using chosen_backend = eigen;

/// Every backend that this build has, in a list of the caller's kind.
template <template <class...> class List>
using backends = List<eigen>;

}  // namespace models
