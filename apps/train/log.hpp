#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/report.hpp"
#include "tutti/monitor/timeline.hpp"

namespace train {

/// What a worker saw in an epoch.
struct epoch_totals {
  std::size_t steps{};
  double loss{};     ///< mean over steps
  double correct{};  ///< training images classified right, of one worker
  double seconds{};
  double exposed{};  ///< seconds
  std::uint64_t bytes_sent{};
  double test_accuracy{};

  void add(double step_loss, std::size_t step_correct) {
    ++steps;
    loss += (step_loss - loss) / static_cast<double>(steps);
    correct += static_cast<double>(step_correct);
  }
};

/// Worker 0's voice: a line an epoch, progress where a terminal listens, JSON where it was asked.
class log {
 public:
  log(const common::job& job, std::string_view strategy, int rank);

  void progress(std::size_t epoch, std::size_t step, std::size_t steps, float loss);
  void epoch(std::size_t epoch, const epoch_totals& totals, const tutti::report& so_far);

 private:
  const common::job* job_;
  std::string strategy_;
  bool speaks_;
  bool terminal_;
};

/// The timelines of this process's ranks, until they are written together.
class timelines {
 public:
  void add(int rank, const tutti::monitor::timeline& seen, const std::vector<tutti::tensor>& named);
  /// Throws tutti::usage_error if the file cannot be written.
  void write(const std::string& file) const;

 private:
  std::mutex mutex_;
  std::map<int, tutti::monitor::timeline> seen_;
  std::vector<std::string> names_;
};

}  // namespace train
