#pragma once

#include <string>
#include <vector>

#include "compare/contender.hpp"

namespace compare {

/// Prints rows of one model, network and number of workers, the best of each kind marked.
void print(const std::vector<row>& rows);

/// Prints which rows are of more or fewer exchanges than so many iterations have in the mean.
void print_parts_of_periods(const std::vector<row>& rows, int iterations);

/// Prints how far measured iterations are from simulated ones, a column for each model, number of
/// workers and network.
void print_consistency(const std::vector<row>& rows);

/// Appends a line a row, as every app's JSON; throws tutti::usage_error if that cannot be written.
void append_json(const std::string& file, const row& of);

/// The table's figures with a header, for spreadsheets.
void write_csv(const std::string& file, const std::vector<row>& rows);

}  // namespace compare
