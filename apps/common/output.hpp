#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "common/job.hpp"
#include "tutti/base/error.hpp"

namespace common {

/// Throws tutti::usage_error with the system's reason if `out`, which was opened or flushed a
/// moment before, has failed.
inline void expect_writable(const std::ofstream& out, const std::string& file) {
  if (!out) {
    throw tutti::usage_error("cannot write " + file + ": " +
                             std::generic_category().message(errno) + ". Fix: another file");
  }
}

/// Throws tutti::usage_error that names `asked_for` if `file` cannot be written: before hours are
/// spent on what cannot be kept.
inline void check_writable(const std::string& file, const std::string& asked_for) {
  expect_writable(std::ofstream(file, std::ios::app), asked_for);
}

/// Throws flag_error where a file would be written that another flag names, too, but for one that
/// `--resume` reads and the job goes on with.
void expect_files_apart(const job& read);

}  // namespace common
