#pragma once

#include "compare/contender.hpp"

namespace compare {

/// Prints what a strategy made of the model: its buckets and chunks, and when worker 0 exchanged
/// each in an iteration, in the order in which it began.
void explain(const row& of);

}  // namespace compare
