#pragma once

#include <filesystem>

#include "data/dataset.hpp"

namespace data {

/// Reads Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28 x 28 grey, in ten
/// classes. The four idx files in `directory` may be gzipped or not. Throws tutti::usage_error,
/// naming the file and the fix, if a file is missing, truncated or invalid.
/// After: Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017.
splits fashion_mnist(const std::filesystem::path& directory = "/usr/share/datasets/fashion-mnist");

}  // namespace data
