#pragma once

#include <string>

#include "survey/prediction.hpp"

namespace survey {

/// Prints the law on which the tables are based, before any figure.
void print_law();

/// Prints the rows, the calibrated values, and the errors beside their limits.
void print(const prediction& made);

/// Prints the methods' iterations as MG-WFBP's authors measured them, beside the predicted ones,
/// and whether the order is right.
void print_three_methods(const calibrated& law);

/// Appends every row to a file, as one line of JSON each. Throws tutti::usage_error if that cannot
/// be written.
void append_json(const std::string& file, const prediction& made);

}  // namespace survey
