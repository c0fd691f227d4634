#pragma once

#include <string>

#include "tutti/strategies/tf_reduction.hpp"

namespace common {

/// Returns options for TFReplicated that choose the fastest algorithm for each chunk size, from
/// what bench-collectives measured and wrote with --benchmark_out: rows `all_reduce_spec/WAY`, each
/// with its label, elements, ranks and seconds. A chunk takes the algorithm that was fastest at the
/// smallest measured size that is not below the chunk's. Of several repetitions the fastest counts.
/// Throws flag_error, naming the file, if it has no such rows, if their values cannot be or if they
/// were not measured with `ranks`, the job's number of ranks.
tutti::strategies::tf_reduction::options of_all_reduce_table(const std::string& file,
                                                             const std::string& ranks);

}  // namespace common
