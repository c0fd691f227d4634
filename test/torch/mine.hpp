#pragma once

#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/delayed.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

namespace mine {

/// A user's own strategy, for the model that is trained with it.
using Strategy = tutti::compose<tutti::compression::error_feedback<tutti::compression::top_k>>;

/// A strategy whose means are those of the step before.
using Late = tutti::compose<tutti::architecture::delayed<tutti::architecture::all_gather>,
                            tutti::compression::error_feedback<tutti::compression::top_k>>;

}  // namespace mine
