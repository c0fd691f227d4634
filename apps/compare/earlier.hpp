#pragma once

#include <map>
#include <optional>
#include <string>

#include "compare/contender.hpp"

namespace compare {

/// Returns one line that names everything a row depends on, as the key under which a row is found
/// again.
std::string job_of(const scenario& of, const contender& who, const common::job& asked);

/// Throws common::flag_error on every process if the processes that a launcher started were given
/// different values of a flag that rows depend on. Collective.
void expect_one_job(const common::job& asked);

/// The rows of an interrupted run, read back from its `--json` file.
class earlier {
 public:
  /// Reads the rows; an empty `file` has none. Throws tutti::usage_error that names the file and
  /// the line at fault.
  explicit earlier(const std::string& file);

  /// Returns the row of this job, if the interrupted run completed it.
  std::optional<row> find(const std::string& job, const scenario& of) const;

 private:
  std::map<std::string, row> rows_{};  ///< by job; without the fields that a scenario gives
};

}  // namespace compare
