#pragma once

#include <map>
#include <optional>
#include <string>

#include "compare/contender.hpp"

namespace compare {

/// All that a row depends on, in one line.
std::string job_of(const scenario& of, const contender& who, const common::job& asked);

/// Throws common::flag_error in every process that a launcher started where flags that rows depend
/// on are not the same in all of them. Collective.
void expect_one_job(const common::job& asked);

/// Rows of a run that was interrupted, as its `--json` file keeps them.
class earlier {
 public:
  /// None where `file` is empty. Throws tutti::usage_error that names the file and the line.
  explicit earlier(const std::string& file);

  /// The row of this job, if it was run to its end.
  std::optional<row> find(const std::string& job, const scenario& of) const;

 private:
  std::map<std::string, row> rows_{};  ///< by job, without what its scenario says
};

}  // namespace compare
