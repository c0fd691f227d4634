#pragma once

#include <string>

#include "survey/prediction.hpp"

namespace survey {

/// Prints what the tables below rest on, before any figure.
void print_law();

/// Prints the rows, what was calibrated, and what the errors come to beside their limits.
void print(const prediction& made);

/// Prints the order of the methods as MG-WFBP's authors measured it, beside the predicted one.
void print_three_methods(const calibrated& law);

/// Appends a line a row, as every app's JSON; throws tutti::usage_error if that cannot be written.
void append_json(const std::string& file, const prediction& made);

}  // namespace survey
