#pragma once

#include <string>
#include <vector>

#include "compare/contender.hpp"

namespace compare {

/// Prints the rows of one model, network and number of workers. A star marks the best of each kind.
void print(const std::vector<row>& rows);

/// Prints which rows measured a number of iterations that is no multiple of their exchange's
/// period, so that they saw more or fewer exchanges than the mean.
void print_parts_of_periods(const std::vector<row>& rows, int iterations);

/// Prints which rows are predicted to be faster than their bounds, because their first iterations
/// found the links idle and the warm-up was too short for that to wear off.
void print_rows_below_bounds(const std::vector<row>& rows, int iterations, int warmup);

/// Prints by how much measured iterations differ from simulated ones, with a column for each model,
/// number of workers and network.
void print_consistency(const std::vector<row>& rows);

/// Appends a row to a file, as one line of JSON. Throws tutti::usage_error if that cannot be
/// written.
void append_json(const std::string& file, const row& of);

/// Writes the table's figures, with a header, as comma-separated values for spreadsheets. Throws
/// tutti::usage_error if the file cannot be written.
void write_csv(const std::string& file, const std::vector<row>& rows);

}  // namespace compare
