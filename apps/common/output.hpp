#pragma once

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "common/job.hpp"
#include "tutti/base/error.hpp"

namespace common {

/// Throws tutti::usage_error with the system's reason if `out` has failed. Call it directly after
/// opening or flushing `out`, while errno still holds the reason.
inline void expect_writable(const std::ofstream& out, const std::string& file) {
  if (!out) {
    throw tutti::usage_error("cannot write " + file + ": " +
                             std::generic_category().message(errno) + ". Fix: another file");
  }
}

/// Appends lines, each with its end, to `file`. If the file ends within a line, as after a full
/// disk or in some editors, they begin on a new one.
void append_lines(const std::string& file, const std::string& lines);

/// Throws flag_error that names `asked_for` if `file` cannot be written. Call it before a long run,
/// whose results would otherwise be lost. A file that does not exist yet is not made, because
/// another flag may still be refused.
void check_writable(const std::string& file, const std::string& asked_for);

/// Throws flag_error if a flag would write into a file that another flag names, too, be it one of
/// the files that each rank has of `--checkpoint`, `--resume` or `--timeline`. An exception is the
/// file of `--resume`, which `--json` or `--checkpoint` continues.
void expect_files_apart(const job& read, app reader);

}  // namespace common
