#pragma once

#include "models/eigen.hpp"
#include "models/onednn.hpp"

namespace models {

using chosen_backend = onednn;

/// Every backend that this build has, in a list of the caller's kind.
template <template <class...> class List>
using backends = List<onednn, eigen>;

}  // namespace models
