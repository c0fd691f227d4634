#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "common/job.hpp"
#include "common/names.hpp"
#include "data/augmentation.hpp"
#include "data/cifar10.hpp"
#include "data/dataset.hpp"
#include "data/fashion_mnist.hpp"
#include "data/synthetic.hpp"
#include "models/model.hpp"

namespace common {

/// Returns how many steps an epoch has if it repeats a single batch (`--data one-batch`), or 0 if
/// each step has a batch of its own.
inline std::size_t repeats(const job& asked) { return asked.data == "one-batch" ? 100 : 0; }

/// Returns the data set that `--data` names. Synthetic images have the size that the model was
/// declared for, and each split has at most as many as fit in 256 MiB. Throws flag_error if there
/// is no such data set.
inline data::splits input(const job& asked) {
  const std::string name = asked.data.substr(0, asked.data.find(':'));
  if (asked.data == "cifar10") {
    throw flag_error(
        "--data cifar10 is installed nowhere. Fix: --data cifar10:DIR, with the six "
        ".bin files of its binary version");
  }
  const bool has_directory = name != asked.data && (name == "fashion-mnist" || name == "cifar10");
  expect_one_of(
      "data set", has_directory ? name + ":DIRECTORY" : asked.data,
      {"fashion-mnist", "fashion-mnist:DIRECTORY", "cifar10:DIRECTORY", "synthetic", "one-batch"});
  if (name == "cifar10") {
    return data::cifar10(asked.data.substr(name.size() + 1));
  }
  if (name == "fashion-mnist") {
    return name == asked.data ? data::fashion_mnist()
                              : data::fashion_mnist(asked.data.substr(name.size() + 1));
  }
  data::synthetic_options made{.image = models::find(asked.model).input};
  if (repeats(asked) > 0) {
    made.train = made.test = asked.batch_size;
  }
  const std::size_t most = (std::size_t{256} << 20) / made.image.size();
  made.train = std::min(made.train, most);
  made.test = std::min(made.test, most);
  return data::synthetic(made);
}

/// Returns the augmentation that the flags choose for images of this size: windows of the side that
/// the model was declared for, or, where the images are no larger than that, of the images' own
/// side after four pixels of padding on every edge.
inline data::augmentation shown(const job& asked, const data::dataset& images) {
  if (asked.augment == "none") {
    return {};
  }
  const std::size_t own = std::min(images.image.height, images.image.width);
  const std::size_t declared = models::find(asked.model).input.height;
  return declared < own ? data::augmentation{declared, 0} : data::augmentation{own, 4};
}

/// Returns the network that the flags name, declared for images of this size.
inline models::declaration network(const job& asked, const data::dataset& images) {
  auto declared = models::find(asked.model);
  declared.input = shown(asked, images).of(images.image);
  declared.precision =
      asked.precision == "bf16" ? models::precision::bf16 : models::precision::fp32;
  return declared;
}

}  // namespace common
