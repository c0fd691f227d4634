#pragma once

#include "models/eigen.hpp"
#include "models/onednn.hpp"

namespace models {

using chosen_backend = onednn;

/// Every backend of this build, as the arguments of the caller's template.
template <template <class...> class List>
using backends = List<onednn, eigen>;

}  // namespace models
