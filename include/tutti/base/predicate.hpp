#pragma once

#include "tutti/base/function_ref.hpp"

namespace tutti {

/// A question that is asked again and again.
using predicate = function_ref<bool()>;

}  // namespace tutti
