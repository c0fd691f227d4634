#pragma once

#include <string>

#include "survey/prediction.hpp"

namespace survey {

/// Prints what the tables below rest on, before any figure.
void print_law();

/// Prints the rows, what their errors come to and the links that they were predicted with.
void print(const prediction& made);

/// Appends a line a row, as every app's JSON; throws tutti::usage_error if that cannot be written.
void append_json(const std::string& file, const prediction& made);

}  // namespace survey
