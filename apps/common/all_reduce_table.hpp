#pragma once

#include <string>

#include "tutti/strategies/tf_reduction.hpp"

namespace common {

/// TFReplicated's options by what bench-collectives measured and wrote with --benchmark_out: rows
/// `all_reduce_spec/WAY`, each with its label, elements, ranks and seconds. A chunk goes the way
/// that was fastest at the next measured size that is not smaller; of repetitions the fastest
/// counts. Throws flag_error, naming the file, if it has no such rows or if they cannot be.
tutti::strategies::tf_reduction::options of_all_reduce_table(const std::string& file);

}  // namespace common
