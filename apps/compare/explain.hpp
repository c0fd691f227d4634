#pragma once

#include "compare/contender.hpp"

namespace compare {

/// Prints the plan that a strategy made for the model, with its buckets and chunks, and when worker
/// 0 exchanged each chunk in the last iteration, in the order in which the exchanges began.
void explain(const row& of);

}  // namespace compare
