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

/// The figures of an epoch, or of all epochs.
struct totals {
  double loss{};     ///< mean over steps
  double correct{};  ///< training images that one worker classified correctly
  double train_accuracy{};
  double test_accuracy{};  ///< of the mean model, if workers' models differ
  /// Of the worst worker's own model, after the last epoch.
  std::optional<double> worst_accuracy{};
  float learning_rate{};  ///< of the last step
  double exposed{};       ///< seconds
  std::uint64_t bytes_sent{};
  std::vector<double> step_seconds{};

  std::size_t steps() const { return step_seconds.size(); }
  double seconds() const;
  /// Returns the time that a fraction `share` of the steps did not exceed.
  double quantile(double share) const;

  void add_step(double step_loss, std::size_t step_correct, double seconds);
  /// Adds an epoch. Loss, accuracies and learning rate become those of that epoch.
  void add(const totals& epoch);
};

/// What worker 0 prints: a line for each epoch, progress if the output is a terminal, and JSON if
/// it was asked for.
class log {
 public:
  log(const common::job& job, std::string_view strategy, int rank);

  /// Prints how gradients travel (`ways`) and the table's head. Call it once nothing can refuse the
  /// job any more.
  void begin(std::string_view ways) const;
  void progress(std::size_t epoch, std::size_t step, std::size_t steps, float loss);
  void epoch(std::size_t epoch, const totals& seen, const tutti::report& so_far);
  /// Prints and writes the figures of the whole run. Call it after the last epoch.
  void finish(const tutti::report& so_far) const;
  /// Prints that a resumed run had already done all steps that the job asks for.
  void nothing_left(std::size_t step) const;

 private:
  void write_json(std::optional<std::size_t> epoch, const totals& seen,
                  const tutti::report& so_far) const;

  const common::job* job_;
  std::string strategy_;
  int width_;  ///< of the column of the strategy's name
  bool speaks_;
  bool terminal_;
  totals all_{};
};

/// Collects the timelines of this process's ranks until they are written together.
class timelines {
 public:
  void add(int rank, const tutti::monitor::timeline& seen, const std::vector<tutti::tensor>& named);
  /// Writes them to the file of --timeline, or to FILE.rank if every rank is a process. Throws
  /// tutti::usage_error if that cannot be written.
  void write(const common::job& asked) const;

 private:
  std::mutex mutex_;
  std::map<int, tutti::monitor::timeline> seen_;
  std::vector<std::string> names_;
};

}  // namespace train
