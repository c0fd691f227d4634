#pragma once

#include <functional>
#include <span>
#include <string>

#include "common/job.hpp"
#include "tutti/optimizer/rate_schedule.hpp"

namespace train {

/// How a rate falls that `--rate` names so.
tutti::optimizer::falling falling(const std::string& name);

/// Throws disagreement where workers' flags say different learning rates for a step, which would
/// set their models apart. Every worker must call it; `average` makes values their means over the
/// workers.
void expect_one_schedule(const common::job& job,
                         const std::function<void(std::span<double>)>& average);

}  // namespace train
