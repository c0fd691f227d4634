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

/// The most workers, and the most servers, that a job may start.
inline constexpr int most_ranks = 1024;

/// Which app reads the command line. A flag that only another app has is an error.
enum class app { cell, train, compare, survey };

/// Pairs of a flag, as `role.option`, and its value or its help text.
using flag_values = std::vector<std::pair<std::string, std::string>>;

/// The values of all flags. A flag that several apps have has the same name and default in each.
struct job {
  std::string strategy{"Horovod"};
  std::string kvstore{};           ///< a type of MXNet's kvstore, which selects a strategy
  std::string all_reduce_spec{};   ///< of tf_cnn_benchmarks; selects TFReplicated's options
  std::string all_reduce_table{};  ///< file of measurements that selects TFReplicated's options
  std::string model{"cnn"};
  std::string data{"fashion-mnist"};
  std::size_t batch_size{32};  ///< images per worker and step
  std::optional<int> ranks{};  ///< workers, if the user says how many; a launcher fixes the number
  int servers{1};              ///< used only by strategies that have servers
  std::string transport{"automatic"};
  std::string device{"cpu"};
  std::string precision{"fp32"};
  std::size_t epochs{3};
  std::size_t steps{};      ///< stop after so many in all; 0: no limit
  std::string optimizer{};  ///< empty: SGD, or the optimizer that the strategy brings
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
  /// Flags of `tutti-compare`. The strings from here to `networks` are lists, separated by commas.
  std::string strategies{"all"};
  std::string models{"resnet50"};
  std::string rank_counts{"4"};
  std::string links{};
  std::string networks{};
  std::string world{"simulated"};
  std::string server_hosts{"workers"};
  std::string payloads{"counted"};
  std::string kernels{};  ///< empty: "cpu" if `world` is "real", otherwise "profile"
  int iterations{12};     ///< for local SGD, a multiple of its period
  int warmup{3};
  int repetitions{1};
  double jitter{};
  double slowdown{};
  std::string slow_rank{};                   ///< WORKER:FACTOR, as 2:10
  std::optional<double> memory_bandwidth{};  ///< GB/s; without it that of the profile's device
  std::string csv{};
  bool explain{};
  bool list_strategies{};
  bool list_models{};
  bool header{};
  bool help{};
  /// Flags `--role.option value`, which the strategy's policies read.
  flag_values policy_flags{};
  /// Flags `--optimizer.option value`, which the optimizer reads.
  flag_values optimizer_flags{};

  int workers() const { return ranks.value_or(4); }
};

/// Thrown if the command line is wrong. All processes that a launcher started with it then fail
/// alike.
class flag_error : public tutti::usage_error {
 public:
  using usage_error::usage_error;
};

/// Reads the command line. Throws flag_error with one line that names the flag at fault and, for a
/// flag that does not exist, the nearest one that does.
job parse(int argc, char** argv, app reader);

/// Returns the help text for the flags that `parse` knows, one a line.
std::string help(app reader);

/// Calls `run` and returns the exit status: 0, 2 after bad usage, 1 after any other error. An error
/// is one line `program: …` on standard error. A wrong command line is reported once for all
/// processes of a launcher that have it. If it is wrong only on some ranks, one of them reports it
/// and ends the whole job.
int guarded(const char* program, const std::function<void()>& run);

/// Returns the bytes that a rank sent as a table shows them: in MB, or "shared" for 0, because
/// threads that read one another's memory send nothing.
std::string megabytes(double sent);

/// Whether the job's ranks are MPI processes and not threads.
bool uses_mpi(const job& asked);

}  // namespace common
