#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/job.hpp"
#include "common/nearest.hpp"
#include "data/dataset.hpp"
#include "data/fashion_mnist.hpp"
#include "data/synthetic.hpp"

namespace common {

/// Throws flag_error, suggesting the nearest, unless `wanted` is one of the `known`.
inline void expect_one_of(std::string_view kind, const std::string& wanted,
                          const std::vector<std::string>& known) {
  if (std::ranges::find(known, wanted) == known.end()) {
    throw flag_error("no " + std::string(kind) + " is named '" + wanted + "'. Did you mean " +
                     nearest(wanted, known) + "?");
  }
}

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
