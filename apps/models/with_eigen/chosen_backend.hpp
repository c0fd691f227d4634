#pragma once

#include "models/eigen.hpp"

namespace models {

using chosen_backend = eigen;

/// Every backend of this build, as the arguments of the caller's template.
template <template <class...> class List>
using backends = List<eigen>;

}  // namespace models
