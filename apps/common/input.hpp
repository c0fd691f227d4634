#pragma once

#include <string>

#include "common/names.hpp"
#include "data/dataset.hpp"
#include "data/fashion_mnist.hpp"
#include "data/synthetic.hpp"

namespace common {

/// The data set that `--data` names.
inline data::splits input(const std::string& source) {
  const std::string name = source.substr(0, source.find(':'));
  expect_one_of("data set", name == "fashion-mnist" ? name : source,
                {"fashion-mnist", "fashion-mnist:DIRECTORY", "synthetic"});
  if (name == "synthetic") {
    return data::synthetic();
  }
  return name == source ? data::fashion_mnist()
                        : data::fashion_mnist(source.substr(name.size() + 1));
}

}  // namespace common
