#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"

namespace common {

/// That a job may start, of workers and of servers.
inline constexpr int most_ranks = 1024;

/// Who reads the command line: a flag of the other's is a mistake, not silence.
enum class app { cell, train, compare, survey };

/// Flags as `role.option`, each with its value, or with what it means.
using flag_values = std::vector<std::pair<std::string, std::string>>;

/// What the shared flags say; the same names and defaults in every app.
struct job {
  std::string strategy{"Horovod"};
  std::string kvstore{};           ///< an MXNet type, which names a strategy
  std::string all_reduce_spec{};   ///< tf_cnn_benchmarks', which names one and its options
  std::string all_reduce_table{};  ///< a file with what was measured, which does so, too
  std::string model{"cnn"};
  std::string data{"fashion-mnist"};
  std::size_t batch_size{32};  ///< images per worker and step
  std::optional<int> ranks{};  ///< workers, if the user says; a launcher has started its own
  int servers{1};              ///< where the strategy has any
  std::string transport{"automatic"};
  std::string device{"cpu"};
  std::string precision{"fp32"};
  std::size_t epochs{3};
  std::size_t steps{};      ///< at most so many in all; 0: no limit
  std::string optimizer{};  ///< empty: SGD, or the strategy's own
  std::string density_warm_up{"own"};
  std::optional<float> learning_rate{};
  std::optional<float> momentum{};
  std::optional<float> weight_decay{};
  std::string augment{"none"};
  std::string rate{"linear"};  ///< how the learning rate falls
  double rate_warm_up{};       ///< epochs
  double rate_every{1};        ///< epochs
  double rate_factor{0.1};
  std::uint64_t seed{1};
  double deadline{60};
  std::string progress{"automatic"};
  std::string json{};
  std::string timeline{};
  std::string checkpoint{};
  std::string resume{};
  /// What `tutti-compare` compares: lists, separated by commas.
  std::string strategies{"all"};
  std::string models{"resnet50"};
  std::string rank_counts{"4"};
  std::string links{};
  std::string networks{};
  std::string world{"simulated"};
  std::string server_hosts{"workers"};
  std::string payloads{"counted"};
  std::string kernels{};  ///< empty: cpu where the world is real, profile elsewhere
  int iterations{12};     ///< whole periods of local SGD
  int warmup{3};
  int repetitions{1};
  double jitter{};
  double slowdown{};
  std::string slow_rank{};                   ///< as 2:10
  std::optional<double> memory_bandwidth{};  ///< GB/s of a rank's device, or the profile's
  std::string csv{};
  bool explain{};
  bool list_strategies{};
  bool list_models{};
  bool header{};
  bool help{};
  /// `--role.option value`, for the strategy to read.
  flag_values policy_flags{};
  /// `--optimizer.option value`, for the optimizer to read.
  flag_values optimizer_flags{};

  int workers() const { return ranks.value_or(4); }
};

/// The command line is wrong, and so on every process that a launcher started alike.
class flag_error : public tutti::usage_error {
 public:
  using usage_error::usage_error;
};

/// Reads the command line. Throws flag_error with one line that names the culprit and, for a flag
/// that does not exist, the nearest one.
job parse(int argc, char** argv, app reader);

/// The flags that `parse` knows, one a line.
std::string help(app reader);

/// Calls `run` and answers the exit status: 0, 2 after bad usage, 1 after any other error, each
/// with one line `program: …` on standard error, once for all processes where all are wrong. Where
/// some rank's command line alone is wrong, it says so and ends the job.
int guarded(const char* program, const std::function<void()>& run);

/// Bytes that a rank sent, as a table shows them. Threads that read one another's memory send none.
std::string megabytes(double sent);

/// The job's ranks are MPI processes, not threads.
bool uses_mpi(const job& asked);

}  // namespace common
