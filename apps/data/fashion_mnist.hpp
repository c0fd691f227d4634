#pragma once

#include <filesystem>

#include "data/dataset.hpp"

namespace data {

/// 60,000 training and 10,000 test images of clothes, 28 x 28 grey, in ten classes.
/// Reads the four idx files of `directory`, gzipped or not; throws tutti::usage_error, naming the
/// file and the fix, where one is missing, truncated or not what it should be.
/// After: Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017.
splits fashion_mnist(const std::filesystem::path& directory = "/usr/share/datasets/fashion-mnist");

}  // namespace data
