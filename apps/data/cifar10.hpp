#pragma once

#include <filesystem>

#include "data/dataset.hpp"

namespace data {

/// 50,000 training and 10,000 test photographs, 32 x 32 in three colours, in ten classes, in their
/// binary format: records of a label and 3072 bytes, red, green, blue, each row by row. Reads
/// data_batch_1.bin to data_batch_5.bin and test_batch.bin of `directory`, or of the folder
/// cifar-10-batches-bin in it; throws tutti::usage_error, naming the file and the fix, where one is
/// missing, cut short or not what it should be. How many records a file has is its own affair.
/// After: Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
splits cifar10(const std::filesystem::path& directory);

}  // namespace data
