#pragma once

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
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

inline bool is_one_file(const std::filesystem::path& first, const std::filesystem::path& second) {
  std::error_code none;  // of a file that is not there yet, the path decides
  return !is_other(status(first, none)) &&
         (equivalent(first, second, none) ||
          weakly_canonical(absolute(first), none) == weakly_canonical(absolute(second), none));
}

/// Throws flag_error where a file would be written that another flag names, too, but for one that
/// `--resume` reads and the job goes on with.
inline void expect_files_apart(const job& read) {
  const flag_values written{{"json", read.json},
                            {"csv", read.csv},
                            {"timeline", read.timeline},
                            {"checkpoint", read.checkpoint}};
  flag_values named = written;
  named.insert(named.end(), {{"resume", read.resume},
                             {"kernels", read.kernels},
                             {"all-reduce-table", read.all_reduce_table}});
  for (const auto& [flag, list] : flag_values{{"model", read.models}, {"network", read.networks}}) {
    std::istringstream files(list);
    for (std::string file; std::getline(files, file, ',');) {
      if (flag == "network" || file.ends_with(".csv")) {
        named.emplace_back(flag, file);
      }
    }
  }
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto& [flag, file] = written[i];
    for (const auto& [other, its] : std::span(named).subspan(i + 1)) {
      const bool goes_on = other == "resume" && (flag == "json" || flag == "checkpoint");
      if (!file.empty() && !its.empty() && !goes_on && is_one_file(file, its)) {
        throw flag_error("--" + flag + " " + file + " would write into the file of --" + other +
                         " " + its + ". Fix: --" + flag + " with another file");
      }
    }
  }
}

}  // namespace common
