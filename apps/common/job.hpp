#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace common {

/// What the shared flags say; the same names and defaults in every app.
struct job {
  std::string strategy{};
  std::string model{"cnn"};
  std::string data{"fashion-mnist"};
  std::size_t batch_size{32};  ///< images per worker and step
  int ranks{4};                ///< workers
  int servers{1};              ///< where the strategy has any
  std::string transport{"automatic"};
  std::size_t epochs{3};
  std::size_t steps{};  ///< at most so many in all; 0: no limit
  std::optional<float> learning_rate{};
  std::optional<float> momentum{};
  float weight_decay{};
  std::uint64_t seed{1};
  double deadline{60};
  std::string json{};
  std::string timeline{};
  std::string checkpoint{};
  std::string resume{};
  bool list_strategies{};
  bool list_models{};
  bool header{};
  bool help{};
  /// `--role.option value`, for the strategy to read.
  std::vector<std::pair<std::string, std::string>> policy_flags{};
};

/// Reads the command line. Throws tutti::usage_error with one line that names the culprit and, for
/// a flag that nobody knows, the nearest one.
job parse(int argc, char** argv);

/// The flags that `parse` knows, one a line.
std::string help();

/// Calls `run` and answers the exit status: 2 after bad usage, 1 after any other error, each with
/// one line `program: …` on standard error.
int guarded(const char* program, int (*run)(int, char**), int argc, char** argv);

/// The candidate that takes the fewest edits to become `wanted`.
std::string nearest(const std::string& wanted, const std::vector<std::string>& candidates);

/// This process is one of several that mpirun or srun started.
bool under_launcher();

}  // namespace common
