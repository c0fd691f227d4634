#pragma once

#include <fstream>
#include <string>

#include "tutti/base/error.hpp"

namespace common {

/// Throws tutti::usage_error that names `asked_for` if `file` cannot be written: before hours are
/// spent on what cannot be kept.
inline void check_writable(const std::string& file, const std::string& asked_for) {
  if (!std::ofstream(file, std::ios::app)) {
    throw tutti::usage_error("cannot write " + asked_for + ". Fix: a directory that exists");
  }
}

}  // namespace common
