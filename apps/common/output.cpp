#include "common/output.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <unistd.h>

namespace common {

namespace {

/// Whether the file is not empty and its last line has no end. Only a regular file is read, because
/// a pipe would wait for a writer.
bool ends_within_a_line(const std::string& file) {
  std::error_code none;
  if (!is_regular_file(std::filesystem::path(file), none)) {
    return false;
  }
  std::ifstream in(file, std::ios::binary);
  in.seekg(-1, std::ios::end);
  char last = '\n';
  return in.get(last) && last != '\n';
}

bool is_one_file(const std::filesystem::path& first, const std::filesystem::path& second) {
  std::error_code none;  // if a file does not exist yet, the paths are compared instead
  return !is_other(status(first, none)) &&
         (equivalent(first, second, none) ||
          weakly_canonical(absolute(first), none) == weakly_canonical(absolute(second), none));
}

/// Whether a rank has this file, where each has PREFIX.RANK, PREFIX.RANK.previous and, while it
/// saves, PREFIX.RANK.partial.
bool is_of_a_rank(const std::filesystem::path& file, const std::filesystem::path& prefix) {
  const std::string name = file.filename().string();
  const std::string begin = prefix.filename().string() + ".";
  if (!name.starts_with(begin)) {
    return false;
  }
  const std::string rest = name.substr(begin.size());
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const std::string kind = rest.substr(digits);
  return digits > 0 && (kind.empty() || kind == ".partial" || kind == ".previous") &&
         is_one_file(file, prefix.string() + "." + rest);
}

/// Whether the value of `--kernels` is a keyword and not a file.
bool is_rate_of_kernels(const std::string& word) { return word == "cpu" || word == "profile"; }

}  // namespace

void check_writable(const std::string& file, const std::string& asked_for) {
  std::error_code none;
  const bool is_there = exists(symlink_status(std::filesystem::path(file), none));
  const std::string opened = is_there ? file : file + "." + std::to_string(getpid()) + ".probe";
  try {
    expect_writable(std::ofstream(opened, std::ios::app), asked_for);
  } catch (const tutti::usage_error& wrong) {
    throw flag_error(wrong.what());
  }
  if (!is_there) {
    std::filesystem::remove(opened, none);
  }
}

void append_lines(const std::string& file, const std::string& lines) {
  std::ofstream out(file, std::ios::app);
  out << (ends_within_a_line(file) ? "\n" : "") << lines << std::flush;
  expect_writable(out, file);
}

void expect_files_apart(const job& read, app reader) {
  const flag_values written{{"json", read.json},
                            {"csv", read.csv},
                            {"timeline", read.timeline},
                            {"checkpoint", read.checkpoint}};
  flag_values named = written;
  named.insert(named.end(), {{"resume", read.resume},
                             {"kernels", is_rate_of_kernels(read.kernels) ? "" : read.kernels},
                             {"all-reduce-table", read.all_reduce_table}});
  for (const auto& [flag, list] : flag_values{{"model", read.models}, {"network", read.networks}}) {
    std::istringstream files(list);
    for (std::string file; std::getline(files, file, ',');) {
      if (flag == "network" || file.ends_with(".csv")) {
        named.emplace_back(flag, file);
      }
    }
  }
  const auto is_a_prefix = [&read, reader](const std::string& flag) {
    return flag == "checkpoint" || (flag == "resume" && reader == app::train) ||
           (flag == "timeline" && uses_mpi(read));
  };
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto& [flag, file] = written[i];
    for (const auto& [other, its] : std::span(named).subspan(i + 1)) {
      if (file.empty() || its.empty()) {
        continue;
      }
      const bool goes_on = other == "resume" && (flag == "json" || flag == "checkpoint");
      if ((!goes_on && is_one_file(file, its)) || (is_a_prefix(flag) && is_of_a_rank(its, file)) ||
          (is_a_prefix(other) && is_of_a_rank(file, its))) {
        throw flag_error("--" + flag + " " + file + " would write into the file of --" + other +
                         " " + its + ". Fix: --" + flag + " with another file");
      }
    }
  }
}

}  // namespace common
