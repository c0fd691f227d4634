#pragma once

#include "tutti/base/function_ref.hpp"

namespace tutti {

/// A condition that is evaluated again and again.
using predicate = function_ref<bool()>;

}  // namespace tutti
