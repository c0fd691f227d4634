#pragma once

#include <functional>
#include <span>
#include <string>

#include "common/job.hpp"
#include "tutti/optimizer/rate_schedule.hpp"

namespace train {

/// Returns how the learning rate falls, by its name in `--rate`.
tutti::optimizer::falling falling(const std::string& name);

/// Throws disagreement if workers' flags give different learning rates for a step, with which their
/// models would diverge. Every worker must call it. `average` replaces values by their means over
/// the workers.
void expect_one_schedule(const common::job& job,
                         const std::function<void(std::span<double>)>& average);

}  // namespace train
