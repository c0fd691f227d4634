#pragma once

#include <string>
#include <vector>

#include "tutti/strategies/tf_reduction.hpp"

namespace common {

/// Returns options for TFReplicated that choose the fastest algorithm for each chunk size, from
/// what bench-collectives measured and wrote with --benchmark_out: rows `all_reduce_spec/WAY`, each
/// with its label, elements, ranks and seconds. A chunk takes the algorithm that was fastest at the
/// smallest measured size that is not below the chunk's. Of several repetitions the fastest counts.
/// Throws flag_error, naming the file, if it has no such rows, if their values cannot be, or if a
/// row was measured with another number of ranks than one of `ranks`, those of the job: all of them
/// get the same options.
tutti::strategies::tf_reduction::options of_all_reduce_table(const std::string& file,
                                                             const std::vector<int>& ranks);

}  // namespace common
