#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/job.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/report.hpp"
#include "tutti/monitor/timeline.hpp"

namespace train {

/// What a worker saw in an epoch, or in all of them.
struct totals {
  double loss{};     ///< mean over steps
  double correct{};  ///< training images classified right, of one worker
  double train_accuracy{};
  double test_accuracy{};                  ///< where workers' models differ, of their mean
  std::optional<double> worst_accuracy{};  ///< of a worker's own, after the last epoch
  float learning_rate{};                   ///< of the last step
  double exposed{};                        ///< seconds
  std::uint64_t bytes_sent{};
  std::vector<double> step_seconds{};

  std::size_t steps() const { return step_seconds.size(); }
  double seconds() const;
  /// The time that `share` of the steps did not exceed.
  double quantile(double share) const;

  void add_step(double step_loss, std::size_t step_correct, double seconds);
  /// Adds an epoch; what holds after it is the last one's.
  void add(const totals& epoch);
};

/// Worker 0's voice: a line an epoch, progress where a terminal listens, JSON where it was asked.
class log {
 public:
  log(const common::job& job, std::string_view strategy, int rank);

  /// How gradients travel, and the head of the table: what may refuse the job has not.
  void begin(std::string_view ways) const;
  void progress(std::size_t epoch, std::size_t step, std::size_t steps, float loss);
  void epoch(std::size_t epoch, const totals& seen, const tutti::report& so_far);
  /// After the last epoch.
  void finish(const tutti::report& so_far) const;
  /// What was resumed has done all that it was asked for.
  void nothing_left(std::size_t step) const;

 private:
  void write_json(std::optional<std::size_t> epoch, const totals& seen,
                  const tutti::report& so_far) const;

  const common::job* job_;
  std::string strategy_;
  bool speaks_;
  bool terminal_;
  totals all_{};
};

/// The timelines of this process's ranks, until they are written together.
class timelines {
 public:
  void add(int rank, const tutti::monitor::timeline& seen, const std::vector<tutti::tensor>& named);
  /// To `file`, or to `file`.rank where every rank is a process. Throws tutti::usage_error if that
  /// cannot be written.
  void write(const common::job& asked) const;

 private:
  std::mutex mutex_;
  std::map<int, tutti::monitor::timeline> seen_;
  std::vector<std::string> names_;
};

}  // namespace train
