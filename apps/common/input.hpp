#pragma once

#include <string>

#include "data/dataset.hpp"
#include "data/fashion_mnist.hpp"
#include "data/synthetic.hpp"
#include "tutti/base/error.hpp"

namespace common {

/// The data set that `--data` names.
inline data::splits input(const std::string& source) {
  const std::string name = source.substr(0, source.find(':'));
  if (name == "synthetic") {
    return data::synthetic();
  }
  if (name == "fashion-mnist") {
    return name == source ? data::fashion_mnist()
                          : data::fashion_mnist(source.substr(name.size() + 1));
  }
  throw tutti::usage_error("--data " + source +
                           " is no data set. Fix: fashion-mnist, fashion-mnist:DIRECTORY or "
                           "synthetic");
}

}  // namespace common
