#pragma once

#include <filesystem>

#include "data/dataset.hpp"

namespace data {

/// Reads CIFAR-10: 50,000 training and 10,000 test photographs, 32 x 32 in three colours, in ten
/// classes. The files are data_batch_1.bin to data_batch_5.bin and test_batch.bin in `directory`,
/// or in the folder cifar-10-batches-bin in it. They have the binary format: records of a label and
/// 3072 bytes, red, green, blue, each row by row. Any number of records in a file is accepted.
/// Throws tutti::usage_error, naming the file and the fix, if a file is missing, cut short or
/// invalid.
/// After: Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
splits cifar10(const std::filesystem::path& directory);

}  // namespace data
