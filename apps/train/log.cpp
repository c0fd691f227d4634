#include "train/log.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <unistd.h>

#include "common/launcher.hpp"
#include "common/output.hpp"
#include "common/staleness.hpp"
#include "tutti/base/version.hpp"

namespace train {

double totals::seconds() const {
  return std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0);
}

double totals::quantile(double share) const {
  if (step_seconds.empty()) {
    return 0;
  }
  auto sorted = step_seconds;
  std::ranges::sort(sorted);
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

void totals::add_step(double step_loss, std::size_t step_correct, double seconds) {
  step_seconds.push_back(seconds);
  loss += (step_loss - loss) / static_cast<double>(steps());
  correct += static_cast<double>(step_correct);
}

void totals::add(const totals& epoch) {
  step_seconds.insert(step_seconds.end(), epoch.step_seconds.begin(), epoch.step_seconds.end());
  loss = epoch.loss;
  train_accuracy = epoch.train_accuracy;
  test_accuracy = epoch.test_accuracy;
  learning_rate = epoch.learning_rate;
  worst_accuracy = epoch.worst_accuracy;
  exposed += epoch.exposed;
  bytes_sent += epoch.bytes_sent;
}

log::log(const common::job& job, std::string_view strategy, int rank)
    : job_(&job),
      strategy_(strategy),
      width_(static_cast<int>(std::max<std::size_t>(strategy.size(), 14))),
      speaks_(rank == 0),
      // mpirun gives every process a terminal, even if its own output is not one.
      terminal_(isatty(STDOUT_FILENO) != 0 && !common::under_launcher()) {}

void log::begin(std::string_view ways) const {
  if (speaks_) {
    std::printf(
        "%.*s%-*s epoch   loss    train   test   images/s   ms/step  exposed ms  MB sent/step\n",
        static_cast<int>(ways.size()), ways.data(), width_, "strategy");
  }
}

void log::progress(std::size_t epoch, std::size_t step, std::size_t steps, float loss) {
  if (speaks_ && terminal_ && (step % 16 == 0 || step == steps)) {
    std::printf("\r%-*s %5zu   step %zu of %zu, loss %.4f ", width_, strategy_.c_str(), epoch + 1,
                step, steps, static_cast<double>(loss));
    std::fflush(stdout);
  }
}

void log::epoch(std::size_t epoch, const totals& seen, const tutti::report& so_far) {
  if (!speaks_) {
    return;
  }
  const auto steps = static_cast<double>(seen.steps());
  const double images = steps * static_cast<double>(job_->batch_size) * so_far.workers;
  std::printf("%s%-*s %5zu  %.4f  %.4f  %.4f  %8.0f  %8.2f  %10.2f  %12s\n",
              terminal_ ? "\r\033[K" : "", width_, strategy_.c_str(), epoch + 1, seen.loss,
              seen.train_accuracy, seen.test_accuracy, images / seen.seconds(),
              1e3 * seen.seconds() / steps, 1e3 * seen.exposed / steps,
              common::megabytes(static_cast<double>(seen.bytes_sent) / steps).c_str());
  if (seen.worst_accuracy) {
    std::printf(
        "%-*s the models of %d workers differ: test is of their mean, the worst model has %.4f\n",
        width_, strategy_.c_str(), so_far.workers, *seen.worst_accuracy);
  }
  std::fflush(stdout);
  write_json(epoch, seen, so_far);
  all_.add(seen);
}

void log::finish(const tutti::report& so_far) const {
  if (!speaks_ || all_.steps() == 0) {
    return;
  }
  if (so_far.pushes.taken() > 0) {
    std::ostringstream counted;
    counted << so_far.pushes;
    std::printf("%-*s %s\n", width_, strategy_.c_str(), counted.str().c_str());
  }
  write_json({}, all_, so_far);
}

void log::nothing_left(std::size_t step) const {
  if (speaks_) {
    std::printf("%-*s nothing is left to train after step %zu. Fix: more --epochs or --steps\n",
                width_, strategy_.c_str(), step);
  }
}

void log::write_json(std::optional<std::size_t> epoch, const totals& seen,
                     const tutti::report& so_far) const {
  if (job_->json.empty()) {
    return;
  }
  const auto steps = static_cast<double>(seen.steps());
  const double images = steps * static_cast<double>(job_->batch_size) * so_far.workers;
  nlohmann::ordered_json line{{"strategy", strategy_},
                              {"model", job_->model},
                              {"data", job_->data},
                              {"world", "real"},
                              {"transport", common::uses_mpi(*job_)  ? "mpi"
                                            : job_->device == "cuda" ? "in_process_cuda"
                                                                     : "in_process"},
                              {"device", job_->device},
                              {"precision", job_->precision},
                              {"ranks", so_far.workers + so_far.servers},
                              {"workers", so_far.workers},
                              {"servers", so_far.servers},
                              {"batch_size", job_->batch_size},
                              {"seed", job_->seed},
                              {"epoch", nullptr},
                              {"steps", seen.steps()},
                              {"loss", seen.loss},
                              {"train_accuracy", seen.train_accuracy},
                              {"test_accuracy", seen.test_accuracy},
                              {"worst_accuracy", nullptr},
                              {"learning_rate", seen.learning_rate},
                              {"seconds", seen.seconds()},
                              {"iteration_ms",
                               {{"median", 1e3 * seen.quantile(0.5)},
                                {"p5", 1e3 * seen.quantile(0.05)},
                                {"p95", 1e3 * seen.quantile(0.95)}}},
                              {"samples_per_second", images / seen.seconds()},
                              {"exposed_ms", 1e3 * seen.exposed / steps},
                              {"bytes_sent_per_rank", static_cast<double>(seen.bytes_sent) / steps},
                              {"optimizer_bytes", so_far.optimizer_bytes},
                              {"gradient_bytes", so_far.gradient_bytes},
                              {"gradient_bytes_of_the_model", so_far.own_gradient_bytes},
                              {"overflowed", so_far.overflowed},
                              {"staleness", common::by_staleness(so_far.pushes)},
                              {"pushes_dropped", so_far.pushes.dropped},
                              {"pushes_held", so_far.pushes.held},
                              {"lower_bound_ms", nullptr},
                              {"predicted_ms", nullptr},
                              {"plan_hash", so_far.plan_hash},
                              {"version", TUTTI_VERSION}};
  if (epoch) {
    line["epoch"] = *epoch + 1;
  }
  if (seen.worst_accuracy) {
    line["worst_accuracy"] = *seen.worst_accuracy;
  }
  common::append_lines(job_->json,
                       line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void timelines::add(int rank, const tutti::monitor::timeline& seen,
                    const std::vector<tutti::tensor>& named) {
  const std::scoped_lock lock(mutex_);
  seen_.emplace(rank, seen);
  names_.clear();
  for (const auto& each : named) {
    names_.push_back(each.name);
  }
}

void timelines::write(const common::job& asked) const {
  const std::string file = common::uses_mpi(asked) && !seen_.empty()
                               ? asked.timeline + "." + std::to_string(seen_.begin()->first)
                               : asked.timeline;
  std::ofstream out(file);
  tutti::monitor::write_trace(out, seen_, names_);
  out.flush();
  common::expect_writable(out, file);
}

}  // namespace train
